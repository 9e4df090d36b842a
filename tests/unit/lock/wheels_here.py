"""Wheels as an index lists them, for the tests of this room."""

from packaging.utils import parse_wheel_filename

from gpuinstall.catalog import Wheel


def listed(filename, *, source="https://index.example/whl/cu126", **more):
    package, version, _, tags = parse_wheel_filename(filename)
    backend = version.local or more.pop("backend", None)
    url = f"{source}/{filename.replace('+', '%2B')}"
    return Wheel(
        package, version, filename, url, tags, backend=backend, source=source, **more
    )


def torch(version="2.14.1+cu126", tag="cp312-cp312-manylinux_2_28_x86_64", **more):
    return listed(f"torch-{version}-{tag}.whl", **more)
