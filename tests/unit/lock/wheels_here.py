"""Wheels on an index, and resolver projects, for tests of locks."""

from pathlib import Path
from typing import Any

from packaging.pylock import Pylock
from packaging.utils import parse_wheel_filename

from gpuinstall.catalog import Wheel
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.uv.project import ResolverProject
from gpuinstall.sources import Sources
from tests.lab.parsed import required


def listed(filename, *, source="https://index.example/whl/cu126", **more):
    package, version, _, tags = parse_wheel_filename(filename)
    backend = version.local or more.pop("backend", None)
    url = f"{source}/{filename.replace('+', '%2B')}"
    return Wheel(
        package, version, filename, url, tags, backend=backend, source=source, **more
    )


def torch(version="2.14.1+cu126", tag="cp312-cp312-manylinux_2_28_x86_64", **more):
    return listed(f"torch-{version}-{tag}.whl", **more)


def resolver_project(*requirements, **fields):
    """Return a project for the resolver with Python 3.12."""
    given: dict[str, Any] = {
        "pages": {},
        "constraints": (),
        "preferred": {},
        "metadata": (),
        "folder": Path(),
        "wheels_only": frozenset(),
        "sources": Sources(),
        **fields,
    }
    return ResolverProject(
        required(*requirements), "3.12", "3.12.99", Target("cu126"), **given
    )


def packages(*tables):
    """Return packages of a lock."""
    document = {"lock-version": "1.0", "created-by": "uv", "packages": tables}
    return Pylock.from_dict(document).packages
