"""What ``gpuinstall doctor`` says of environments that gpuinstall made itself, and whether its advice helps."""

import json
import shlex

import pytest

from tests.lab.driver import RTX_4090
from tests.lab.workshop import Workshop


@pytest.fixture
def workshop(workshop, play):
    play(RTX_4090)
    return workshop


def findings(workshop):
    return json.loads(workshop.run("doctor", "--json").out)["data"]["findings"]


def site(workshop):
    return next((workshop.folder / ".venv" / "lib").glob("python*/site-packages"))


@pytest.mark.heavy
def test_an_environment_that_was_moved_is_named_and_made_again_by_the_advice(
    workshop,
):
    workshop.document("install")
    moved = workshop.folder.with_name("elsewhere")
    workshop.folder.rename(moved)
    there = Workshop(moved, workshop.caches, workshop.variables)
    (finding,) = findings(there)
    assert finding["code"] == "environment-moved"
    assert str(workshop.folder) in finding["title"]
    pasted(there, finding)
    assert findings(there) == []


def test_a_library_that_is_gone_is_named_and_brought_back_by_the_advice(workshop):
    workshop.document("install")
    library = site(workshop) / "torch" / "version.py"
    library.unlink()
    (finding,) = findings(workshop)
    assert finding["code"] == "files-lost"
    pasted(workshop, finding)
    assert library.is_file()
    assert findings(workshop) == []


def pasted(workshop, finding):
    """Run the first command of a finding as a shell would read it, where no uv is on PATH."""
    program, *arguments = shlex.split(finding["fix"].splitlines()[0], comments=True)
    assert program == "gpuinstall"
    done = workshop.run(*arguments, *(("--yes",) if "--fix" in arguments else ()))
    assert done.status == 0, done.err
