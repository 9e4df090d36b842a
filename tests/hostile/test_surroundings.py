"""Tests with unusual programs, caches, home folders, and disks."""

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from gpuinstall.base import process
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.cli.self import remove_tool
from gpuinstall.install.removal import remove
from tests.lab.clone import ROOT
from tests.lab.environments import packages, put_package
from tests.lab.index import IndexBehavior
from tests.lab.mounts import mounted
from tests.lab.programs import write_program
from tests.unit.install.environments import make_environment

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="requires Linux links, owners, and mounts"
)

SECRET = "s3cr3t-w0rd"


def small_disk(place, size):
    """Mount a file system of this size."""
    return mounted(place, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")


def traces(folder):
    """Return the files in a folder that contain the secret."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.heavy
@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root can change a file's owner")
def test_other_users_programs_in_sticky_directories_are_ignored(
    here, stand_in, tmp_path
):
    for name in (
        "git",
        "keyring",
        "nvcc",
        "python3",
        "sinfo",
        "srun",
        "uv",
    ):
        write_program(tmp_path / "bin" / name, f'echo "$0 $*" >> {tmp_path / "ran"}')
    (tmp_path / "bin").chmod(0o1777)
    for program in (tmp_path / "bin").iterdir():
        os.chown(program, 12345, -1)
    record = tmp_path / "record" / "gpuinstall-0.1.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: gpuinstall\nVersion: 0.1\n"
    )
    (record / "direct_url.json").write_text(json.dumps({"url": ROOT.as_uri()}))
    variables = {
        **here.variables,
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (record.parent, ROOT))),
        "UV_KEYRING_PROVIDER": "subprocess",
        "UV_DEFAULT_INDEX": stand_in.default_index.replace("//", "//user@"),
    }
    careful = replace(here, variables=variables)
    for words in (
        "probe",
        "doctor",
        "lock --target cpu",
        "self update",
    ):
        careful.started(*words.split())
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


@pytest.mark.heavy
def test_links_in_temporary_folders_are_not_followed(here, tmp_path):
    temporary, victim = tmp_path / "temporary", tmp_path / "victim"
    temporary.mkdir()
    victim.write_text("mine", "utf-8")
    temporary.chmod(0o777)
    one = here.having(TMPDIR=str(temporary))
    (one.folder / "usual").mkdir()
    assert replace(one, folder=one.folder / "usual").run("install").status == 0
    guessed = {entry.name for entry in temporary.iterdir()} | {
        f"uv-{number:016x}.lock" for number in range(9)
    }
    for number, name in enumerate(sorted(guessed)):
        (temporary / name).unlink(missing_ok=True)
        (temporary / name).symlink_to(
            victim if number % 2 else tmp_path / f"absent-{number}"
        )
    assert one.run("install").status == 0
    assert victim.read_text("utf-8") == "mine"
    assert not list(tmp_path.glob("absent-*"))


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_temporary_files_are_private(here, tmp_path, mode):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(mode)
    program = tmp_path / "programs" / "python"
    write_program(program, f'echo "$TMPDIR" > {tmp_path}/told\nexit 9')
    one = here.having(TMPDIR=str(temporary))
    one.run("verify", "--python", str(program))
    told = (tmp_path / "told").read_text("utf-8").strip()
    safe = here.caches / "xdg" / "gpuinstall" / "temporary"
    assert told == str(safe if mode == 0o777 else temporary)
    assert mode == 0o1777 or safe.stat().st_mode & 0o777 == 0o700


@pytest.mark.heavy
def test_secrets_are_never_printed_or_written(here, stand_in, tmp_path):
    login = f"me:{SECRET}"
    stand_in.habits = IndexBehavior(credentials=login, torch_credentials=login)
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login me password {SECRET}\n", "utf-8")
    netrc.chmod(0o600)
    known = here.having(NETRC=str(netrc))
    runs = [
        known.run(*words, "--verbose")
        for words in (("install",), ("lock", "check"), ("env", "list"))
    ]
    assert [done.status for done in runs] == [0, 0, 0], runs[0].err
    assert not any(SECRET in done.out + done.err for done in runs)
    assert traces(here.folder) == []
    assert traces(here.caches) == []


def test_undeletable_tool_directory_is_reported(tmp_path):
    home = tmp_path / "disk" / "gpuinstall"
    with small_disk(home.parent, "100k"):
        (home / "bin").mkdir(parents=True)
        for name in ("bin/gpuinstall", "notes"):
            (home / name).touch()
        process.run(["mount", "-o", "remount,ro", home.parent])
        with pytest.raises(
            InstallationError, match=r"bin/gpuinstall in .* cannot be removed"
        ):
            remove_tool(home, Reporter())
        process.run(["mount", "-o", "remount,rw", home.parent])
        remove_tool(home, Reporter())
        assert [path.name for path in home.iterdir()] == ["notes"]


def test_environment_can_be_removed_on_full_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    disk = tmp_path / "disk"
    for name, size in {
        "no bytes": "100k,nr_inodes=99",
        "no files": "1m,nr_inodes=30",
    }.items():
        with small_disk(disk, size):
            paths = EnvironmentPaths(make_environment(disk / ".venv", "made"))
            site = packages(paths.venv)
            put_package(site, "compiled", {"compiled/__init__.py": ""})
            (site / "compiled" / "__pycache__").mkdir()
            for number in range(9):
                (
                    site / "compiled" / "__pycache__" / f"__init__.{number}.pyc"
                ).write_bytes(bytes(5000))
            fill(disk)
            removed = remove(paths, Reporter())
            assert list(removed) == [paths.venv], name
            assert not paths.venv.exists(), name
            assert not paths.work.exists()


def fill(disk):
    """Fill a file system until only some bytes and inodes are left."""
    with suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with suppress(OSError):
        for number in range(100):
            (disk / f"filler{number}").touch()


def test_mounted_folder_with_files_is_not_replaced(here):
    with small_disk(here.folder / ".venv", "1m"):
        here.write(".venv/kept", "mine")
        assert here.refusal("install", exit_code=2)["code"] == "not-ours"
        assert (here.folder / ".venv" / "kept").read_text("utf-8") == "mine"
