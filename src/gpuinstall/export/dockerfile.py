"""Generate Dockerfiles from one or several lock files.

Building an image requires no GPU. A container with several environments selects one
of them at startup.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.data_files import read_data, read_vendor
from gpuinstall.environments.environment import LOCK_NAME
from gpuinstall.export.pins import (
    find_common_python,
    find_lock_systems,
    make_export_error,
    read_lock_backend,
)
from gpuinstall.lock.file.lock import Lock, list_built_sources

BOOTSTRAP = "bootstrap.py"
"""The script that a Dockerfile for several lock files copies."""
_LOCAL_PATH = re.compile(r" @ \.(/|$)")
_PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


def _read_templates() -> dict[str, Any]:
    """Read the Dockerfile templates, with the options for each vendor."""
    templates = read_data(str(Path(__file__).parent / "data/dockerfile.toml"))
    for row in BACKEND_ROWS[1:]:
        templates["access"][row.kind] = read_vendor(row.name)["access"]
    return templates


def format_dockerfile(
    lock: Lock,
    extras: Collection[str] = (),
) -> str:
    """Return a Dockerfile that installs the packages in a lock file.

    Args:
        lock: The lock file to install.
        extras: The servers to start in a container: ``jupyter``.

    Raises:
        UsageError: The lock file does not specify its target or Python version.
    """
    parts = _read_templates()
    # The options that give a container access to the GPUs.
    access = parts["access"][read_lock_backend(lock).kind]
    built = [package.name for package, _ in list_built_sources(lock.pylock.packages)]
    addresses = lock.addresses.items()
    projects = [name for name, address in addresses if _LOCAL_PATH.search(address)]
    copy = f"COPY {lock.name} ./"
    result = "/home/app/.venv"
    if projects:
        copy = parts["project"].format(names=", ".join(projects))
        result = "/home/app"
    text: str = parts["one"].format(
        torch=lock.versions.get("torch"),
        platform=_find_docker_platform(lock, projects),
        lock=lock.name,
        copy=copy,
        result=result,
        python=lock.python,
        uv=version("uv"),
        gpus=access["run"],
        needs=access["needs"],
        visible=access["environment"],
        extra=parts["jupyter"] if "jupyter" in extras else "",
        command=parts["serving"]["-".join(sorted({*extras})) or "show"],
        image=f"python:{lock.python}-slim-bookworm",
        built=parts["built"].format(names=", ".join(built)) if built else "",
    )
    return text


def format_image_dockerfile(
    locks: Sequence[Lock],
    extras: Collection[str] = (),
) -> str:
    """Return a Dockerfile for an image with an environment for each lock file.

    Args:
        locks: The lock files that ``select_image_locks`` returns.
        extras: The servers to start in a container: ``jupyter`` and ``ssh``.

    Raises:
        UsageError: A lock file does not specify its target or Python version, or
            does not contain a requested JupyterLab.
    """
    without = [lock.name for lock in locks if "jupyterlab" not in lock.versions]
    if "jupyter" in extras and without:
        message = f"JupyterLab is not in {', '.join(without)}"
        raise UsageError(
            "jupyter-not-locked",
            message,
            hint=make_command("lock torch jupyterlab"),
        )
    parts = _read_templates()
    kinds = dict.fromkeys(read_lock_backend(lock).kind for lock in locks)
    access = [parts["access"][kind] for kind in kinds if kind != CPU.kind]
    environments = rows = ""
    for lock in locks:
        rows += f"#   {lock.name:20} torch {lock.versions.get('torch')}\n"
        environments += parts["environment"].format(target=lock.target)
    starts = [parts["start"].format(gpus=way["run"]) for way in access]
    text: str = parts["any"].format(
        rows=rows.rstrip(),
        platform=_find_docker_platform(locks[0]),
        runs="\n".join(starts),
        needs="".join(way["needs"] for way in access),
        bootstrap=BOOTSTRAP,
        image=f"python:{find_common_python(locks)}-slim-bookworm",
        packages=parts["ssh"] if "ssh" in extras else "",
        visible="".join(way["environment"] for way in access),
        locks=" ".join(lock.name for lock in locks),
        environments=environments,
        command=parts["serving"]["-".join(sorted({*extras})) or "show"],
    )
    return text


def select_image_locks(locks: Sequence[Lock]) -> list[Lock]:
    """Return the lock files for one Linux platform, preferably x86_64.

    Raises:
        UsageError: No lock file is for Linux.
    """
    linux = [
        lock for lock in locks if not {"windows", "macos"} & set(lock.name.split("-"))
    ]
    # _find_docker_platform raises the error for a lock file for another system.
    platforms = {lock.name: _find_docker_platform(lock) for lock in linux or locks[:1]}
    first = min(platforms.values())
    return [lock for lock in linux if platforms[lock.name] == first]


def _find_docker_platform(
    lock: Lock,
    projects: Collection[str] = (),
) -> str:
    """Return the Docker platform for a lock file, such as ``linux/amd64``.

    Args:
        lock: The lock file to install in an image.
        projects: The local packages whose folders are in the image.

    Raises:
        UsageError: The lock file cannot be installed in a Linux image.
    """
    systems = find_lock_systems(lock)
    if not re.fullmatch(LOCK_NAME, lock.name):
        raise make_export_error(
            f"{lock.name} is not a valid lock name for a Dockerfile",
            Advice("mv", (lock.name, "pylock.toml")),
        )
    absent = [name for name in lock.packages_without_url if name not in projects]
    if absent:
        cause = "packages from a folder or repository that the image lacks"
        raise make_export_error(
            f"{lock.name} has {cause}: {', '.join(absent)}",
            "Write a Dockerfile that copies this folder and a folder of its wheels, and runs sync --wheels",
        )
    # Build the image for the first platform that the lock file supports.
    for arch, platform in _PLATFORMS.items():
        if ("linux", arch) in systems:
            return platform
    raise make_export_error(
        f"{lock.name} is not for Linux, which an image requires",
        make_command("lock --target cpu"),
    )
