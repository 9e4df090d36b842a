"""Locks for tests of exports."""

import tomli_w

from gpuinstall.lock.file.lock import parse
from gpuinstall.lock.file.target import Target

INDEX = "https://index.example"


def digest(name):
    return f"{sum(name.encode()):064x}"


def wheel(name, version, tags="py3-none-any", **other):
    address = f"{INDEX}/{name}-{version.replace('+', '%2B')}-{tags}.whl"
    return {
        "name": name,
        "version": version,
        "wheels": [{"url": address, "hashes": {"sha256": digest(name)}}],
        **other,
    }


def source(name, version):
    address = f"{INDEX}/{name}-{version}.tar.gz"
    return {
        "name": name,
        "version": version,
        "sdist": {"url": address, "hashes": {"sha256": digest(name)}},
    }


def lock(
    target,
    *packages,
    inputs=("torch",),
    python="3.12",
):
    document = {
        "lock-version": "1.0",
        "environments": [Target.parse(target).marker],
        "requires-python": f"=={python}.*",
        "created-by": "gpuinstall",
        "packages": list(packages),
        "tool": {"gpuinstall": {"inputs": list(inputs)}},
    }
    return parse(f"pylock.{target}.toml", tomli_w.dumps(document))


def cuda_lock(target="cu126", *more, torch="2.14.1"):
    backend = Target.parse(target).backend
    packages = [
        wheel("numpy", "2.3.4"),
        wheel("torch", f"{torch}+{backend}", "cp312-cp312-manylinux_2_28_x86_64"),
    ]
    triton = [wheel("triton", "3.8.0")] if "-windows-" not in target else []
    return lock(target, *packages, *triton, *more)


def cpu_lock():
    return lock("cpu", wheel("torch", "2.14.1+cpu"))
