"""``sync`` on the lab's machines, out of one folder of locks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.frozen import FOLDER
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.pace import within
from tests.lab.workshop import Workshop

GTX_1080 = FakeDriver(
    (FakeGpu("NVIDIA GeForce GTX 1080", cc="6.1", memory_mib=8192, pci="10de:1b80"),)
)
A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2"),))
RTX_5090 = FakeDriver(
    (FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", pci="10de:2b85"),),
    driver="570.86.10",
    cuda=12080,
)
NOTHING = FakeDriver(nvml_missing=True, cu_missing=True)


@pytest.fixture(scope="module")
def stand_in(catalog_wheels: Path) -> Iterator[StandInIndex]:
    with StandInIndex(catalog_wheels) as served:
        yield served


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path) -> Workshop:
    folder = tmp_path / "project"
    folder.mkdir()
    return Workshop(folder, tmp_path / "caches", stand_in.environment())


def lock(workshop: Workshop, *targets: str, torch: str = "torch"):
    workshop.document("lock", torch, *(word for target in targets for word in ("--target", target)))


@pytest.fixture(scope="module")
def locks(stand_in: StandInIndex, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four locks of torch 2.10.0."""
    folder = tmp_path_factory.mktemp("locks")
    lock(
        Workshop(folder, tmp_path_factory.mktemp("caches"), stand_in.environment()),
        *("cu126", "cu128", "cu130", "cpu"),
        torch="torch==2.10.0",
    )
    return sorted(folder.iterdir())


@pytest.fixture
def team(workshop: Workshop, locks: list[Path]) -> Workshop:
    """A folder with the four locks."""
    for file in locks:
        shutil.copy2(file, workshop.folder)
    return workshop


@pytest.mark.parametrize(
    ("driver", "chosen"),
    [
        pytest.param(GTX_1080, "cu126", marks=pytest.mark.heavy),
        (A100, "cu130"),
        pytest.param(RTX_5090, "cu128", marks=pytest.mark.heavy),
        (NOTHING, "cpu"),
    ],
)
def test_each_machine_takes_its_own_lock_and_says_why_not_the_others(team, play, driver, chosen):
    play(driver)
    data = team.document("sync")["data"]
    assert data["chosen"] == f"pylock.{chosen}.toml"
    assert data["environment"]["torch"] == f"2.10.0+{chosen}"
    assert data["verdict"]["status"] == "passed"
    assert all(each["message"] for each in data["rejected"])
    assert {each["lock"] for each in data["rejected"]} <= {
        f"pylock.{name}.toml" for name in ("cu126", "cu128", "cu130", "cpu")
    }


def test_a_sync_with_nothing_to_do_asks_nobody(team, stand_in, play):
    play(A100)
    team.document("sync")
    stand_in.forget()
    assert team.document("sync")["data"]["environment"]["status"] == "none"
    assert stand_in.log == []


HEAVY = {
    "ctypes",
    "email",
    "gpuinstall.install.stage",
    "gpuinstall.wheels.learned.reader",
    "gpuinstall.lock.document",
    "gpuinstall.lock.making",
    "gpuinstall.lock.transfer",
    "gpuinstall.verify.cover",
    "html.parser",
    "http.client",
    "pynvml",
    "requests",
    "rich",
    "socket",
    "ssl",
    "urllib.request",
    "zipfile",
}


def test_nothing_heavy_is_imported_if_nothing_is_to_do(team, play):
    play(A100)
    team.document("sync")
    heavy = {}
    # With --venv a start is checked in full each time.
    for words in (("sync",), ("install",), ("run", "--venv", ".venv", "true")):
        program = [sys.executable, "-X", "importtime", str(FOLDER)]
        done = subprocess.run(
            [*program, *words],
            env=team.environment,
            cwd=team.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        modules = set(re.findall(r"^import time:.*\| +([\w.]+)$", done.stderr, re.MULTILINE))
        assert "gpuinstall.lock.fit" in modules
        if HEAVY & modules:
            heavy[words[0]] = sorted(HEAVY & modules)
    assert heavy == {}


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("driver", "code"),
    [
        (replace(A100, cu_init=803), "driver-library-mismatch"),
        (replace(GTX_1080, driver="590.48.01", cuda=13010), "driver-dropped-gpu"),
    ],
)
def test_a_machine_that_must_be_mended_is_the_fault_and_not_its_locks(
    team, stand_in, play, driver, code
):
    play(driver)
    stand_in.forget()
    assert team.document("sync", exit_code=8)["errors"][0]["code"] == code
    assert stand_in.log == []


@pytest.mark.heavy
def test_an_updated_lock_is_installed(team, play):
    play(A100)
    team.document("sync")
    for name in ("cu126", "cu128", "cpu"):
        (team.folder / f"pylock.{name}.toml").unlink()
    lock(team, "cu130", torch="torch==2.14.1")
    assert team.document("sync")["data"]["environment"]["torch"] == "2.14.1+cu130"


def test_without_a_lock_that_fits_nothing_is_made(workshop, play):
    play(GTX_1080)
    assert workshop.document("sync", exit_code=6)["errors"][0]["code"] == "lock-missing"
    lock(workshop, "cu130")
    data = workshop.document("sync", exit_code=6)["data"]
    assert (data["chosen"], [each["lock"] for each in data["rejected"]]) == (
        None,
        ["pylock.cu130.toml"],
    )
    done = workshop.run("sync")
    assert done.status == 6
    assert "pylock.cu130.toml: " in done.err
    assert "sm_61" in done.err
    assert workshop.entries() == {"pylock.cu130.toml"}


@pytest.mark.heavy
def test_a_target_is_obeyed_where_the_machine_cannot_say(team, play):
    play(NOTHING)
    data = team.document("sync", "--target", "cu126")["data"]
    assert (data["chosen"], data["verdict"]["status"]) == ("pylock.cu126.toml", "unproven")
    play(GTX_1080)
    assert team.document("sync")["data"]["environment"]["status"] == "proven"


@pytest.mark.heavy
def test_the_cpu_lock_is_taken_where_a_gpu_is_only_if_it_is_asked_for(workshop, play):
    play(A100)
    lock(workshop, "cpu")
    assert (
        workshop.document("sync", exit_code=6)["data"]["rejected"][0]["lock"] == "pylock.cpu.toml"
    )
    data = workshop.document("sync", "--target", "cpu")["data"]
    assert (data["chosen"], data["verdict"]["devices"][0]["name"]) == ("pylock.cpu.toml", "CPU")


@pytest.mark.heavy
def test_a_lock_of_somebody_elses_making_is_read(team, play):
    play(NOTHING)
    text = team.lock("pylock.cpu.toml")
    for path in team.folder.glob("pylock.*.toml"):
        path.unlink()
    foreign = text.replace('created-by = "gpuinstall"', 'created-by = "uv"').partition(
        "[tool.gpuinstall]"
    )[0]
    python = next(line for line in foreign.splitlines() if line.startswith("requires-python"))
    (team.folder / "pylock.toml").write_text(
        foreign.replace(python, 'requires-python = ">=3.10"'), encoding="utf-8"
    )
    data = team.document("sync")["data"]
    assert (data["chosen"], data["environment"]["torch"]) == ("pylock.toml", "2.10.0+cpu")


@pytest.mark.heavy
def test_a_lock_that_was_tampered_with_is_refused_and_the_environment_stays(workshop, play):
    play(A100)
    lock(workshop, "cu126", torch="torch==2.13.0")
    workshop.document("sync")
    lock(workshop, "cu126", torch="torch==2.14.1")
    path = workshop.folder / "pylock.cu126.toml"
    text = path.read_text(encoding="utf-8")
    tampered = [
        (text[:-200], "lock-malformed", 6),
        (text.replace('lock-version = "1.0"', 'lock-version = "9.0"'), "lock-version", 6),
        (text.replace("/torch-2", "/..%2F..%2Ftorch-2"), "lock-malformed", 6),
        (re.sub('sha256 = "....', 'sha256 = "0000', text, count=1), "hash-mismatch", 4),
        (re.sub('sha256 = "....', 'sha256 = "', text, count=1), "lock-malformed", 6),
    ]
    for changed, code, exit_code in tampered:
        path.write_text(changed, encoding="utf-8")
        assert workshop.document("sync", exit_code=exit_code)["errors"][0]["code"] == code
        assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"


def test_a_folder_of_wheels_serves_without_a_network(team, stand_in, play, tmp_path):
    play(A100)
    files = team.document("lock", "download", str(tmp_path / "wheels"))["data"]["files"]
    assert {path.name for path in (tmp_path / "wheels").iterdir()} == set(files)
    stand_in.forget()
    elsewhere = replace(team, caches=tmp_path / "empty")
    data = elsewhere.document("sync", "--offline", "--wheels", str(tmp_path / "wheels"))["data"]
    assert data["environment"]["torch"] == "2.10.0+cu130"
    assert stand_in.log == []


@pytest.mark.heavy
def test_without_a_network_and_without_wheels_it_ends_in_seconds(team, play, tmp_path):
    play(A100)
    with within(10):
        done = replace(team, caches=tmp_path / "empty").run("sync", "--offline")
    assert done.status == 4, done.err
    assert ".venv" not in team.entries()
