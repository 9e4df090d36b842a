"""Tests with NVIDIA's driver libraries but without a kernel module.

Debian's libraries are unpacked and run in a mount namespace with its own /dev, because
they create a device node.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures.classify import classify
from tests.lab.processes import succeed
from tests.lab.recorded import card, platform, recording

pytestmark = [pytest.mark.heavy, pytest.mark.network]

PACKAGES = ("libcuda1", "libnvidia-ml1", "nvidia-smi", "libnvidia-ptxjitcompiler1")
BRANCHES = {"bookworm": ("12", "535.261.03"), "trixie": ("13", "550.163.01")}
CONFIGURATION = """
Dir::Etc "{folder}/etc";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Debug::NoLocking "true";
APT::Sandbox::User "root";
"""
PRIVATE = """
mount -t tmpfs none "$1" && cp -a /dev/null /dev/zero /dev/urandom "$1" && mkdir "$1/shm" && mount --bind "$1" /dev || exit 125
shift
exec "$@"
"""
PLAYED = """
import sys
from pathlib import Path
from gpuinstall.machine.probe import read_machine
from gpuinstall.machine.source import Source
from tests.lab.recorded import Recording


class PlayedBus(Recording):
    run_children = Source.run_children


played = PlayedBus(Path(sys.argv.pop(1)))
"""
PROBE = f"""{PLAYED}
import json

machine = read_machine(source=played)
evidence = [problem.evidence for problem in machine.problems]
print(json.dumps([machine.to_dict(), evidence]))
"""
COMMAND = f"""{PLAYED}
import gpuinstall.machine.probe
from gpuinstall.__main__ import main

gpuinstall.machine.probe.Source = lambda reporter: played
main()
"""


def mirror():
    """Return the URL and key of this machine's apt archive."""
    for path in Path("/etc/apt/sources.list.d").glob("debian*"):
        text = path.read_text("utf-8")
        address = re.search(r"^URIs: (\S+)", text, re.MULTILINE)
        key = re.search(r"^Signed-By: (\S+)", text, re.MULTILINE)
        if address and key:
            return address[1], key[1]
    pytest.skip("requires Debian's apt")


@pytest.fixture(scope="module", params=BRANCHES)
def libraries(request, tmp_path_factory):
    """Unpack the libraries, and yield Debian's and the driver's release."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("requires root for a separate /dev")
    address, key = mirror()
    folder = tmp_path_factory.mktemp(request.param)
    for name in ("etc", "state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    line = f"deb [signed-by={key}] {address} {request.param} main non-free\n"
    (folder / "etc" / "sources.list").write_text(line, "utf-8")
    configuration = folder / "apt.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder), "utf-8")
    environment = {**os.environ, "APT_CONFIG": str(configuration)}
    for words in (("update", "-q"), ("download", "-q", *PACKAGES)):
        done = process.run(("apt-get", *words), cwd=folder, env=environment)
        if not done.ok:
            pytest.skip(f"apt-get {words[0]}: {done.err[-200:]}")
    for package in folder.glob("*.deb"):
        succeed(("dpkg", "-x", package, folder / "root"))
    yield (*BRANCHES[request.param], folder / "root")
    shutil.rmtree(folder)


def run(root, tmp_path, *command):
    """Run a program with NVIDIA's libraries and a temporary /dev."""
    private = tmp_path / "dev"
    private.mkdir(exist_ok=True)
    found = sorted(root.glob("usr/lib/*/nvidia/current"))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(found[0])}
    words = ("unshare", "--mount", "sh", "-c", PRIVATE, "sh", private, *command)
    done = process.run(words, env=environment)
    if done.status == 125:
        pytest.skip("this machine allows no mount namespace")
    return done


def probed(root, tmp_path, *parts):
    recording(tmp_path / "played", {"platform.json": platform()}, *parts)
    done = run(root, tmp_path, sys.executable, "-c", PROBE, tmp_path / "played")
    return json.loads(done.out)


def test_driver_libraries_without_gpu_report_no_problem(libraries, tmp_path):
    _, _, root = libraries
    machine, _ = probed(root, tmp_path)
    assert (machine["gpus"], machine["driver"], machine["problems"]) == ([], None, [])


def test_driver_libraries_report_missing_kernel_module(libraries, tmp_path):
    debian, driver, root = libraries
    names = f'NAME="Debian GNU/Linux"\nVERSION_ID="{debian}"\nID=debian\n'
    backlight = "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko.xz:\n"
    machine, evidence = probed(
        root,
        tmp_path,
        card(1, driver=None),
        {
            "/etc/os-release": names,
            "/lib/modules/6.8.0-45-generic/modules.dep": backlight,
        },
    )
    (problem,) = machine["problems"]
    assert (problem["code"], problem["blocking"]) == ("module-not-loaded", True)
    assert f"libnvidia-ml.so.{driver}: NVML error 9" in evidence[0]
    assert f"libcuda.so.{driver}: cuInit returned 100" in evidence[0]
    assert machine["gpus"][0]["name"] == "NVIDIA GeForce RTX 4090"

    document = tmp_path / "machine.json"
    document.write_text(json.dumps(machine), "utf-8")
    plan = (sys.executable, "-m", "gpuinstall", "plan", "torch", "--machine", document)
    refused = run(root, tmp_path, *plan)
    assert refused.status == 8
    assert "the NVIDIA kernel module is not loaded" in refused.err


def test_install_and_doctor_report_missing_kernel_module(libraries, tmp_path):
    debian, _, root = libraries
    names = f'NAME="Debian GNU/Linux"\nVERSION_ID="{debian}"\nID=debian\n'
    recording(
        tmp_path / "played",
        {"platform.json": platform(), "/etc/os-release": names},
        card(1, driver=None),
    )
    project = tmp_path / "project"
    project.mkdir()
    for words in (("doctor",), ("install", "torch")):
        told = run(
            root,
            tmp_path,
            "env",
            f"--chdir={project}",
            f"PYTHONPATH={Path.cwd()}",
            sys.executable,
            "-c",
            COMMAND,
            tmp_path / "played",
            *words,
        )
        assert told.status == 8, told.err
        said = told.out + told.err
        assert "error: the NVIDIA kernel module is not loaded" in said
        assert "sudo apt-get install dkms linux-headers-" in said
        assert "Traceback" not in said
    assert list(project.iterdir()) == []


def test_nvidia_smi_error_output_is_classified(libraries, tmp_path):
    debian, _, root = libraries
    program = root / "usr/lib/nvidia/current/nvidia-smi"
    said = run(root, tmp_path, program)
    here = Machine("linux", "x86_64", distribution=f"Debian {debian}")
    causes = classify(said.out + said.err, here)
    assert [cause.id for cause in causes][:1] == ["F04"], said.out


def test_probe_creates_no_device_files(libraries, tmp_path):
    before = set(Path("/dev").iterdir())
    probed(libraries[2], tmp_path)
    assert set(Path("/dev").iterdir()) == before
