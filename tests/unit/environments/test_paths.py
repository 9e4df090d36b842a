import os
import sys

import pytest

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    active_environment,
    interpreter,
)
from gpuinstall.base.errors import UsageError


def test_a_link_stays_and_what_it_leads_to_is_the_place(tmp_path):
    (tmp_path / ".venv").symlink_to("real")
    assert EnvironmentPaths.at(tmp_path / ".venv").venv == tmp_path / "real"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rules for names")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x" * 250, "File name too long"),
        ("x" * 300, "File name too long"),
        ("a:b", "PATH cannot have"),
        (os.fsdecode(b"\xff"), "not UTF-8"),
    ],
)
def test_a_name_that_no_environment_can_have_is_refused(tmp_path, name, reason):
    with pytest.raises(UsageError, match=reason):
        EnvironmentPaths.at(tmp_path / name)


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
    with pytest.raises(UsageError, match="cannot hold an environment"):
        EnvironmentPaths.at(tmp_path / ".venv")


def test_the_environment_that_is_active_is_known_if_it_is_another(tmp_path):
    venv, theirs, conda = (tmp_path / name for name in (".venv", "theirs", "conda"))
    for folder in (venv, theirs, conda):
        interpreter(folder).parent.mkdir(parents=True)
        interpreter(folder).touch()
    cases = {
        (): None,
        (("VIRTUAL_ENV", str(theirs)),): theirs,
        (("CONDA_PREFIX", str(conda)),): conda,
        (("VIRTUAL_ENV", str(theirs)), ("CONDA_PREFIX", str(conda))): theirs,
        (("VIRTUAL_ENV", str(venv)), ("CONDA_PREFIX", str(conda))): None,
        (("VIRTUAL_ENV", str(tmp_path / "gone")),): None,
        (("VIRTUAL_ENV", "theirs"),): None,
        (("VIRTUAL_ENV", sys.prefix),): None,
    }
    assert {case: active_environment(dict(case), venv) for case in cases} == cases
