"""Tests that projects are accepted or rejected as by uv."""

import subprocess
import sys

import pytest

from gpuinstall.base import uv
from gpuinstall.base.errors import UsageError
from gpuinstall.lock.request.declaration import read_declaration

NAMED = '[project]\nname = "proj"\nversion = "1"\n'
FORMS = {
    "nothing": "",
    "no project": "[tool.uv]\n",
    "no name": '[project]\nversion = "1"\n',
    "empty name": '[project]\nname = ""\nversion = "1"\n',
    "name with a blank": '[project]\nname = "a b"\nversion = "1"\n',
    "name that starts with a sign": '[project]\nname = "-a"\nversion = "1"\n',
    "name with a dot": '[project]\nname = "A.b_c"\nversion = "1"\n',
    "no version": '[project]\nname = "proj"\n',
    "version of words": '[project]\nname = "proj"\nversion = "one"\n',
    "empty version": '[project]\nname = "proj"\nversion = ""\n',
    "version that is a number": '[project]\nname = "proj"\nversion = 1\n',
    "local version": '[project]\nname = "proj"\nversion = "v1.0.RC1+cu126"\n',
    "version that is also dynamic": f'{NAMED}dynamic = ["version"]\n',
    "dependencies that are also dynamic": f'{NAMED}dependencies = []\ndynamic = ["dependencies"]\n',
    "unknown dynamic key": f'{NAMED}dynamic = ["color"]\n',
    "unknown key": f'{NAMED}color = "red"\n',
    "extra with a blank": f'{NAMED}[project.optional-dependencies]\n"a b" = []\n',
    "two spellings of an extra": f"{NAMED}[project.optional-dependencies]\na_b = []\na-b = []\n",
    "group with a blank": f'{NAMED}[dependency-groups]\n"a b" = []\n',
    "two spellings of a group": f"{NAMED}[dependency-groups]\na_b = []\na-b = []\n",
    "group and extra": f"{NAMED}[dependency-groups]\na = []\n[project.optional-dependencies]\na = []\n",
    "extra that is a text": f'{NAMED}[project.optional-dependencies]\na = "six"\n',
    "list of projects": '[[project]]\nname = "proj"\nversion = "1"\n',
}


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
@pytest.mark.parametrize("form", FORMS)
def test_project_is_rejected_as_by_uv(tmp_path, form, codec):
    file = tmp_path / "pyproject.toml"
    file.write_text(FORMS[form] or "\n", codec)
    lock = [str(uv.uv()), "lock", "--offline", "--python", sys.executable]
    is_accepted = (
        subprocess.run(lock, cwd=tmp_path, capture_output=True, check=False).returncode
        == 0
    )
    if "[project]" not in FORMS[form] and codec == "utf-8":
        # uv locks only projects.
        is_accepted = form != "list of projects"

    try:
        read_declaration(tmp_path)
    except UsageError:
        assert not is_accepted
    else:
        assert is_accepted
