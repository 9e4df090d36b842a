"""Versions and sources in uv.lock and poetry.lock."""

from contextlib import suppress

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import marker_environment
from gpuinstall.lock.request.tools import (
    find_locked_versions,
    find_project_lock,
    read_project_lock,
)
from gpuinstall.lock.uv.resolution import check_required_urls, find_requested_hashes
from gpuinstall.sources import Sources
from gpuinstall.sources.sources import find_unknown_index
from tests.lab.own_sources import naming
from tests.unit.lock.wheels_here import packages

UV = """\
version = 1
requires-python = ">=3.10"
resolution-markers = ["python_full_version >= '3.11'", "python_full_version < '3.11'"]
[[package]]
name = "numpy"
version = "2.2.6"
source = { registry = "https://index.example/simple" }
resolution-markers = ["python_full_version < '3.11'"]
[[package]]
name = "numpy"
version = "2.3.4"
resolution-markers = ["python_full_version >= '3.11'"]
[[package]]
name = "nvidia-cudnn-cu12"
version = "9.1.0.70"
[[package]]
name = "ours"
source = { editable = "." }
[[package]]
name = "torch"
version = "2.9.0+cu128"
"""
# As written by Poetry 2.5.1; the table of markers by group follows its documentation.
POETRY = """\
[[package]]
name = "filelock"
version = "3.20.0"
description = ""
optional = false
python-versions = "*"
groups = ["main"]
markers = "sys_platform == \\"win32\\""
files = []

[package.source]
type = "legacy"
url = "https://index.example/simple"
reference = "lab"

[[package]]
name = "numpy"
version = "2.3.4"
python-versions = ">=3.10"
groups = ["main"]
files = []

[[package]]
name = "torch"
version = "2.9.0"
markers = { main = "python_version >= \\"3.10\\"", dev = "os_name == \\"nt\\"" }

[metadata]
lock-version = "2.1"
python-versions = ">=3.11,<3.13"
"""


def written(path, text):
    """Return the only uv.lock or poetry.lock of a folder."""
    for name in ("uv.lock", "poetry.lock"):
        (path.parent / name).unlink(missing_ok=True)
    path.write_text(text, "utf-8")
    lock = read_project_lock(path.parent)
    assert lock
    assert lock.path == path
    return lock


@pytest.mark.parametrize(
    ("name", "text", "python", "numpy"),
    [
        ("uv.lock", UV, "3.12", "numpy==2.3.4"),
        ("uv.lock", UV, "3.10", "numpy==2.2.6"),
        ("poetry.lock", POETRY, "3.12", "numpy==2.3.4"),
    ],
)
def test_uv_and_poetry_lock_versions_match_target_python(
    tmp_path, name, text, python, numpy
):
    path = tmp_path / name
    lock = written(path, text)
    environment = marker_environment("linux", "x86_64", python)
    locked = find_locked_versions(lock, environment, parts=())
    assert tuple(map(str, locked)) == (numpy, "torch==2.9.0")
    assert {one.origin.file for one in locked} == {str(path)}


def test_missing_and_malformed_team_locks_are_distinguished(tmp_path):
    assert find_project_lock(tmp_path) is None
    (tmp_path / "uv.lock").write_text("<<<<<<< ours\n", "utf-8")
    with pytest.raises(UsageError, match=r"uv\.lock is malformed"):
        read_project_lock(tmp_path)


HERE = marker_environment("linux", "x86_64", "3.12")
BREAKS = (
    "2.3.4\\n-r /etc/passwd",
    "2.3.4 --index-url https://index.example/",
    "not a version",
)


def test_malformed_locked_versions_are_not_passed_to_uv(tmp_path):
    names = {f'name = "numpy"\nversion = "{version}"' for version in BREAKS}
    names |= {
        'name = "numpy\\n-r /etc/passwd"\nversion = "2.3.4"',
        'name = "num py"\nversion = "2.3.4"',
    }
    accepted = []
    for file in ("uv.lock", "poetry.lock"):
        for row in sorted(names):
            with suppress(UsageError):
                lock = written(tmp_path / file, f"[[package]]\n{row}\n")
                accepted.append((file, row, find_locked_versions(lock, HERE, parts=())))
    assert accepted == []


INDEX = "https://corp.example/simple"
BY_INDEX = {
    "uv.lock": f'source = {{ registry = "{INDEX}/" }}',
    "poetry.lock": f'[package.source]\ntype = "legacy"\nurl = "{INDEX}"\nreference = "corp"',
}
BY_ADDRESS = {
    "uv.lock": (
        'source = { git = "https://git.example/ours?rev=main#0" }',
        'source = { editable = "lib" }',
    ),
    "poetry.lock": (
        '[package.source]\ntype = "git"\nurl = "https://git.example/ours"',
    ),
}


def obeyed(folder, file, rows):
    lock = written(
        folder / file, f'[[package]]\nname = "Ours"\nversion = "1.0"\n{rows}\n'
    )
    [package] = lock.packages
    return Sources().add_settings(package.settings)


def test_package_with_unknown_index_is_rejected(tmp_path):
    for file, row in BY_INDEX.items():
        sources = obeyed(tmp_path, file, row)
        assert find_unknown_index(sources.addresses, lambda: INDEX) is None
        for key in ("extra-index-url", "index-url"):
            known = naming((key, INDEX), sources=sources)
            assert find_unknown_index(known.addresses, lambda: None) is None
        error = find_unknown_index(
            sources.addresses, lambda: "https://index.example/simple"
        )
        assert f"{file}: package index for ours" in str(error)
        assert INDEX in str(error and error.hint)


def test_package_with_url_never_comes_from_an_index(tmp_path):
    served = {"ours": frozenset({"https://index.example/ours-1.0-py3-none-any.whl"})}
    accepted = []
    for file, rows in BY_ADDRESS.items():
        for row in rows:
            sources = obeyed(tmp_path, file, row)
            check_required_urls({"other": frozenset()}, sources.addresses)
            with suppress(UsageError):
                check_required_urls(served, sources.addresses)
                accepted.append((file, row))
    assert accepted == []


def ours(version):
    """Return a package with an sdist."""
    url = f"https://files.example/ours-{version}.tar.gz"
    sdist = {"url": url, "hashes": {"sha256": "0" * 64}}
    return {"name": "ours", "version": version, "sdist": sdist}


def test_hashes_apply_to_the_locked_version(tmp_path):
    digest = "a" * 64
    hashes = {
        "uv.lock": f'sdist = {{ hash = "sha256:{digest}" }}\nwheels = [{{ hash = "sha256:{"b" * 64}" }}]',
        "poetry.lock": f'files = [{{ file = "a", hash = "sha256:{digest}" }}, {{ file = "b", hash = "md5:0" }}]',
    }
    wrong = {}
    for file, rows in hashes.items():
        sources = obeyed(tmp_path, file, rows)
        held = {
            version: find_requested_hashes(
                (), packages(ours(version)), sources.addresses
            )
            for version in ("1.0", "1.1")
        }
        if digest not in held["1.0"].get("ours", ()) or held["1.1"]:
            wrong[file] = held
    assert wrong == {}


def test_uv_lock_directory_registry_matches_find_links(tmp_path):
    sources = obeyed(tmp_path, "uv.lock", 'source = { registry = "../wheels" }')
    known = naming(("find-links", str(tmp_path.parent / "wheels")), sources=sources)
    assert find_unknown_index(known.addresses, lambda: None) is None


def test_members_use_the_lock_of_their_workspace(tmp_path):
    tables = '[tool.uv.workspace]\nmembers = ["*"]\nexclude = ["other"]\n'
    for name, more in {".": tables, "member": "", "other": ""}.items():
        file = tmp_path / name / "pyproject.toml"
        file.parent.mkdir(exist_ok=True)
        text = f"[project]\nname = 'a{name[1:]}'\nversion = '1'\n{more}"
        file.write_text(text, "utf-8")
    lock = tmp_path / "uv.lock"
    lock.touch()
    (tmp_path / "member" / "uv.lock").touch()
    assert find_project_lock(tmp_path) == lock
    assert find_project_lock(tmp_path / "member") == lock
    assert find_project_lock(tmp_path / "other") is None
