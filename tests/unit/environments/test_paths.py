import os
import sys

import pytest

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.project import Settings, open_project


def test_a_link_stays_and_what_it_leads_to_is_the_place(tmp_path):
    (tmp_path / ".venv").symlink_to("real")
    assert EnvironmentPaths.at(tmp_path / ".venv").venv == tmp_path / "real"


def test_venv_file_names_the_environment(tmp_path):
    (tmp_path / ".venv").write_text("../envs/one\n")
    paths = EnvironmentPaths.at(tmp_path / ".venv")
    assert paths.venv == tmp_path.parent / "envs" / "one"
    assert paths.folder == tmp_path
    with open_project(tmp_path, Settings(only_looks=True)) as project:
        assert project.paths.folder == tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rules for names")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x" * 250, "File name too long"),
        ("x" * 300, "File name too long"),
        ("a:b", "PATH cannot have"),
        (os.fsdecode(b"\xff"), "requires a path in UTF-8"),
    ],
)
def test_a_name_that_no_environment_can_have_is_refused(tmp_path, name, reason):
    with pytest.raises(UsageError, match=reason):
        EnvironmentPaths.at(tmp_path / name)


def test_who_only_looks_may_do_so_where_no_environment_can_lie(tmp_path):
    (tmp_path / ".venv").symlink_to("/elsewhere")
    for folder in (tmp_path, tmp_path / os.fsdecode(b"\xff")):
        with open_project(folder, Settings(only_looks=True)) as project:
            assert project.paths.folder == folder
        with open_project(folder) as project, pytest.raises(UsageError):
            project.paths.folder.stat()


def test_a_file_where_transactions_go_is_refused(tmp_path):
    (tmp_path / ".venv.gpuinstall").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        EnvironmentPaths.at(tmp_path / ".venv")


@pytest.mark.skipif(
    sys.version_info >= (3, 13),
    reason="this Python follows such a link without complaint",
)
def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / ".venv").symlink_to(".venv")
    with pytest.raises(UsageError, match="cannot be used for an environment"):
        EnvironmentPaths.at(tmp_path / ".venv")
