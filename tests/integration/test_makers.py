"""The whole pipeline for other makers' GPUs: real uv and pip, real HTTP, their files played, a torch that is a stub.

No card was at hand: what the kernel says is played (``tests/lab/elsewhere.py``).
"""

import json
import os
import sys
from collections import defaultdict

import pytest

from gpuinstall.base import process, uv
from tests.frozen import frozen_catalog
from tests.lab.driver import NO_GPU, FakeDriver, FakeGpu
from tests.lab.elsewhere import lay
from tests.lab.index import StandInIndex
from tests.lab.recorded import PCI, bus, card
from tests.lab.stub_torch import modules
from tests.lab.topology import Node, topology
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

RTX_4090 = FakeDriver((FakeGpu(),))
RX_7900_XTX = topology(Node(110000, 0x744C, 24))
ARC_B580 = card(3, "8086:e20b", "xe") | {
    f"{PCI}/{bus(3)}/drm/renderD130/dev": "226:130\n",
    "/dev/dri/renderD130": "open\n",
}
CODE = "import os, torch; print(os.path.basename(os.environ['VIRTUAL_ENV']), torch.__version__)"
PYTHON = f"cp3{sys.version_info.minor}"
LINUX, MAC = (
    f"{PYTHON}-{PYTHON}-manylinux_2_28_x86_64",
    f"{PYTHON}-{PYTHON}-macosx_14_0_arm64",
)
TRITON = {"rocm7.2": "triton-rocm", "xpu": "triton-xpu", "cu130": "triton"}


@pytest.fixture
def index(tmp_path):
    """An index with the builds of every maker of two torches; the default index has CUDA's, as the real one does."""
    served = tmp_path / "index"
    builds = frozen_catalog().serving("rocm").builds_for("linux", "x86_64")
    codes = defaultdict(
        tuple,
        {build.name: build.code for build in builds if build.backend.kind == "rocm"},
    )
    for torch in ("2.13.0", "2.14.1"):
        for tag, triton in TRITON.items():
            version, needs = f"{torch}+{tag}", [f"{triton}==3.8.0", "filelock"]
            make_wheel(
                served / "whl" / tag,
                "torch",
                version,
                LINUX,
                requires=needs,
                modules=modules(version, tag, *codes[version]),
            )
        make_wheel(
            served / "whl" / "cpu",
            "torch",
            f"{torch}+cpu",
            LINUX,
            modules=modules(f"{torch}+cpu", "cpu"),
        )
        make_wheel(
            served / "whl" / "cpu", "torch", torch, MAC, modules=modules(torch, "cpu")
        )
        make_wheel(
            served / "simple", "torch", torch, LINUX, modules=modules(torch, "cu130")
        )
    for tag, triton in TRITON.items():
        make_wheel(served / "whl" / tag, triton, "3.8.0", LINUX)
        make_wheel(
            served / "simple", triton, "3.8.0", LINUX, modules={"stranger.py": ""}
        )
    make_wheel(served / "simple", "filelock", "3.20.0")
    with StandInIndex(served) as host:
        yield host


@pytest.fixture
def loader(tmp_path):
    """A folder with Level Zero's loader, whose name is all that is looked for."""
    folder = tmp_path / "level-zero"
    folder.mkdir()
    (folder / "libze_loader.so.1").touch()
    return folder


@pytest.fixture
def workshop(index, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return Workshop(folder, tmp_path / "caches", index.environment())


@pytest.mark.heavy
def test_a_radeon_gets_a_proven_rocm_environment_that_only_a_proven_one_replaces(
    workshop,
    index,
    play,
    tmp_path,
    monkeypatch,
):
    play(NO_GPU)
    here = workshop.having(**lay(tmp_path / "machine", RX_7900_XTX))
    data = here.document("install", "torch==2.13.0")["data"]

    assert (data["plan"]["status"], data["plan"]["gpus"]) == (
        "ok",
        [{"index": 0, "runs": "gfx1100", "how": "sass"}],
    )
    assert (data["environment"]["torch"], data["environment"]["status"]) == (
        "2.13.0+rocm7.2",
        "built",
    )
    assert [
        (device["name"], device["status"]) for device in data["verdict"]["devices"]
    ] == [("AMD Navi 31", "passed")]
    assert here.entries() == {".venv", "pylock.rocm7-2.toml"}
    assert not any(
        "/simple/triton" in asked.path and asked.path.endswith(".whl")
        for asked in index.log
    )
    with pytest.raises(AssertionError, match="No module named 'stranger'"):
        here.python("import stranger")

    (tmp_path / "verdict.json").write_text(
        json.dumps({"2.14.1+rocm7.2/*": {"failed": {"matmul-float32": "wrong"}}})
    )
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))
    assert (
        here.refusal("install", "torch==2.14.1", exit_code=5)["code"] == "kernel-failed"
    )
    assert here.python("import torch; print(torch.__version__)") == "2.13.0+rocm7.2"
    monkeypatch.delenv("LAB_VERDICT")
    assert (
        here.document("install", "torch==2.14.1")["data"]["environment"]["torch"]
        == "2.14.1+rocm7.2"
    )
    assert here.document("verify")["data"]["status"] == "passed"
    assert (
        here.document("env", "rollback")["data"]["environment"]["torch"]
        == "2.13.0+rocm7.2"
    )
    installs_plainly(here, "pylock.rocm7-2.toml", "2.13.0+rocm7.2")


def test_an_arc_gets_a_proven_xpu_environment(workshop, play, tmp_path, loader):
    played = play(NO_GPU)
    folders = os.pathsep.join((str(loader), played["LD_LIBRARY_PATH"]))
    arc = {"LD_LIBRARY_PATH": folders, **lay(tmp_path / "machine", ARC_B580)}
    here = workshop.having(**arc)
    machine = here.document("probe")["data"]
    data = here.document("install")["data"]

    assert [
        (gpu["name"], gpu["architecture"], gpu["found_via"]) for gpu in machine["gpus"]
    ] == [("Intel Battlemage", "xe 20.1", "pci")]
    assert (data["environment"]["torch"], data["verdict"]["status"]) == (
        "2.14.1+xpu",
        "passed",
    )
    assert here.entries() == {".venv", "pylock.xpu.toml"}
    image = here.run("export", "dockerfile", "--lock", "pylock.xpu.toml").out
    assert (
        "--device /dev/dri --group-add $(stat -c %g /dev/dri/renderD128) torch" in image
    )
    assert "nvidia" not in image.lower()
    installs_plainly(here, "pylock.xpu.toml", "2.14.1+xpu")


@pytest.mark.heavy
def test_a_mixed_machine_has_an_environment_for_each_maker(workshop, play, tmp_path):
    play(RTX_4090)
    here = workshop.having(**lay(tmp_path / "machine", RX_7900_XTX))
    first = here.document("install")["data"]
    second = here.document("install", "--backend", "rocm7.2", "--venv", "amd/.venv")[
        "data"
    ]

    assert (first["environment"]["torch"], first["plan"]["warnings"][0]["code"]) == (
        "2.14.1+cu130",
        "gpu-not-supported",
    )
    assert "AMD Navi 31" in first["plan"]["warnings"][0]["message"]
    assert [device["name"] for device in first["verdict"]["devices"]] == [
        "NVIDIA GeForce RTX 4090"
    ]
    assert second["environment"]["torch"] == "2.14.1+rocm7.2"
    assert [
        (device["index"], device["status"]) for device in second["verdict"]["devices"]
    ] == [(1, "passed")]
    assert here.document("verify", "--venv", "amd/.venv")["data"]["status"] == "passed"


def test_locks_for_all_makers_lie_beside_each_other_and_uv_takes_a_macs_for_a_mac(
    workshop, play, tmp_path
):
    play(NO_GPU)
    targets = ("cu130", "rocm7-2", "xpu", "cpu", "cpu-macos-arm64")
    workshop.document(
        "lock",
        "torch==2.14.1",
        *(word for target in targets for word in ("--target", target)),
    )

    assert workshop.entries() == {f"pylock.{target}.toml" for target in targets}
    mac = [
        str(uv.uv()),
        "pip",
        "install",
        "-q",
        "--target",
        str(tmp_path / "mac"),
        "--python",
        sys.executable,
    ]
    done = process.run(
        [
            *mac,
            "--python-platform",
            "aarch64-apple-darwin",
            "-r",
            "pylock.cpu-macos-arm64.toml",
        ],
        env=workshop.environment | {"MACOSX_DEPLOYMENT_TARGET": "14.0"},
        cwd=workshop.folder,
    )
    assert done.ok, done.err
    assert (tmp_path / "mac" / "torch-2.14.1.dist-info").is_dir()
    chosen = workshop.having(**lay(tmp_path / "machine", RX_7900_XTX))
    assert chosen.document("sync")["data"]["environment"]["torch"] == "2.14.1+rocm7.2"


def test_one_project_starts_on_nodes_of_nvidia_and_of_amd(workshop, play, tmp_path):
    amd = workshop.having(**lay(tmp_path / "machine", RX_7900_XTX))
    play(NO_GPU)
    workshop.document(
        "lock", "torch==2.14.1", "--target", "cu130", "--target", "rocm7-2"
    )
    command = ("run", "--any", "--install", "python", "-c", CODE)
    on_amd = amd.run(*command)
    play(RTX_4090)
    on_nvidia = workshop.run(*command)

    assert (on_amd.status, on_amd.out) == (0, ".venv-rocm7-2 2.14.1+rocm7.2\n"), (
        on_amd.err
    )
    assert (on_nvidia.status, on_nvidia.out) == (0, ".venv-cu130 2.14.1+cu130\n"), (
        on_nvidia.err
    )
    assert workshop.entries() == {
        ".venv-cu130",
        ".venv-rocm7-2",
        "pylock.cu130.toml",
        "pylock.rocm7-2.toml",
    }


def installs_plainly(workshop, lock, torch):
    """Plain uv and plain pip install the lock, without us."""
    by_uv = [str(uv.uv()), "pip", "install", "-q", "--python", sys.executable]
    by_pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
    ]
    for number, command in enumerate((by_uv, by_pip)):
        place = workshop.folder.parent / f"plainly {number}"
        words = [*command, "--target", str(place), "-r", lock]
        done = process.run(words, env=workshop.environment, cwd=workshop.folder)
        assert done.ok, done.err
        assert (place / f"torch-{torch}.dist-info").is_dir()
