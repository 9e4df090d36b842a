"""Tests that names of folders and files have no special meaning."""

import re
import sys
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import tomli
import tomli_w

from gpuinstall.base import process, uv
from gpuinstall.base.requirement import find_path, is_file_url
from tests.lab.cases import mostly_heavy
from tests.lab.host import NOT_FOUND, Host
from tests.lab.projects import make_project
from tests.lab.wheels import make_wheel

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="requires names that Windows does not allow"
)
NAMES = Path(__file__).with_name("names.txt").read_text("utf-8").splitlines()


@pytest.fixture
def host():
    """Start a host that no command may contact."""
    with closing(Host("stranger", lambda *_: NOT_FOUND)) as host:
        yield host


def decode(name, host):
    """Return a name with its control characters, and a host's address."""
    text = re.sub(
        r"\\([tnrxu])([0-9a-f]*)",
        lambda one: one[0].encode().decode("unicode_escape"),
        name,
    )
    return text.replace("HOST", host.url.partition("//")[2])


def make_decoy(place):
    """Write a project at the path that the start of a name denotes."""
    first = re.split(r"[\s#;\[$%?@=,]", place.name)[0]
    decoy = place.with_name(first or "x")
    if first.strip(".") and not decoy.exists():
        make_project(decoy, "decoy", [])


def write(folder, dependency, **settings):
    table = {"name": "paper", "version": "1", "dependencies": [dependency]}
    document = {"project": table, "tool": {"uv": settings}}
    (folder / "pyproject.toml").write_text(tomli_w.dumps(document), "utf-8")


def write_project(folder, name):
    """Write a project that is built into a folder with this name."""
    place = folder / name
    make_project(place, "lib", ["parrot"])
    make_decoy(place)
    return place


def write_member(folder, name):
    """Write a project that requires a folder with this name."""
    write_project(folder, name)
    write(folder, "lib", sources={"lib": {"path": name}})
    return folder


def write_links(folder, name):
    """Write a project that finds wheels in a folder with this name."""
    make_wheel(folder / name, "parrot", "2.0")
    write(folder, "parrot", **{"find-links": [f"./{name}"]})
    return folder


LEVELS = {"project": write_project, "member": write_member, "links": write_links}


def list_packages(text, folder):
    """Return the packages of a lock with their resolved paths."""
    found = {}
    for package in tomli.loads(text)["packages"]:
        if package["name"] in {"lib", "decoy", "parrot"}:
            source = package.get("directory") or package["wheels"][0]
            url = source.get("url", "")
            path = source.get("path", find_path(url) if is_file_url(url) else None)
            found[package["name"]] = path and str((folder / path).resolve())
    return found


def resolve_with_uv(here, level):
    """Return uv's result for the same folder."""
    given = "pyproject.toml"
    if level == "project":
        given = "request.in"
        here.write(given, "-e .\n")
    words = ["pip", "compile", "-q", "--no-header", "--format", "pylock.toml", given]
    return process.run([uv.uv(), *words], env=here.environment, cwd=here.folder)


CASES = [*product(NAMES, LEVELS)]
QUICK = {
    ("b #c", "project"),
    ("d${HOME}", "member"),
    ("x --extra-index-url http:/HOST/simple", "project"),
    ("j\\n--extra-index-url http:/HOST/simple", "project"),
}


@pytest.mark.parametrize("case", mostly_heavy(CASES, QUICK), ids=repr)
def test_name_selects_no_other_folder(here, stand_in, host, case):
    name, level = case
    make_wheel(stand_in.folder / "simple", "parrot", "1.0")
    name = decode(name, host)
    folder = LEVELS[level](here.folder, name)
    inside = replace(here, folder=folder)

    done = inside.run("lock", "--target", "cpu", "torch")

    assert host.log == [], done.err
    if len(name.splitlines()) > 1:
        assert done.status == 2, done.err
        assert "has a line break" in done.err
        return
    assert done.status == 0, done.err
    locked = list_packages(inside.lock("pylock.cpu.toml"), folder)
    if level == "links":
        wheel = here.folder / name / "parrot-2.0-py3-none-any.whl"
        assert locked == {"parrot": str(wheel)}
    else:
        assert locked == {"lib": str(here.folder / name), "parrot": None}
    theirs = resolve_with_uv(inside, level)
    # uv reads a number sign in the path of find-links as a fragment.
    if level != "links" or "#" not in name:
        assert list_packages(theirs.out, folder) == locked, theirs.err
