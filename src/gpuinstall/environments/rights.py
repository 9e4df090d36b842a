"""Check file permissions before an environment is changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from os.path import exists, isdir, islink
from pathlib import Path

from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    unused_venv_option,
)
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.owners import is_foreign, is_mine, owner_of, way_to
from gpuinstall.sources.configuration import read_policy


def check_rights(paths: EnvironmentPaths, *, is_replaced: bool = False) -> None:
    """Check that this user can change or create an environment.

    Args:
        paths: The environment.
        is_replaced: Whether its interpreter is not started, because a new environment replaces it.

    Raises:
        InstallationError: Another user owns the environment, a folder is not writable, or the interpreter cannot be started.
    """
    check_owner(paths)
    for folder in _find_written_folders(paths):
        check_writable(folder)
    python = paths.find_interpreter()
    if is_replaced or not os.path.lexists(python):
        return
    # uv links the interpreter, which can be a script on NixOS.
    if paths.is_managed and not islink(python) and _is_script(python):
        raise InstallationError(
            "python-replaced",
            f"{python} is a script, not a Python interpreter",
            hint=Advice(
                "mv",
                (str(python), f"{python}.old"),
                note="then run it again; the environment is rebuilt",
            ),
        )
    for part in way_to(python):
        if islink(part):
            continue  # way_to also yields its target
        mode = os.R_OK | os.X_OK
        if isdir(part):
            mode = os.X_OK
        if os.path.lexists(part) and not os.access(part, mode):
            raise InstallationError(
                "python-unreadable",
                f"the Python of {paths.venv} cannot be started: {part}: {_find_access_problem(part, mode)}",
                hint=_make_fixes(part),
            )


def _is_script(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(2) == b"#!"
    except OSError:
        return False


def check_owner(paths: EnvironmentPaths) -> None:
    """Check that no other user, unless trusted, owns an environment."""
    root = paths.root
    is_trusted = read_policy(paths.folder).trusts_other_users
    if os.path.lexists(root) and is_foreign(root, root.parent) and not is_trusted:
        hint = _make_fixes(root)
        if os.access(root, os.W_OK):
            variable = ("GPUINSTALL_TRUST_FOLDER=1",)
            note = f"trusts {owner_of(root)}"
            hint = (Advice("export", variable, note=note), *hint)
        raise InstallationError(
            "environment-of-another-user",
            f"{root} cannot be changed: it belongs to {owner_of(root)}",
            hint=hint,
        )


def _make_fixes(path: Path) -> tuple[Advice, ...]:
    venv = unused_venv_option(Path.home())
    return (
        make_command("install", *venv, note="an environment of your own"),
        Advice("ls", ("-ld", str(path))),
    )


def is_read_only(paths: EnvironmentPaths) -> bool:
    """Return whether a folder that a change writes is not writable."""
    return not all(map(_is_writable, _find_written_folders(paths)))


_WRITING = os.W_OK | os.X_OK


def _is_writable(folder: Path) -> bool:
    return os.access(folder, _WRITING)


def check_writable(folder: Path) -> None:
    """Check that this user can create files in a folder.

    Raises:
        InstallationError: The folder is not writable.
    """
    if not _is_writable(folder):
        raise InstallationError(
            "not-writable",
            f"{folder} cannot be written: {_find_access_problem(folder, _WRITING)}",
            hint=_make_fixes(folder),
        )


def _find_written_folders(paths: EnvironmentPaths) -> Iterator[Path]:
    """Yield the folders in which an installation writes or removes files."""
    # Journals are inside an unmanaged environment.
    if paths.is_managed:
        yield next(folder for folder in paths.work.parents if exists(folder))
    if isdir(paths.venv):
        scripts = (paths.root / paths.path_below_root("bin/python")).parent
        for folder in (paths.venv, scripts, *paths.find_packages_folders()):
            if isdir(folder):
                yield folder


def _find_access_problem(path: Path, needed: int) -> str:
    """Explain why this user cannot access a path.

    Args:
        path: The path.
        needed: The denied access, as in ``os.access``.
    """
    if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    mode = stat.S_IMODE(path.stat().st_mode)
    if not is_mine(path):
        return f"it belongs to {owner_of(path)} and has mode {mode:o}"
    if mode >> 6 & needed == needed:
        return f"an attribute (see lsattr) or a security module protects it, although its mode is {mode:o}"
    return f"its mode is {mode:o}"
