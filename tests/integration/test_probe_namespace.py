"""Tests of machine detection in a mount namespace with other hardware."""

import json
import os
import shutil
import sys

import pytest

from gpuinstall.base import process
from tests.lab import driver, own_gpus
from tests.lab.driver import FakeDriver
from tests.lab.recorded import H200, RTX_4090, card, module

COVERED = ("/sys/bus/pci/devices", "/sys/module", "/proc/driver")
# Shared folders are mounted again with other contents.
MOUNTS = f"""set -e
for covered in {" ".join(COVERED)}; do mount --bind "$1$covered" "$covered"; done
nodes=$(ls "$1/dev")
mount -t tmpfs lab "$1/dev"
cp -a /dev/null /dev/zero /dev/urandom "$1/dev/"
for node in $nodes; do mknod -m 666 "$1/dev/$node" c 1 3; done
mkdir "$1/dev/shm"
mount --rbind /dev/shm "$1/dev/shm"
mount --rbind "$1/dev" /dev
"$2" -m gpuinstall probe --json
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid")
        or os.geteuid() != 0
        or shutil.which("unshare") is None,
        reason="requires root and unshare to replace files in /proc, /sys, and /dev",
    ),
    pytest.mark.skipif(
        own_gpus.has_gpus_or_container(), reason="requires a machine without a GPU"
    ),
]


def probed(folder, files, environment):
    """Detect the machine with files mounted over this machine's."""
    for covered in (*COVERED, "/dev"):
        (folder / covered.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.name in ("driver", "physfn"):
            target.symlink_to(text)
        else:
            target.write_text(text, "utf-8")
    namespace = ["unshare", "--mount", "--propagation", "private"]
    done = process.run(
        [*namespace, "sh", "-c", MOUNTS, "sh", folder, sys.executable],
        env={**os.environ, **environment},
    )
    assert done.out, done.err
    return json.loads(done.out)


def test_gpu_without_driver_is_detected_through_pci(tmp_path):
    document = probed(tmp_path, card(1, RTX_4090, driver=None), {})
    assert document["exit_code"] == 8
    assert [
        (gpu["pci_id"], gpu["compute_capability"], gpu["found_via"])
        for gpu in document["data"]["gpus"]
    ] == [(RTX_4090, "8.9", "pci")]
    assert [
        (problem["code"], problem["id"]) for problem in document["data"]["problems"]
    ] == [("driver-missing", "F01")]


def test_pod_with_one_of_eight_gpus_is_healthy(tmp_path, play):
    files = {
        path: text
        for number in range(1, 9)
        for path, text in card(number, H200).items()
    }
    files |= module() | {
        f"/dev/{name}": "" for name in ("nvidiactl", "nvidia-uvm", "nvidia0")
    }
    healthy = play(FakeDriver((driver.H200,)))
    (tmp_path / "machine").mkdir()
    document = probed(
        tmp_path / "machine", files, healthy | {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    )
    assert (document["exit_code"], document["status"]) == (0, "success")
    assert [(gpu["index"], gpu["found_via"]) for gpu in document["data"]["gpus"]] == [
        (0, "nvml")
    ]
    assert [
        (problem["code"], problem["blocking"])
        for problem in document["data"]["problems"]
    ] == [("gpu-not-ours", False)]
