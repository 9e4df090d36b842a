import sys

import pytest

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    packages_folders,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import is_vacant
from gpuinstall.environments.records import record_environment
from gpuinstall.project import Settings, open_project
from gpuinstall.project.run import read_paths
from tests.lab.skips import needs_links
from tests.unit.install.environments import (
    MARKER,
    make_environment,
    use_state_folder,
    write_files,
)


@needs_links
def test_environment_path_follows_a_link(tmp_path):
    (tmp_path / ".venv").symlink_to("real")
    assert EnvironmentPaths.at(tmp_path / ".venv").venv == tmp_path / "real"


@needs_links
def test_nothing_is_written_next_to_linked_file(tmp_path):
    home = tmp_path / "home"
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".venv").symlink_to(home / ".bashrc")
    assert EnvironmentPaths.find(folder / ".venv").work == home / ".bashrc/.gpuinstall"
    # The environment may have a journal there.
    (home / ".bashrc.gpuinstall").mkdir(parents=True)
    assert EnvironmentPaths.find(folder / ".venv").work == home / ".bashrc.gpuinstall"


@needs_links
@pytest.mark.parametrize("is_created", [True, False])
def test_link_of_a_moved_project_is_followed(tmp_path, monkeypatch, is_created):
    use_state_folder(monkeypatch, tmp_path / "state")
    target = make_environment(tmp_path / "scratch", "ours")
    replace(MARKER, project=str(tmp_path / "before the move")).write(target)
    record_environment(target, MARKER.id, is_created=is_created)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".venv").symlink_to(target)
    if is_created:
        assert read_paths(None, folder).venv == target
    else:
        with pytest.raises(UsageError, match="leads to"):
            read_paths(None, folder)


def test_volume_with_only_lost_files_is_empty(tmp_path):
    write_files(tmp_path / ".venv", "lost+found/")
    assert is_vacant(tmp_path / ".venv")
    write_files(tmp_path / ".venv", "thesis.txt")
    assert not is_vacant(tmp_path / ".venv")


def test_venv_file_redirects_to_another_environment(tmp_path):
    (tmp_path / ".venv").write_text("../envs/one\n")
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    assert paths.venv == tmp_path.parent / "envs" / "one"
    assert paths.folder == tmp_path
    with open_project(tmp_path, Settings(is_read_only=True)) as project:
        assert project.paths.folder == tmp_path


@pytest.mark.parametrize("text", ["notes", "use conda", "remember conda/mamba"])
def test_text_in_a_venv_file_is_no_path(tmp_path, text):
    (tmp_path / ".venv").write_text(f"{text}\n")
    assert EnvironmentPaths.at(tmp_path / ".venv").venv == tmp_path / ".venv"
    (tmp_path / text).mkdir(parents=True)
    assert EnvironmentPaths.at(tmp_path / ".venv").venv == tmp_path / text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no links to lib")
def test_environment_copied_with_followed_links_has_one_folder(tmp_path):
    for name in ("lib", "lib64"):
        (tmp_path / name / "python3.12" / "site-packages").mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").touch()
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    assert packages_folders(tmp_path) == [site]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rules for names")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x" * 250, "File name too long"),
        ("x" * 300, "File name too long"),
        ("a:b", "PATH cannot have"),
        ("\udcff", "requires a path in UTF-8"),
    ],
)
def test_invalid_environment_name_is_rejected(tmp_path, name, reason):
    with pytest.raises(UsageError, match=reason):
        EnvironmentPaths.at(tmp_path / name)


def test_read_only_project_accepts_any_directory(tmp_path):
    folder = tmp_path / "\udcff"
    with open_project(folder, Settings(is_read_only=True)) as project:
        assert project.paths.folder == folder
    with pytest.raises(UsageError), open_project(folder):
        pass


def test_file_at_the_journal_path_is_rejected(tmp_path):
    (tmp_path / ".venv.gpuinstall").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        EnvironmentPaths.at(tmp_path / ".venv")


@needs_links
def test_circular_link_is_rejected(tmp_path):
    (tmp_path / ".venv").symlink_to(".venv")
    with pytest.raises(UsageError, match="cannot be used for an environment"):
        EnvironmentPaths.at(tmp_path / ".venv")
