"""The whole pipeline as a user runs it: real uv, real HTTP to a stand-in index, a compiled driver, real bindings."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu, uuid_of
from tests.lab.host import UNAUTHORIZED, Answer
from tests.lab.index import Habits, StandInIndex
from tests.lab.native import native_library
from tests.lab.pace import within
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

RTX_4090 = FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020)
GTX_1080 = FakeDriver(
    (FakeGpu("NVIDIA GeForce GTX 1080", cc="6.1", memory_mib=8192, pci="10de:1b80"),)
)
NO_KERNEL = "CUDA error: no kernel image is available for execution"
A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2"),))


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path) -> Workshop:
    folder = tmp_path / "project"
    folder.mkdir()
    return Workshop(folder, tmp_path / "caches", stand_in.environment())


def tell(monkeypatch: pytest.MonkeyPatch, folder: Path, failed: dict[str, str], whom: str = "*"):
    """Have every kernel of the stub torch that is named fail with a message, everywhere or where ``whom`` says."""
    (folder / "verdict.json").write_text(json.dumps({whom: {"failed": failed}}), encoding="utf-8")
    monkeypatch.setenv("LAB_VERDICT", str(folder / "verdict.json"))


def leftovers(workshop: Workshop) -> set[str]:
    """What lies beside an environment although nobody works on it."""
    work = workshop.folder / ".venv.gpuinstall"
    expected = {"previous", "lock", ".gitignore"}
    return {entry.name for entry in work.iterdir()} - expected if work.exists() else set()


def wheels_sent_once(stand_in: StandInIndex) -> bool:
    sent = stand_in.sent()
    return bool(sent) and all(size == stand_in.size(name) for name, size in sent.items())


def test_an_rtx_4090_on_driver_535_gets_a_proven_cu126_environment_and_every_byte_once(
    workshop, stand_in, play
):
    play(RTX_4090)
    data = workshop.document("install")["data"]
    assert list(data) == ["plan", "lock", "environment", "previous", "verdict", "bytes", "seconds"]
    assert data["plan"]["build"]["backend"] == "cu126"
    assert data["plan"]["build"]["torch"] == "2.14.1"
    assert data["verdict"]["status"] == "passed"
    assert data["environment"]["status"] == "built"
    assert wheels_sent_once(stand_in)
    assert data["bytes"] == sum(stand_in.sent().values())
    text = workshop.lock("pylock.cu126.toml")
    assert text.count("[[packages]]") == text.count("sha256 = ") == data["lock"]["packages"]
    assert stand_in.default.url + "/files/torch" not in text
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}
    assert workshop.python("import torch; print(torch.__version__)") == "2.14.1+cu126"


@pytest.mark.heavy
def test_what_was_fetched_is_kept_once_by_uv_and_serves_another_environment_offline(
    workshop, stand_in, play
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    workshop.document("install", "torch==2.14.1")
    assert not [*(workshop.caches / "xdg" / "gpuinstall").rglob("*.whl")]
    stand_in.forget()
    assert workshop.document("install", "--venv", "second", "--offline")["data"]["bytes"] == 0
    assert stand_in.sent() == {}
    shutil.rmtree(workshop.caches / "uv")
    assert workshop.document("install")["data"]["environment"]["status"] == "none"
    assert workshop.document("env", "rollback")["data"]["environment"]["torch"] == "2.13.0+cu126"
    error = workshop.document("install", "--venv", "third", "--offline", exit_code=4)["errors"][0]
    assert (error["code"], error["hint"]) == ("offline", "Run it again without --offline")
    assert workshop.document("install", "--venv", "third")["data"]["bytes"] > 0
    assert wheels_sent_once(stand_in)


def test_a_second_run_asks_nobody_and_proves_nothing_again(workshop, stand_in, play):
    play(RTX_4090)
    first = workshop.document("install")["data"]
    stand_in.forget()
    with within(3):
        data = workshop.document("install")["data"]
    assert data["environment"]["status"] == "none"
    assert data["seconds"] < first["seconds"]
    assert data["bytes"] == 0
    assert stand_in.log == []


def test_another_card_or_driver_is_proven_again_without_building(workshop, stand_in, play):
    play(RTX_4090)
    workshop.document("install")
    stand_in.forget()
    play(replace(RTX_4090, driver="535.247.01"))
    assert "already up to date" in workshop.run("install", "--dry-run").out
    assert workshop.document("install")["data"]["environment"]["status"] == "proven"
    assert stand_in.sent() == {}


@pytest.mark.heavy
def test_a_newer_driver_is_told_of_the_torch_that_it_runs_and_changes_nothing(workshop, play):
    play(RTX_4090)
    assert "--upgrade" not in workshop.run("install").err
    play(replace(RTX_4090, driver="580.95.05", cuda=13000))
    told = workshop.run("install")
    assert "torch 2.15.0+cu130 runs here too: gpuinstall install --upgrade" in told.err
    assert "torch 2.14.1+cu126" in told.out


@pytest.mark.heavy
def test_without_a_gpu_a_forced_backend_is_installed_unproven_and_proven_where_the_gpus_are(
    workshop, play
):
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    done = workshop.run("install", "--backend", "cu126")
    assert done.status == 0, done.err
    assert "Proof       unproven: no usable GPU" in done.out
    assert "warning: unproven" in done.err
    data = workshop.document("install", "--backend", "cu126")["data"]
    assert (data["verdict"]["status"], data["environment"]["status"]) == ("unproven", "none")
    play(RTX_4090)
    assert workshop.document("verify")["data"]["status"] == "passed"
    data = workshop.document("install")["data"]
    assert (data["verdict"]["status"], data["environment"]["status"]) == ("passed", "proven")


def test_a_file_of_torch_that_was_changed_is_named_with_its_repair(workshop, play):
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    assert workshop.run("install", "-q").status == 0
    [version] = workshop.folder.glob(".venv/lib/*/site-packages/torch/version.py")
    text = version.read_text("utf-8")
    version.unlink()  # what uv keeps has the same bytes
    version.write_text(f"{text}#", encoding="utf-8")
    done = workshop.run("verify", "--deep")
    assert done.status == 5, done.err
    assert "1 files differ from those that were installed: torch/version.py" in done.out + done.err
    assert "gpuinstall doctor --fix" in done.out + done.err


@pytest.mark.heavy
def test_a_build_for_gpus_that_are_elsewhere_is_not_proven_here(workshop, play):
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    data = workshop.document("install", "--backend", "cu126")["data"]
    assert (data["environment"]["torch"], data["verdict"]["status"]) == ("2.14.1+cu126", "unproven")


@pytest.mark.heavy
def test_a_committed_lock_that_fits_is_installed_as_it_is(workshop, stand_in, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0", "torchvision")
    committed = workshop.lock("pylock.cu126.toml")
    fresh = replace(workshop, folder=workshop.folder.parent / "clone")
    fresh.folder.mkdir()
    (fresh.folder / "pylock.cu126.toml").write_text(committed, encoding="utf-8")
    stand_in.forget()
    data = fresh.document("install")["data"]
    assert data["environment"]["torch"] == "2.13.0+cu126"
    assert data["lock"]["status"] == "unchanged"
    assert fresh.lock("pylock.cu126.toml") == committed
    assert not any("/simple/" in asked.path for asked in stand_in.log)


@pytest.mark.heavy
def test_another_request_and_upgrade_make_a_new_lock(workshop, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    assert workshop.document("install")["data"]["environment"]["torch"] == "2.13.0+cu126"
    assert (
        workshop.document("install", "--upgrade")["data"]["environment"]["torch"] == "2.13.0+cu126"
    )
    assert (
        workshop.document("install", "--upgrade", "torch")["data"]["environment"]["torch"]
        == "2.14.1+cu126"
    )
    data = workshop.document("install", "torchvision")["data"]
    assert "torchvision" in workshop.lock("pylock.cu126.toml")
    assert data["previous"]["bytes"] > 0


@pytest.mark.heavy
def test_an_upgrade_that_finds_nothing_newer_builds_nothing(workshop, play):
    play(RTX_4090)
    workshop.document("install")
    before = workshop.lock("pylock.cu126.toml")
    done = workshop.run("install", "--upgrade", "--json")
    assert done.status == 0, done.out + done.err
    assert workshop.lock("pylock.cu126.toml") == before, done.err
    data = json.loads(done.out)["data"]
    found = (data["environment"]["status"], data["lock"]["status"], data["previous"])
    assert found == ("none", "unchanged", None), done.err


def test_a_package_of_the_users_is_named_and_stays(workshop, play):
    play(RTX_4090)
    workshop.document("install")
    python = workshop.folder / ".venv" / "bin" / "python"
    added = process.run(
        [uv.uv(), "pip", "install", "--python", python, "cowsay"], env=workshop.environment
    )
    assert added.ok, added.err
    done = workshop.run("install")
    assert done.status == 2
    assert "cowsay 6.1" in done.err
    assert workshop.python("import cowsay; print('moo')") == "moo"
    data = workshop.document("install", "--replace")["data"]
    assert (workshop.folder / ".venv.gpuinstall" / "previous") == type(workshop.folder)(
        data["previous"]["path"]
    )
    assert list((workshop.folder / ".venv.gpuinstall").rglob("cowsay/__init__.py"))


def test_a_folder_that_is_not_ours_is_replaced_only_when_told(workshop, play):
    play(RTX_4090)
    folder = workshop.folder / "env"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine", encoding="utf-8")
    venv = ("--venv", "env")
    assert workshop.document("install", *venv, exit_code=2)["errors"][0]["code"] == "not-ours"

    replaced = workshop.run("install", "--replace", *venv)

    kept = workshop.folder / "env.gpuinstall" / "previous" / "thesis.txt"
    assert kept.read_text(encoding="utf-8") == "mine"
    undo = re.search(r"undo: gpuinstall (.*)", replaced.out)
    assert undo, replaced.out
    back = workshop.run(*shlex.split(undo[1]))
    assert "env, as it was before; gpuinstall did not make it" in back.out, back.err
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]
    data = workshop.document(*shlex.split(undo[1]))["data"]
    assert data["environment"]["torch"] == "2.14.1+cu126"


def test_going_back_brings_environment_and_lock_and_forth_again(workshop, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    before = workshop.lock("pylock.cu126.toml")
    workshop.document("install", "torch==2.14.1")
    after = workshop.lock("pylock.cu126.toml")
    data = workshop.document("env", "rollback")["data"]
    assert list(data) == ["plan", "lock", "environment", "previous", "verdict", "bytes", "seconds"]
    assert (data["environment"]["torch"], data["verdict"]["status"]) == ("2.13.0+cu126", "passed")
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    assert workshop.lock("pylock.cu126.toml") == before
    back = workshop.run("env", "rollback")
    assert re.findall(r"^Changes +(.*)$", back.err, re.MULTILINE) == [
        "~ torch 2.13.0+cu126 -> 2.14.1+cu126"
    ]
    assert workshop.lock("pylock.cu126.toml") == after
    workshop.document("env", "prune", "--yes")
    assert workshop.document("env", "rollback", exit_code=2)["errors"][0]["code"] == "no-previous"


def test_a_dry_run_says_what_would_come_and_writes_nothing(workshop, stand_in, play):
    play(RTX_4090)
    data = workshop.document("install", "--dry-run")["data"]
    changes = {change["package"]: change["kind"] for change in data["lock"]["changes"]}
    assert changes["torch"] == "added"
    assert data["plan"]["build"]["backend"] == "cu126"
    assert workshop.entries() == set()
    assert stand_in.sent() == {}


def test_a_kernel_that_fails_leaves_the_old_environment(workshop, play, tmp_path, monkeypatch):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    tell(monkeypatch, tmp_path, {"matmul-float32": "wrong result"})
    envelope = workshop.document("install", "--upgrade", "torch", exit_code=5)
    assert envelope["errors"][0]["code"] == "kernel-failed"
    assert envelope["data"]["verdict"]["status"] == "failed"
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}


@pytest.mark.heavy
def test_a_missing_kernel_sends_the_plan_to_the_next_build_that_differs(
    workshop, play, tmp_path, monkeypatch
):
    play(A100)
    tell(monkeypatch, tmp_path, {"matmul-float32": NO_KERNEL})
    done = workshop.run("install")
    assert done.status == 5
    assert done.err.count("trying the next build") == 2
    assert "[F37]" in done.err
    monkeypatch.setenv("GPUINSTALL_FALLBACK", "0")
    alone = workshop.run("install")
    assert alone.status == 5
    assert "is tried" not in alone.err
    assert workshop.entries() == set()


@pytest.mark.heavy
def test_a_fallback_that_passes_is_the_environment(workshop, play, tmp_path, monkeypatch):
    play(A100)
    tell(monkeypatch, tmp_path, {"matmul-float32": NO_KERNEL}, "2.15.0+cu130/*")
    done = workshop.run("install")
    assert done.status == 0, done.err
    assert "torch 2.15.0+cu130 failed on GPU 0 (NVIDIA A100-SXM4-80GB): matmul-float32" in done.err
    assert done.err.count("Download    ") == 2
    assert workshop.python("import torch; print(torch.__version__)") == "2.14.1+cu126"
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}
    again = workshop.document("install")["data"]
    assert (again["environment"]["status"], again["environment"]["torch"]) == (
        "none",
        "2.14.1+cu126",
    )


@pytest.mark.heavy
def test_the_gpu_whose_kernel_failed_is_named(workshop, play, tmp_path, monkeypatch):
    play(replace(A100, gpus=A100.gpus * 2))
    workshop.document("install", "torch==2.13.0")
    tell(monkeypatch, tmp_path, {"matmul-float32": NO_KERNEL}, uuid_of(1))
    envelope = workshop.document("install", "--upgrade", "torch", exit_code=5)
    assert "failed on GPU 1 (NVIDIA A100-SXM4-80GB)" in envelope["errors"][0]["message"]
    assert [device["status"] for device in envelope["data"]["verdict"]["devices"]] == [
        "passed",
        "failed",
    ]
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu130"
    assert workshop.entries() == {".venv", "pylock.cu130.toml"}


@pytest.mark.heavy
@pytest.mark.parametrize("backend", [(), ("--backend", "cu126")])
def test_a_kernel_that_failed_is_the_error_where_no_other_build_is_left(
    workshop,
    play,
    tmp_path,
    monkeypatch,
    backend,
):
    play(GTX_1080)
    tell(monkeypatch, tmp_path, {"matmul-float32": NO_KERNEL})
    assert (
        workshop.document("install", *backend, exit_code=5)["errors"][0]["code"] == "kernel-failed"
    )
    assert workshop.entries() == set()


def test_a_machine_that_must_be_mended_is_refused_before_any_download(workshop, stand_in, play):
    play(replace(RTX_4090, cu_init=999, nvml_init=0))
    done = workshop.run("install")
    assert done.status == 8, done.err
    assert "--backend cpu: the CPU build instead" in done.err
    assert done.err.count("--backend cpu") == 1
    assert stand_in.log == []
    assert workshop.entries() == set()


@pytest.mark.heavy
def test_a_wheel_exchanged_on_the_index_is_not_installed(workshop, stand_in_folder, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    workshop.document("lock", "torch==2.14.1")
    exchanged = stand_in_folder / "simple"
    (exchanged / "filelock-3.20.0-py3-none-any.whl").unlink()
    make_wheel(exchanged, "filelock", "3.20.0", modules={"filelock/__init__.py": "import os"})
    fresh = replace(workshop, caches=workshop.folder.parent / "other")
    envelope = fresh.document("install", "torch==2.14.1", exit_code=4)
    assert envelope["errors"][0]["code"] == "hash-mismatch"
    assert "filelock" in envelope["errors"][0]["message"]
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"


@pytest.mark.heavy
@pytest.mark.parametrize("moment", [0.3, 0.8, 1.2, 1.6])
def test_kill_9_at_any_moment_leaves_the_old_environment_or_the_new_one(workshop, play, moment):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    running = workshop.start("install", "torch==2.14.1")
    time.sleep(moment)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    version = workshop.python("import torch; print(torch.__version__)")
    assert version in {"2.13.0+cu126", "2.14.1+cu126"}
    data = workshop.document("install", "torch==2.14.1")["data"]
    assert data["environment"]["torch"] == "2.14.1+cu126"
    assert leftovers(workshop) == set()


@pytest.mark.heavy
@pytest.mark.parametrize("stops", [14])
def test_kill_9_at_any_line_of_a_swap_leaves_an_environment_and_the_next_run_cleans_up(
    workshop, play, stops
):
    """``tests.lab.dying`` counts the lines of the room that builds and swaps, and dies at one of them."""
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    for _ in range(2):
        # The first one also keeps the sizes of files: the last lines that it counts come in no other run.
        counted = workshop.dying(10**9, "install", "torch==2.14.1")
        workshop.document("install", "torch==2.13.0")
    total = int(counted.err.rpartition("lines: ")[2])
    for line in range(1, total - 10, total // stops):
        assert workshop.dying(line, "install", "torch==2.14.1").status == -signal.SIGKILL
        held = workshop.python("import torch; print(torch.__version__)")
        assert held in {"2.13.0+cu126", "2.14.1+cu126"}
        workshop.document("install", f"torch=={held.partition('+')[0]}")
        assert f'version = "{held}"' in workshop.lock("pylock.cu126.toml")
        assert leftovers(workshop) == set()
        workshop.document("install", "torch==2.13.0")


@pytest.mark.heavy
@pytest.mark.parametrize("stops", [16])
def test_an_interrupt_at_any_line_of_a_swap_leaves_environment_and_lock_in_step_and_nothing_else(
    workshop, play, stops
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    counted = workshop.dying(10**9, "install", "torch==2.14.1")
    total = int(counted.err.rpartition("lines: ")[2])
    held = "2.14.1"
    for line in range(total // 2, total - 10, total // stops):
        wanted = "2.13.0" if held == "2.14.1" else "2.14.1"
        done = workshop.dying(line, "install", f"torch=={wanted}", number=signal.SIGINT)
        assert done.status == 130, done.err
        build = workshop.python("import torch; print(torch.__version__)")
        assert f'version = "{build}"' in workshop.lock("pylock.cu126.toml")
        assert leftovers(workshop) == set()
        held = build.partition("+")[0]


@pytest.mark.heavy
def test_a_uv_that_outlives_its_killed_run_writes_nothing_into_the_next_one(workshop, play):
    play(RTX_4090)
    running = workshop.start("install", "torch==2.13.0")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while not (
        filling := [
            child for child in map(int, children.read_text().split()) if fills_an_environment(child)
        ]
    ):
        assert running.poll() is None, running.communicate()
    os.kill(filling[0], signal.SIGSTOP)
    running.kill()
    running.communicate()
    workshop.document("install", "torch==2.14.1")
    os.kill(filling[0], signal.SIGCONT)
    while Path(f"/proc/{filling[0]}/exe").exists():
        time.sleep(0.01)
    found = sorted(
        path.name for path in (workshop.folder / ".venv").glob("lib/*/site-packages/torch-*")
    )
    assert found == ["torch-2.14.1+cu126.dist-info"]


def fills_an_environment(child: int) -> bool:
    """Whether this process is uv at work on the packages of an environment that is being made."""
    try:
        words = Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False
    return b"\0pip\0" in words and b".venv.gpuinstall/staging-" in words


@pytest.mark.heavy
def test_what_is_in_uvs_cache_is_not_fetched_again_and_not_said_to_be(workshop, stand_in, play):
    play(RTX_4090)
    names = ("filelock", "nvidia-cudnn-cu12==9.10.2.21", "typing-extensions")
    environment = workshop.folder.parent / "other"
    install = ("pip", "install", "--python", str(environment / "bin" / "python"), *names)
    for words in (("venv", str(environment)), install):
        assert process.run([uv.uv(), *words], env=workshop.environment).ok
    stand_in.forget()
    data = workshop.document("install")["data"]
    assert data["bytes"] == sum(stand_in.sent().values())
    assert {name.partition("-")[0] for name in stand_in.sent()} == {"torch", "triton"}


@pytest.mark.heavy
def test_two_runs_at_once_take_turns(workshop, stand_in, play):
    play(RTX_4090)
    runs = [workshop.start("install", "--json") for _ in range(2)]
    outputs = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    changes = {json.loads(out)["data"]["environment"]["status"] for out, _ in outputs}
    assert changes == {"built", "none"}
    assert wheels_sent_once(stand_in)


@pytest.mark.heavy
def test_a_malformed_requirement_is_a_fault_of_usage_whatever_lies_there(workshop, play):
    play(RTX_4090)
    workshop.document("install")
    for requirement in (
        "torch==",
        "./torch",
        "git+https://index.example/torch",
        "torch @ file:///t",
    ):
        said = workshop.document("install", requirement, exit_code=2)["errors"][0]
        assert said["code"] in {"requirement-malformed", "requirement-by-address"}, requirement
        assert "torch" in said["message"], requirement


@pytest.mark.heavy
def test_a_run_that_fails_leaves_no_folder_that_it_made(workshop, play):
    play(RTX_4090)
    workshop.document("install", "nosuchpackage", "--venv", "below/it/.venv", exit_code=4)
    assert workshop.entries() == set()


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has a file system that not even root may write"
)
def test_a_folder_that_may_not_be_written_is_one_clear_line(workshop, stand_in, play):
    play(RTX_4090)
    done = workshop.run("install", "--venv", "/sys/here/.venv")
    assert done.status == 4
    assert "cannot be written" in done.err
    assert stand_in.sent() == {}


@pytest.mark.heavy
def test_a_package_that_demands_another_torch_is_obeyed_and_named(workshop, stand_in_folder, play):
    play(RTX_4090)
    make_wheel(stand_in_folder / "simple", "needy", "1.0", requires=["torch==2.13.0"])
    done = workshop.run("install", "needy")
    assert done.status == 0, done.err
    assert "needy 1.0 requires torch 2.13.0; without it torch 2.14.1 would run here" in done.err
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    make_wheel(stand_in_folder / "simple", "stubborn", "1.0", requires=["torch==2.15.0"])
    refused = workshop.document("install", "--only", "stubborn", exit_code=3)
    assert "2.15.0" in refused["errors"][0]["message"] + str(refused["errors"][0]["hint"])
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"


@pytest.mark.heavy
def test_a_package_for_newer_systems_alone_is_had_where_this_one_is_new_enough(
    workshop, stand_in_folder, play
):
    play(RTX_4090)
    make_wheel(stand_in_folder / "simple", "modern", "1.0", "py3-none-manylinux_2_31_x86_64")
    workshop.document("install", "torch", "modern")
    assert "modern-1.0" in workshop.lock("pylock.cu126.toml")


@pytest.mark.heavy
def test_credentials_reach_the_index_and_neither_lock_nor_words(stand_in_folder, tmp_path, play):
    play(RTX_4090)
    (tmp_path / "closed").mkdir()
    with StandInIndex(stand_in_folder, Habits(credentials="user:s3cret")) as index:
        workshop = Workshop(tmp_path / "closed", tmp_path / "caches", index.environment())
        done = workshop.run("install", "--verbose")
        assert done.status == 0, done.err
        dry = workshop.run("install", "--upgrade", "--dry-run")
    assert "s3cret" not in done.out + done.err + dry.out + dry.err + workshop.lock(
        "pylock.cu126.toml"
    )
    assert index.default.url in workshop.lock("pylock.cu126.toml")


@pytest.mark.heavy
def test_a_torch_index_behind_a_password_serves_and_keeps_its_secret(
    stand_in_folder, tmp_path, play
):
    play(RTX_4090)
    (tmp_path / "closed").mkdir()
    with StandInIndex(stand_in_folder, Habits(absolute=False)) as index:
        serve = index.torch.respond

        def guarded(path: str, headers: dict[str, str]) -> Answer:
            known = headers.get("authorization") == "Basic " + b64encode(b"user:s3cret").decode()
            return serve(path, headers) if known else UNAUTHORIZED

        index.torch.respond = guarded
        login = index.torch_index.replace("//", "//user:s3cret@")
        workshop = Workshop(
            tmp_path / "closed",
            tmp_path / "caches",
            {**index.environment(), "GPUINSTALL_TORCH_INDEX": login},
        )
        done = workshop.run("install", "--verbose")
        assert done.status == 0, done.err
    assert "s3cret" not in done.out + done.err + workshop.lock("pylock.cu126.toml")


@pytest.mark.heavy
def test_a_full_disk_leaves_the_old_environment(workshop, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    words = [
        "prlimit",
        "--fsize=2000",
        sys.executable,
        "-m",
        "gpuinstall",
        "install",
        "torch==2.14.1",
        "--json",
    ]
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit to make every file that is larger than 2000 bytes fail")
    done = process.run(words, env=workshop.environment, cwd=workshop.folder)
    assert done.status == 4, done.out + done.err
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("name", mostly_heavy(["SIGINT", "SIGTERM", "SIGHUP"], ["SIGINT"]))
def test_an_interrupted_run_leaves_nothing_behind(workshop, stand_in, play, name):
    play(RTX_4090)
    stand_in.r2.pace = 2.0
    running = workshop.start("install")
    while not any(asked.path.endswith(".whl") and asked.method == "GET" for asked in stand_in.log):
        time.sleep(0.05)
    running.send_signal(signal.Signals[name])
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130, said
    assert workshop.entries() == set()


def test_an_unknown_package_is_one_clear_error(workshop, play):
    play(RTX_4090)
    assert (
        workshop.document("install", "nosuchpackage", exit_code=4)["errors"][0]["code"]
        == "package-not-found"
    )
    assert workshop.entries() == set()


@pytest.mark.heavy
def test_requirements_that_conflict_are_not_answered_with_the_cpu_build(workshop, play):
    play(RTX_4090)
    done = workshop.run("install", "torch", "filelock<2", "filelock>3")
    assert done.status == 3
    assert "you require filelock" in " ".join(done.err.split())
    assert "--backend cpu" not in done.err


@pytest.fixture
def dropping() -> Iterator[str]:
    """A host that lets every connection hang, as a firewall does."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full, ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(closing(socket.socket()))
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


@pytest.mark.heavy
def test_an_interrupt_does_not_wait_for_a_host_that_does_not_answer(workshop, play, dropping):
    play(RTX_4090)
    deaf = replace(
        workshop, variables={**workshop.variables, "GPUINSTALL_TORCH_INDEX": f"{dropping}/whl"}
    )
    running = deaf.start("install", "--json")
    assert running.stderr is not None
    while "Preflight" not in running.stderr.readline():
        pass
    time.sleep(0.3)
    with within(2):
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=300)
    assert running.returncode == json.loads(out)["exit_code"] == 130
    assert workshop.entries() == set()


@pytest.mark.parametrize(
    ("host", "silent"),
    [
        ("http://127.0.0.1:9", ("UV_DEFAULT_INDEX", "GPUINSTALL_TORCH_INDEX")),
        pytest.param("http://nowhere.invalid", ("UV_DEFAULT_INDEX",), marks=pytest.mark.heavy),
        pytest.param("dropping", ("UV_DEFAULT_INDEX",), marks=pytest.mark.heavy),
    ],
)
def test_a_silent_default_index_is_found_out_before_uv_asks_it_and_said_once(
    workshop, play, dropping, host, silent
):
    play(RTX_4090)
    address = dropping if host == "dropping" else host
    deaf = replace(
        workshop, variables={**workshop.variables, **dict.fromkeys(silent, f"{address}/simple")}
    )
    with within(8):  # uv alone would be patient for 45 s
        done = deaf.run("install")
    assert done.status == 4, done.err
    assert done.err.count(address.removeprefix("http://")) == 1
    assert "HTTPS_PROXY" in done.err
    assert workshop.entries() == set()


@pytest.mark.heavy
def test_a_lock_is_installed_from_the_caches_where_nobody_answers_and_refused_where_they_lack_a_file(
    workshop, stand_in, play
):
    play(RTX_4090)
    workshop.document("install")
    for host in stand_in.hosts:
        host.close()
    shutil.rmtree(workshop.folder / ".venv")
    assert workshop.document("install")["data"]["environment"]["status"] == "built"
    bare = replace(workshop, caches=workshop.folder.parent / "bare")
    shutil.rmtree(workshop.folder / ".venv")
    done = bare.run("install")
    assert done.status == 4, done.err
    assert "cannot be reached" in done.err
    assert "retries" not in done.err
    assert workshop.entries() == {"pylock.cu126.toml"}


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (["torch==2.15.0", "--gpu", "RTX 5090", "--driver", "570.86"], 3, "driver-too-old"),
        (
            ["torch==2.15.0", "--gpu", "RTX 4090", "--driver", "580.95", "--python", "3.10"],
            3,
            "python-unsupported",
        ),
        (["--gpu", "GTX 980", "--driver", "590.44"], 8, "driver-dropped-gpu"),
    ],
)
def test_a_refusal_by_the_rules_is_the_same_without_a_network(workshop, words, status, code):
    nowhere = {
        "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple",
        "GPUINSTALL_TORCH_INDEX": "http://127.0.0.1:9/whl",
    }
    deaf = replace(workshop, variables={**workshop.variables, **nowhere})
    assert deaf.document("plan", *words, exit_code=status)["errors"][0]["code"] == code


@pytest.mark.heavy
def test_a_card_that_the_job_was_not_given_is_named_as_unproven_and_hinders_nothing(workshop, play):
    play(
        FakeDriver(
            (FakeGpu(), FakeGpu("NVIDIA GeForce GTX 1080", cc="6.1")),
            driver="535.183.01",
            cuda=12020,
        )
    )
    job = replace(
        workshop, variables={**workshop.variables, "SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "0"}
    )
    done = job.run("install", "--json")
    assert done.status == 0, done.err
    devices = json.loads(done.out)["data"]["verdict"]["devices"]
    assert {device["name"]: device["status"] for device in devices} == {
        "NVIDIA GeForce RTX 4090": "passed",
        "NVIDIA GeForce GTX 1080": "unproven",
    }
    warning = next(line for line in done.err.splitlines() if "unproven" in line)
    assert "GTX 1080" in warning


@pytest.mark.heavy
def test_two_runs_at_once_lose_nothing_of_what_either_adds(workshop, stand_in, play):
    play(RTX_4090)
    workshop.document("install")
    stand_in.default.pace = 0.2
    first = workshop.start("install", "cowsay", "--json")
    while not (workshop.folder / ".venv.gpuinstall" / "owner").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    second = workshop.start("install", "numpy", "--json")
    outputs = [run.communicate(timeout=300) for run in (first, second)]
    assert [run.returncode for run in (first, second)] == [0, 0], outputs
    assert workshop.python("import cowsay, numpy, torch; print('all')") == "all"
    assert {"cowsay", "numpy"} <= set(re.findall(r'"(\w+)"', workshop.lock("pylock.cu126.toml")))


@pytest.mark.heavy
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_an_environment_whose_torch_is_damaged_is_never_called_proven_and_is_built_again(
    workshop, play, damage
):
    play(RTX_4090)
    workshop.document("install")
    [library] = (workshop.folder / ".venv").glob("lib/*/site-packages/torch/__init__.py")
    whole = library.read_bytes()
    library.unlink()
    if damage == "cut":
        library.write_bytes(whole[:-1])
    assert "nothing was changed" in workshop.run("install", "--dry-run").out
    assert workshop.document("install")["data"]["environment"]["status"] == "built"
    assert workshop.python("import torch; print(torch.__version__)") == "2.14.1+cu126"
    assert workshop.document("install")["data"]["environment"]["status"] == "none"


@pytest.mark.heavy
def test_a_library_that_lacks_what_it_needs_is_refused_before_anything_is_imported(
    workshop, stand_in_folder, tmp_path, play
):
    play(RTX_4090)
    assert workshop.run("install").ok
    before = workshop.lock("pylock.cu126.toml")
    for name, library in (("speech", "libcublas.so.12"), ("sound", "libnothere.so.1")):
        built = native_library(tmp_path / name / "o.so", needs=[library]).read_bytes()
        tags = "py3-none-manylinux_2_28_x86_64"
        make_wheel(stand_in_folder / "simple", name, "1.0", tags, modules={f"{name}/o.so": built})
    make_wheel(stand_in_folder / "simple", "wraps-sound", "1.0", requires=["sound"])

    error = workshop.document("install", "speech", exit_code=4)["errors"][0]
    assert error["code"] == "library-not-loadable"
    assert "speech/o.so of speech needs libcublas.so.12" in error["message"]
    assert error["hint"] == "Request nvidia-cublas-cu12 too"
    assert workshop.lock("pylock.cu126.toml") == before
    assert not leftovers(workshop)

    done = workshop.run("install", "wraps-sound")
    assert done.ok, done.err
    assert "sound/o.so of sound needs libnothere.so.1" in done.err
