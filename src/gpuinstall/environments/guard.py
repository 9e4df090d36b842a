"""Write constraints that keep pip and uv from replacing a torch build."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    packages_folders,
    relative_prefix,
)
from gpuinstall.base.files import (
    parse_toml,
    read_document,
    retry,
    write_atomically,
)
from gpuinstall.base.text import format_guard, has_login, is_guard_text
from gpuinstall.base.values import Value
from gpuinstall.environments.application import find_owning_application

CONSTRAINTS = "gpuinstall-constraints.txt"
UV_SETTINGS = "uv.toml"
"""uv's settings, read from the working folder or its nearest parent."""
_STARTUP = ("_gpuinstall.py", "_gpuinstall.pth")
"""The module that constrains pip, and the file that imports it at startup."""
GUARD_FILES = (CONSTRAINTS, *_STARTUP)


class FamilyMember(Value):
    """PyTorch-family package that is not installed.

    If version and URL are empty, the package has no release for this build.
    """

    name: str
    version: str | None = None
    address: str | None = None
    sha256: str | None = None


def format_constraints(
    versions: Mapping[str, str],
    missing: Iterable[FamilyMember],
    backend: str,
) -> list[str]:
    """Return constraints that limit PyTorch-family packages to one build.

    Installed members are pinned by version, so that pip and uv do not download them again.
    Other members are pinned by URL, because only PyTorch's index has the matching builds.

    Args:
        versions: The versions of the installed members.
        missing: The other members.
        backend: The tag of the build, for messages about members without a release.
    """
    lines = []
    for name, version in versions.items():
        # pip prints a constraint's clauses in a conflict, but not its file.
        lines += [f"{name}=={version}", f"{name}!=0+pinned.by.gpuinstall"]
    for member in missing:
        if member.address:
            digest = f"#sha256={member.sha256}" if member.sha256 else ""
            lines.append(f"{member.name} @ {member.address}{digest}")
        elif member.version:
            lines.append(f"{member.name}=={member.version}")
        else:
            label = backend.replace("-", ".")
            lines += [
                f"# no build of {member.name} is known for {backend}:",
                f"{member.name}==0+gpuinstall.found.none.for.{label}",
            ]
    return lines


def format_pip_section(
    constraints: Sequence[str],
    links: Sequence[str] = (),
) -> list[str]:
    """Return ``pip.conf`` lines with the URLs of constraints and find-links.

    URLs are necessary because pip splits the list at spaces.
    """
    lines = ["[install]", f"constraint = {' '.join(constraints)}"]
    if links:
        lines += ["find-links =", *(f"    {link}" for link in links)]
    return lines


def find_guard_paths(venv: Path) -> list[str]:
    """Return the relative paths of an environment's constraints files."""
    prefixes = (relative_prefix(folder, venv) for folder in packages_folders(venv))
    return [CONSTRAINTS, *(prefix + name for prefix in prefixes for name in _STARTUP)]


def write_guard(
    built: Path,
    source: str,
    lines: Sequence[str],
    constraints: Sequence[str],
) -> None:
    """Write the pip and uv constraints of an environment.

    No file contains the path of the environment, which may be moved.

    Args:
        built: The environment.
        source: The lock or torch with the constrained versions.
        lines: The constraints.
        constraints: The user's own constraints files, which these would override.
    """
    module, start = _STARTUP
    users = json.dumps(" ".join(constraints))
    texts = {
        CONSTRAINTS: "".join(f"{line}\n" for line in lines),
        module: Path(__file__).with_name(module).read_text("utf-8"),
        start: f"import _gpuinstall; _gpuinstall.constrain_pip({users})\n",
    }
    lift = f"gpuinstall install changes them. To disable them, delete {start} in the folder of pip."
    for path in find_guard_paths(built):
        text = texts[path.rpartition("/")[2]]
        # A URL of the user's constraints may contain a login.
        write_atomically(
            built / path,
            format_guard(text, source, lift),
            is_private=has_login(text),
            is_cached=True,
        )


def update_uv_guard(environment: Path) -> Path | None:
    """Write uv settings with the constraints into an application's folder.

    The settings are removed if the environment has no constraints. Settings that
    gpuinstall did not write are never replaced.

    Returns:
        The path of the settings, if they were written.
    """
    application = find_owning_application(environment)
    if application is None:
        return None
    settings = application.root / UV_SETTINGS
    # The user or the application wrote this file.
    if os.path.lexists(settings) and not is_own_guard_file(settings):
        return None
    lines = read_guard_lines(environment)
    # uv reads only one file, and uv.toml would hide the settings in pyproject.toml.
    if not lines or _has_uv_table(application.root):
        retry(settings.unlink, missing_ok=True)
        return None
    constraints = "".join(f"    {json.dumps(line)},\n" for line in lines)
    text = f"constraint-dependencies = [\n{constraints}]\n"
    source = next((line for line in lines if line.startswith("torch==")), "torch")
    lift = f"Copied from {environment.name}/{CONSTRAINTS}. To disable them, delete this file."
    write_atomically(settings, format_guard(text, source, lift))
    return settings


def read_guard_lines(environment: Path) -> list[str]:
    """Return an environment's constraints, or none if the user edited them."""
    file = environment / CONSTRAINTS
    if not is_own_guard_file(file):
        return []
    lines = read_document(file, environment).splitlines()
    return [line for line in lines if not line.startswith("#")]


def _has_uv_table(folder: Path) -> bool:
    """Return whether a folder's pyproject.toml has a ``tool.uv`` table."""
    with suppress(OSError, ValueError):
        document = parse_toml(read_document(folder / "pyproject.toml", folder))
        return "uv" in document.get("tool", {})
    return False


def is_own_guard_file(file: Path) -> bool:
    """Return whether gpuinstall wrote a file and the user did not edit it."""
    with suppress(OSError, ValueError):
        return is_guard_text(read_document(file, file.parent))
    return False


def find_guard_obstacle(place: EnvironmentPaths) -> str | None:
    """Return why constraints cannot be written for an environment, or None."""
    file = place.venv / CONSTRAINTS
    if os.path.lexists(file) and not is_own_guard_file(file):
        return f"{file} was not written by gpuinstall"
    if place.root != place.venv:
        return "its pip may also manage another environment"
    return None
