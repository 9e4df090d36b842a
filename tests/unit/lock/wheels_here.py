"""Wheels as an index lists them, for the tests of this room."""

from __future__ import annotations

from typing import Any

from packaging.utils import parse_wheel_filename

from gpuinstall.catalog import Wheel


def listed(filename: str, *, source: str = "https://index.example/whl/cu126", **more: Any) -> Wheel:
    package, version, _, tags = parse_wheel_filename(filename)
    backend = version.local or more.pop("backend", None)
    url = f"{source}/{filename.replace('+', '%2B')}"
    return Wheel(package, version, filename, url, tags, backend=backend, source=source, **more)


def torch(
    version: str = "2.14.1+cu126", tag: str = "cp312-cp312-manylinux_2_28_x86_64", **more: Any
) -> Wheel:
    return listed(f"torch-{version}-{tag}.whl", **more)
