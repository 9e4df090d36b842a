"""Tests of tracked files: forbidden names and pinned dependencies."""

import subprocess

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lab.clone import ROOT

REGISTRIES = [
    "".join(parts)
    for parts in (("py", "pi.org"), ("python", "hosted.org"), ("ana", "conda.org"))
]
MACHINE = [
    "/".join(("", *parts))
    for parts in (
        ("work", "main"),
        ("work", "shared"),
        ("opt", "pypi"),
        ("opt", "wheels"),
    )
]
BINARY = {".png", ".ico", ".whl", ".gz"}


def project_files():
    listed = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    done = subprocess.run(listed, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout, so the project's files cannot be listed")
    files = [ROOT / name for name in done.stdout.split("\0") if name]
    return [path for path in files if path.is_file() and path.suffix not in BINARY]


@pytest.mark.parametrize("text", [*REGISTRIES, *MACHINE])
def test_project_files_contain_no_registry_or_machine_path(text):
    found = [
        str(path.relative_to(ROOT))
        for path in project_files()
        if text.encode() in path.read_bytes()
    ]

    assert found == []


def test_lockfiles_contain_hashes_and_no_index():
    for name in (
        "uv.txt",
        "tool.txt",
        "development.txt",
        "heavy.txt",
        "compiler.txt",
        "site.txt",
    ):
        lines = (ROOT / "lockfiles" / name).read_text("utf-8").splitlines()
        pins = [line for line in lines if not line.startswith(" ")]
        assert all("==" in line and line.endswith("\\") for line in pins)
        assert all(
            line.strip().startswith("--hash=sha256:")
            for line in lines
            if line.startswith(" ")
        )


def test_every_dependency_is_pinned():
    import tomli

    document = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    tool, groups = document["project"]["dependencies"], document["dependency-groups"]

    assert names(tool) <= pinned("tool.txt")
    assert names(tool + groups["dev"]) <= pinned("development.txt"), (
        "run: make lockfiles"
    )
    assert names(groups["heavy"]) <= pinned("heavy.txt"), "run: make lockfiles"
    assert names(groups["site"]) <= pinned("site.txt"), "run: make lockfiles"


def names(requirements):
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def pinned(name):
    lines = (ROOT / "lockfiles" / name).read_text("utf-8").splitlines()
    return {line.partition("==")[0] for line in lines if not line.startswith(" ")}
