"""``--cuda-compat`` on the lab's machines: a newer libcuda above an old driver, fetched, tried, used and off again."""

import json
import os
import shutil
import time
from contextlib import closing
from dataclasses import replace

import pytest
import tomli

from tests.lab.cuda_compat import (
    REFUSING,
    SLOW,
    WITHOUT_CONTEXT,
    Redistributables,
    make_libraries,
    make_tar,
)
from tests.lab.driver import A100, NO_GPU, FakeDriver, FakeGpu
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

V100 = FakeGpu(
    "NVIDIA Tesla V100-SXM2-16GB", cc="7.0", memory_mib=16384, pci="10de:1db1"
)
RTX_4090 = FakeGpu()
OLD = FakeDriver((A100, A100), driver="550.163.01", cuda=12040)
UPDATED = FakeDriver((A100, A100), driver="590.48.01", cuda=13010)
LOCK = "pylock.cu130.toml"
PATH = "import os; print(os.environ.get('LD_LIBRARY_PATH', '').split(':')[0])"


@pytest.fixture
def workshop(workshop, play):
    play(OLD)
    return workshop


@pytest.fixture
def archive(tmp_path, libraries):  # noqa: ARG001  (compiles, or skips)
    return make_tar(make_libraries(tmp_path / "580"), tmp_path / "cuda-compat.tar.xz")


@pytest.fixture
def nvidia(archive):
    with closing(Redistributables(archive.read_bytes())) as host:
        yield host


def given(workshop, place):
    """The workshop of a user whose variable names a place for the libraries."""
    return workshop.having(GPUINSTALL_CUDA_COMPAT_FROM=str(place))


def loaded(workshop, *options):
    """What a program that ``run`` starts has first on its way to libraries."""
    return workshop.run("run", *options, "python", "-c", PATH)


def compat_evidence(workshop):
    """What the lock records of the libraries."""
    return tomli.loads(workshop.lock(LOCK))["tool"]["gpuinstall"]["cuda-compat"]


def said_by(done):
    return " ".join((done.err + done.out).split())


def test_the_newest_torch_runs_on_an_old_driver(workshop, nvidia, play):
    refused = workshop.run("install", "torch>=2.15")
    assert (
        "do gpuinstall install 'torch>=2.15' --cuda-compat # torch 2.15.0+cu130"
        in said_by(refused)
    )
    done = given(workshop, nvidia.manifest).run("install", "--cuda-compat")

    said = said_by(done)
    assert done.status == 0, said
    assert "-archive.tar.xz · " in said, "it is named before it is fetched"
    assert "licence: NVIDIA Driver" in said
    assert "torch 2.15.0+cu130" in said
    assert "Ready gpuinstall run python" in said
    assert "activate" not in said
    folder = workshop.folder / ".cuda-compat"
    assert (folder / "libcuda.so.580.95.05").is_file()
    assert not list(workshop.caches.rglob("libcuda*"))

    evidence = compat_evidence(workshop)
    assert (evidence["driver"], len(evidence["sha256"])) == ("580.95.05", 64)
    assert evidence["url"].startswith(nvidia.url)
    assert loaded(workshop).out == f"{folder}\n"
    play(UPDATED)
    updated = loaded(workshop)
    assert updated.status == 0
    assert updated.out != f"{folder}\n"
    assert "off: the driver serves CUDA 13.1, and it CUDA 13.0" in said_by(updated)
    play(FakeDriver((RTX_4090,), driver="550.163.01", cuda=12040))
    geforce = loaded(workshop)
    assert geforce.status == 6
    assert "off: cuda-compat is for data-centre GPUs" in said_by(geforce)


@pytest.mark.heavy
def test_every_command_and_a_colleague_know_the_libraries(workshop, nvidia, tmp_path):
    given(workshop, nvidia.manifest).succeed("install", "--cuda-compat")
    folder = workshop.folder / ".cuda-compat"
    installed = workshop.run("run", "--any", "--install", "python", "-c", PATH)
    assert installed.out == f"{folder}\n", installed.err
    step = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "CUDA_VISIBLE_DEVICES": "1"}
    in_step = workshop.having(**step)
    assert loaded(in_step, "--any").out == f"{folder}\n"

    commands = ("probe", "plan", "verify", "doctor")
    said = {command: said_by(workshop.succeed(command)) for command in commands}
    assert "CUDA 13.0 by cuda-compat" in said["probe"]
    assert "torch 2.15.0+cu130" in said["plan"]
    assert workshop.document("install")["data"]["environment"]["status"] == "none"

    theirs = Workshop.made(tmp_path / "theirs", workshop.variables)
    shutil.copy(workshop.folder / LOCK, theirs.folder)
    refused = theirs.run("sync")
    assert refused.status != 0
    assert "gpuinstall sync --cuda-compat # as the lock was made" in said_by(refused)
    done = theirs.succeed("sync", "--cuda-compat")
    assert f"{nvidia.url}/redist/cuda_compat" in said_by(done)
    assert loaded(theirs).out == f"{theirs.folder / '.cuda-compat'}\n"


def test_an_image_is_built_without_gpus_and_each_start_decides(workshop, archive, play):
    play(NO_GPU)
    given(workshop, archive).succeed(
        "install", "numpy", "--backend", "cu130", "--cuda-compat"
    )
    folder = workshop.folder / ".cuda-compat"
    again = loaded(workshop)
    assert again.status == 0
    assert "cuda-compat" not in again.err, "a login node has nothing to say of it"
    play(OLD)
    # On another host the files are copies; what only looks loads none of them.
    shutil.move(folder, f"{folder}.built")
    shutil.copytree(f"{folder}.built", folder)
    assert loaded(workshop).out == f"{folder}\n"
    removed = workshop.run("remove", "numpy", "--dry-run")
    assert "CUDA 13.0 by cuda-compat" in said_by(removed)
    assert "off: " in said_by(workshop.run("plan"))
    play(replace(OLD, gpus=(RTX_4090,)))
    assert loaded(workshop).status == 6


def test_what_cannot_be_used_is_not_kept(
    workshop,
    tmp_path,
    play,
):
    rows = [
        (OLD, {"fault": REFUSING.format(803)}, "its cuInit returned 803"),
        (
            OLD,
            {"fault": WITHOUT_CONTEXT},
            "CUDA reports an unknown error with it (CUDA error 999",
        ),
        (
            FakeDriver((RTX_4090,), driver="550.54.14", cuda=12040),
            {},
            "not for GeForce RTX 4090",
        ),
        (
            FakeDriver((V100,), driver="550.54.14", cuda=12040),
            {"driver": "590.48.01", "cuda": 13010},
            "cuda-compat 13.1, which is of driver 590, no longer drives Volta",
        ),
    ]
    wrong = []
    for number, (driver, facts, expected) in enumerate(rows):
        play(driver)
        folder = make_libraries(tmp_path / str(number), **facts)  # type: ignore[arg-type]
        done = given(workshop, folder).run("install", "--cuda-compat")
        said = " ".join(done.err.split())
        if done.status != 8 or expected not in said or workshop.entries():
            wrong.append((expected, done.status, said, workshop.entries()))

    assert wrong == []


def test_a_folder_of_others_in_the_place_of_the_libraries_stays(workshop, archive):
    users = workshop.folder / ".cuda-compat"
    users.mkdir()
    (users / "notes.txt").touch()

    refused = given(workshop, archive).document("install", "--cuda-compat", exit_code=2)

    assert refused["errors"][0]["code"] == "others-libraries"
    assert (users / "notes.txt").exists()


@pytest.mark.parametrize(
    "keeps_record", [pytest.param(False, marks=pytest.mark.heavy), True]
)
def test_libraries_of_others_in_the_same_place_are_not_loaded(
    workshop, tmp_path, *, keeps_record
):
    """A home that outlives the folder: the record names the archive's hash, which everybody knows."""
    own = str(make_libraries(tmp_path / "580"))
    given(workshop, own).succeed("install", "--cuda-compat")
    folder = workshop.folder / ".cuda-compat"
    record = json.loads((folder / "cuda-compat.json").read_text())
    loaded_by = tmp_path / "loaded"
    opening = f'FILE *file = fopen("{loaded_by}", "w"); if (file) fclose(file);'
    loading = f"int cuInit(unsigned flags) {{ (void)flags; {opening} return 0; }}"
    strangers = make_libraries(tmp_path / "stranger", fault=loading)
    shutil.rmtree(folder)
    shutil.copytree(strangers, folder, symlinks=True)
    if not keeps_record:
        record = {key: record[key] for key in ("driver", "sha256", "address", "path")}
    (folder / "cuda-compat.json").write_text(json.dumps(record))

    wrong = []
    for command in ("probe", "plan", "lock", "doctor"):
        said = said_by(workshop.run(command))
        if "was not unpacked there for this user" not in said or loaded_by.exists():
            wrong.append((command, said, loaded_by.exists()))
            loaded_by.unlink(missing_ok=True)

    assert wrong == []


def test_a_killed_run_leaves_nothing_in_the_folder(workshop, tmp_path):
    slow = make_libraries(tmp_path / "slow", fault=SLOW)
    running = given(workshop, slow).start("install", "--cuda-compat")
    deadline = time.monotonic() + 60
    while not list(workshop.caches.rglob("libcuda.so.1")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.kill()
    running.communicate()
    assert workshop.entries() == set()
    (left,) = workshop.caches.rglob("libcuda.so.1")
    os.utime(left.parent.parent / "in-use", (0, 0))

    workshop.succeed("install")
    assert not left.exists()


@pytest.mark.heavy
def test_the_libraries_serve_every_environment_and_stay(workshop, tmp_path):
    libraries = str(make_libraries(tmp_path / "580"))
    given(workshop, libraries).succeed("install", "--cuda-compat")
    evidence = compat_evidence(workshop)
    workshop.succeed("lock", "torch", "torchvision")
    assert compat_evidence(workshop) == evidence
    workshop.succeed("install", "--venv", "other")

    for venv in (".venv", "other"):
        workshop.succeed("env", "remove", "--yes", "--venv", venv)
    assert workshop.entries() == {LOCK, ".cuda-compat"}


def test_a_dry_run_is_refused_and_plan_shows_what_it_would(workshop):
    refused = workshop.run("install", "--cuda-compat", "--dry-run")

    assert refused.status == 2
    assert "without --dry-run" in said_by(refused)
    assert workshop.entries() == set()
    assert "torch 2.15.0+cu130" in said_by(workshop.run("plan"))


def test_a_cut_and_a_changed_archive_are_refused(workshop, archive):
    whole = archive.read_bytes()
    changed = bytes([*whole[:-1], whole[-1] ^ 1])
    rows = [(whole[:-100], "length"), (changed, "hash-mismatch")]
    codes = []
    for served, _ in rows:
        with closing(Redistributables(served, listed=whole)) as host:
            refused = given(workshop, host.manifest).run(
                "install", "--cuda-compat", "--json"
            )
        codes.append(json.loads(refused.out)["errors"][0]["code"])

    assert codes == [code for _, code in rows]
    assert workshop.entries() == set()
    archive.write_bytes(whole[:-100])
    refused = given(workshop, archive).run("install", "--cuda-compat", "--json")
    assert json.loads(refused.out)["errors"][0]["code"] == "cuda-compat-archive"


def test_libraries_come_before_a_pin_gives_way(workshop, archive, stand_in_folder):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "painter", "1", requires=["brush>=2", "torch"])
    for version in ("1", "2"):
        make_wheel(simple, "brush", version)
    both = ("--relax", "--cuda-compat")

    given(workshop, archive).succeed(
        "install", "torch==2.15.0", "painter==1", "brush==1", *both
    )
    lock = tomli.loads(workshop.lock(LOCK))["tool"]["gpuinstall"]
    assert lock["relaxed"] == {"brush": "brush==1"}
    assert lock["cuda-compat"]["driver"] == "580.95.05"
