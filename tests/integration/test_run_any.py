"""``gpuinstall run --any``: several environments in one folder, and each machine starts in its own."""

import os
import shutil

import pytest

from tests.lab.driver import NO_GPU, FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.workshop import Workshop

RTX_3090 = FakeGpu(
    "NVIDIA GeForce RTX 3090", cc="8.6", memory_mib=24576, pci="10de:2204"
)
OLD_DRIVER = FakeDriver((RTX_3090,), driver="535.183.01", cuda=12020)
NEW_DRIVER = FakeDriver((RTX_3090,))
RTX_5090 = FakeDriver(
    (FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", pci="10de:2b85"),),
    driver="570.86.10",
    cuda=12080,
)
MISMATCH = FakeDriver((RTX_3090,), nvml_init=18)
CODE = "import os, torch; print(os.path.basename(os.environ['VIRTUAL_ENV']), torch.__version__)"


@pytest.fixture(scope="module")
def stand_in(catalog_wheels):
    with StandInIndex(catalog_wheels) as served:
        yield served


@pytest.fixture(scope="module")
def made(
    stand_in,
    libraries,  # noqa: ARG001
    tmp_path_factory,
):
    """A folder with locks for CUDA 12.6, 13.0 and the CPU, and an environment of each GPU's."""
    folder = tmp_path_factory.mktemp("shared") / "project"
    folder.mkdir()
    workshop = Workshop(folder, folder.parent / "caches", stand_in.environment())
    workshop.document(
        "lock",
        "torch==2.10.0",
        *(f"--target={target}" for target in ("cu126", "cu130", "cpu")),
    )
    for target in ("cu126", "cu130"):
        workshop.document("sync", "--target", target, "--venv", f".venv-{target}")
    return workshop


@pytest.fixture
def workshop(made, tmp_path):
    """The same folder, on a machine that was not proven yet."""
    return made.having(XDG_CACHE_HOME=str(tmp_path / "cache"))


def started(workshop, *options):
    return workshop.run("run", "--any", *options, "python", "-c", CODE)


def test_each_machine_starts_in_the_environment_whose_lock_fits_its_driver(
    workshop, play
):
    play(OLD_DRIVER)
    assert started(workshop).out == ".venv-cu126 2.10.0+cu126\n"
    play(NEW_DRIVER)
    done = started(workshop)
    assert (done.status, done.out) == (0, ".venv-cu130 2.10.0+cu130\n")
    assert "Environment .venv-cu130: torch 2.10.0+cu130" in done.err


@pytest.mark.heavy
def test_what_was_proven_starts_at_once_until_something_changes(
    workshop, play, tmp_path
):
    def checks():
        done = started(workshop)
        assert done.out == ".venv-cu130 2.10.0+cu130\n", done.err
        return "Environment" in done.err

    play(NEW_DRIVER)
    (record,) = (workshop.folder / ".venv-cu130").glob(
        "lib/python*/site-packages/torch-*.dist-info/RECORD"
    )

    assert [checks(), checks()] == [True, False]
    os.utime(record)
    assert [checks(), checks()] == [True, False], "it is proven anew"
    shutil.rmtree(tmp_path / "cache" / "gpuinstall" / "stamps")
    assert checks()


def test_a_kernel_that_fails_starts_nothing(workshop, play, tmp_path):
    play(NEW_DRIVER)
    verdict = tmp_path / "verdict.json"
    verdict.write_text(
        '{"*": {"failed": {"matmul-float32": "CUDA error: an illegal memory access"}}}',
        "utf-8",
    )
    failing = workshop.having(LAB_VERDICT=str(verdict))
    done = started(failing)
    assert (done.status, done.out) == (5, "")
    assert started(workshop).status == 0, "nothing was kept of it"


@pytest.mark.parametrize(
    ("driver", "status", "said"),
    [
        (MISMATCH, 8, "sudo reboot"),
        (RTX_5090, 3, "pylock.cu126.toml: "),
        (NO_GPU, 8, "there is no GPU in this machine or container"),
    ],
    ids=["a driver to repair", "no code for the card", "no GPU"],
)
def test_where_no_lock_runs_the_cause_is_said_and_nothing_is_started(
    workshop, play, driver, status, said
):
    play(driver)
    done = started(workshop)
    assert (done.status, done.out) == (status, "")
    assert said in done.err


@pytest.mark.heavy
@pytest.mark.parametrize(
    "driver",
    [NO_GPU, MISMATCH, RTX_5090],
    ids=["no GPU", "a driver to repair", "no code"],
)
def test_the_cpu_is_taken_only_where_it_is_allowed_and_installed_where_that_is_said(
    workshop, play, driver, monkeypatch
):
    play(driver)
    monkeypatch.setenv("GPUINSTALL_ALLOW_CPU", "1")
    missing = started(workshop, "--no-proof")
    assert missing.status == 2
    assert (
        f"gpuinstall sync --target cpu --venv {workshop.folder / '.venv-cpu'}"
        in missing.err
    )
    done = started(workshop, "--install")
    assert (done.status, done.out) == (0, ".venv-cpu 2.10.0+cpu\n"), done.err
    shutil.rmtree(workshop.folder / ".venv-cpu")


def test_what_lies_in_the_place_of_an_environment_is_refused_and_kept(workshop, play):
    play(NEW_DRIVER)
    venv, ours = workshop.folder / ".venv-cu130", workshop.folder / "ours"
    previous = workshop.folder / ".venv-cu130.gpuinstall" / "previous"
    venv.rename(ours)
    try:
        (venv / "thesis").mkdir(parents=True)
        (venv / "thesis" / "chapter").touch()
        refused = started(workshop, "--install", "--no-proof")
        assert (refused.status, refused.out) == (2, "")
        assert "it has files that no installer wrote: thesis" in refused.err
        assert f"gpuinstall sync --target cu130 --venv {venv} --replace" in refused.err
        assert (venv / "thesis" / "chapter").exists()
        sync = workshop.run(
            "sync", "--target", "cu130", "--venv", str(venv), "--replace"
        )
        assert sync.status == 0, sync.err
        done = started(workshop, "--no-proof")
        assert (done.status, done.out) == (0, ".venv-cu130 2.10.0+cu130\n"), done.err
        assert (previous / "thesis" / "chapter").exists()
        assert (
            f"thesis, which no installer wrote, with the replaced environment: in {previous}"
            in sync.err
        )
    finally:
        shutil.rmtree(venv)
        shutil.rmtree(previous.parent, ignore_errors=True)
        ours.rename(venv)


def test_a_link_out_of_the_folder_is_refused_with_what_removes_it(
    workshop, play, tmp_path
):
    play(NEW_DRIVER)
    venv = workshop.folder / ".venv-cu130"
    venv.rename(tmp_path / "elsewhere")
    venv.symlink_to(tmp_path / "elsewhere")
    try:
        for options in ((), ("--install",)):
            done = started(workshop, *options)
            assert (done.status, done.out) == (2, ""), options
            assert f"do    rm {venv}" in done.err
            assert f"{venv} is a link to {tmp_path / 'elsewhere'}" in " ".join(
                done.err.split()
            )
    finally:
        venv.unlink()
        (tmp_path / "elsewhere").rename(venv)


def test_equal_files_of_two_environments_are_one_on_the_disk(made):
    venvs = (made.folder / f".venv-{tag}" for tag in ("cu126", "cu130"))
    first, second = (
        next(venv.rglob("site-packages/pip/__init__.py")) for venv in venvs
    )
    assert first.samefile(second)
