"""Trusted owners of files and programs."""

import os
from pathlib import Path

import pytest
from tools.bundle import ROOT, embed_owners_module

from gpuinstall.base import owners

OTHER = 12345
AS_ROOT = (
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can change a folder's owner"
    ),
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="requires Unix owners")


@pytest.fixture(params=[False, True], ids=["machine", "container"])
def is_container(request, monkeypatch):
    monkeypatch.setattr(owners, "in_container", lambda: request.param)
    return request.param


def test_bootstrap_contains_the_current_owners_module():
    text = (ROOT / "bootstrap.py").read_text("utf-8")

    assert embed_owners_module(text) == text


@pytest.mark.parametrize(
    ("mode", "is_end", "is_exposed"),
    [
        (0o755, True, False),
        (0o775, True, False),
        (0o777, True, True),
        (0o777, False, True),
        (0o1777, True, True),
        (0o1777, False, False),
    ],
)
def test_world_writable_folders_are_rejected_only_for_root(
    tmp_path, is_container, mode, *, is_end, is_exposed
):
    folder = tmp_path / "open"
    (folder / "cache").mkdir(parents=True)
    folder.chmod(mode)
    found = list(owners.exposures(folder if is_end else folder / "cache"))

    is_refused = mode == 0o777 and os.getuid() == 0 and not is_container
    expected = (folder, f"everyone can write to {folder}", is_refused)
    assert found == ([expected] if is_exposed else [])


def test_links_in_a_path_are_followed(tmp_path):
    open_folder = tmp_path / "open"
    (open_folder / "cache").mkdir(parents=True)
    (tmp_path / "link").symlink_to(open_folder)
    open_folder.chmod(0o777)

    [found] = owners.exposures(tmp_path / "link" / "cache")

    assert found.part == open_folder


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
def test_programs_in_world_writable_folders_need_trusted_owners(
    tmp_path, is_container, mode
):
    program = tmp_path / "bin" / "nvcc"
    program.parent.mkdir()
    program.touch(0o755)
    program.parent.chmod(mode)

    is_refused = mode == 0o777 and os.getuid() == 0 and not is_container
    assert owners.can_start(program) is not is_refused


@pytest.mark.parametrize(
    ("owner", "of_project", "trusted_in_container"),
    [
        pytest.param(OTHER, 0, False, marks=AS_ROOT),
        pytest.param(OTHER, OTHER, True, marks=AS_ROOT),
        pytest.param(0, OTHER, True, marks=AS_ROOT),
    ],
)
def test_mounted_project_is_trusted_in_containers(
    tmp_path, is_container, owner, of_project, *, trusted_in_container
):
    venv = tmp_path / ".venv"
    venv.mkdir()
    os.chown(tmp_path, of_project, -1)
    os.chown(venv, owner, -1)

    is_trusted = owner == 0 or (trusted_in_container and is_container)
    assert owners.is_foreign(venv, tmp_path) is not is_trusted


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change a file's owner")
def test_other_users_programs_run_outside_sticky_directories(tmp_path):
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.touch(0o755)
    os.chown(program, OTHER, -1)
    assert owners.can_start(program)
    program.parent.chmod(0o1777)
    assert not owners.can_start(program)


@pytest.mark.root
def test_owner_of_a_file_is_reported(tmp_path):
    (tmp_path / "file").touch()
    os.chown(tmp_path / "file", OTHER, -1)
    assert owners.owner_of(tmp_path / "file") == f"uid {OTHER}"
    assert owners.owner_of(Path("/")) == "root"
