"""Markers of a project on four targets, compared with ``uv pip compile``."""

import re
import sys
from dataclasses import dataclass

import pytest
import tomli

from gpuinstall.base import process, uv
from tests.lab.wheels import make_wheel


@dataclass(frozen=True)
class PlatformCase:
    """A target, with its options for gpuinstall and its platform for uv."""

    options: tuple[str, ...]
    platform: str
    python: str


TARGETS = (
    PlatformCase(
        ("--gpu", "RTX 4090", "--driver", "580.95.05"),
        "x86_64-manylinux_2_28",
        "3.12",
    ),
    PlatformCase(("--arch", "aarch64"), "aarch64-manylinux_2_28", "3.11"),
    PlatformCase(("--os", "windows"), "x86_64-pc-windows-msvc", "3.12"),
    PlatformCase(("--os", "macos", "--arch", "arm64"), "aarch64-apple-darwin", "3.11"),
)
CORP = '[[tool.uv.index]]\nname = "corp"\nurl = "{corp}"\nexplicit = true\n'
SOURCES = "[tool.uv.sources]"
FILES = {
    "system": (
        "torch==2.14.1",
        "painter==1.0 ; sys_platform == 'win32'",
        "painter==2.0 ; sys_platform != 'win32'",
    ),
    "processor": (
        "torch==2.14.1",
        "painter==1.0 ; platform_machine == 'aarch64'",
        "painter==2.0 ; platform_machine != 'aarch64'",
    ),
    "Python": (
        "torch==2.14.1",
        "painter==1.0 ; python_version < '3.12'",
        "painter==2.0 ; python_version >= '3.12'",
    ),
    "one system": ("torch==2.14.1", "painter ; sys_platform == 'darwin'"),
    "system and processor": (
        "torch==2.14.1",
        "painter<2 ; sys_platform == 'linux' and platform_machine == 'x86_64'",
        "viewer ; sys_platform == 'win32' and platform_machine == 'AMD64'",
    ),
    "alternatives": (
        "torch==2.14.1",
        "painter<2 ; sys_platform == 'win32' or python_version < '3.12'",
        "viewer ; platform_machine in 'arm64 aarch64' and sys_platform != 'darwin'",
    ),
    "torch by processor": (
        "torch==2.13.0 ; platform_machine == 'aarch64'",
        "torch==2.14.1 ; platform_machine != 'aarch64'",
    ),
    "torch by Python": (
        "torch<2.14 ; python_version < '3.12'",
        "torch>=2.14,<2.15 ; python_version >= '3.12'",
    ),
    "torch by system": (
        "torch<=2.14.1 ; sys_platform == 'linux'",
        "torch==2.13.0 ; sys_platform == 'win32' or sys_platform == 'darwin'",
    ),
    "a dependency": ("torch==2.14.1", "studio"),
    "an index by system": (
        "torch==2.14.1",
        "painter",
        SOURCES,
        """painter = {{ index = "corp", marker = "sys_platform == 'win32'" }}""",
    ),
    "indexes by processor and Python": (
        "torch==2.14.1",
        "painter",
        "viewer",
        SOURCES,
        """painter = {{ index = "corp", marker = "platform_machine == 'aarch64' and python_version < '3.12'" }}""",
        """viewer = {{ index = "corp", marker = "sys_platform != 'linux'" }}""",
    ),
}
COMPARED = {"torch", "painter", "viewer", "studio"}


@pytest.fixture
def project(workshop, stand_in):
    """A folder on an index with two packages and a dependent one."""
    simple, corp = stand_in.folder / "simple", stand_in.folder / "whl" / "corp"
    for name in ("painter", "viewer"):
        for version in ("1.0", "2.0"):
            make_wheel(simple, name, version)
        make_wheel(corp, name, "3.0")
    markers = ("sys_platform == 'linux'", "python_version < '3.12'")
    make_wheel(
        simple,
        "studio",
        "1.0",
        requires=[f"painter<2 ; {markers[0]}", f"viewer ; {markers[1]}"],
    )
    return workshop


def compiled(project, target):
    """Return the versions that uv selects for a target."""
    words = ("--python-platform", target.platform, "--python-version", target.python)
    done = process.run(
        [uv.uv(), "pip", "compile", "-q", "pyproject.toml", *words],
        env={**project.environment, "UV_PYTHON": sys.executable},
        cwd=project.folder,
    )
    assert done.ok, done.err
    return dict(re.findall(r"(?m)^([\w-]+)==([^\s+]+)", done.out))


def planned(project, target):
    """Return the torch version that gpuinstall plans for a target."""
    document = project.document("plan", *target.options, "--python", target.python)
    return document["data"]["build"]["torch"]


def locked(project, target):
    """Return the versions that gpuinstall locks for a target."""
    document = project.document("lock", *target.options, "--python", target.python)
    (path,) = (project.folder / one["path"] for one in document["data"]["locks"])
    packages = tomli.loads(path.read_text("utf-8"))["packages"]
    path.unlink()
    return {one["name"]: one["version"].partition("+")[0] for one in packages}


@pytest.mark.heavy
@pytest.mark.parametrize("name", FILES)
def test_plan_and_lock_evaluate_markers_as_uv(project, stand_in, name):
    lines = FILES[name]
    tables = ""
    if SOURCES in lines:
        first = lines.index(SOURCES)
        tables = "\n".join((*lines[first:], CORP))
        tables = tables.format(corp=f"{stand_in.corp.url}/simple")
        lines = lines[:first]
    project.write(
        "pyproject.toml",
        f'[project]\nname = "app"\nversion = "1"\ndependencies = {list(lines)}\n{tables}',
    )
    for target in TARGETS:
        expected = compiled(project, target)
        ours = locked(project, target)
        assert {key: ours[key] for key in ours.keys() & COMPARED} == {
            key: expected[key] for key in expected.keys() & COMPARED
        }, target
        assert planned(project, target) == expected["torch"], target
