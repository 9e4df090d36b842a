"""The Python interpreters at hand, found by looking: nothing is run, no shim is woken."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuinstall.base.process import is_trusted
from gpuinstall.machine.source import Source, home_folder, json_or_none

_FINAL = r"([0-9]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)"
"""A released version, ``3.11`` or ``3.11.7``: no alpha and no release candidate."""

_NAMED = re.compile(rf"^python{_FINAL}(?:\.exe)?$")
_MANAGED = re.compile(rf"^cpython-{_FINAL}-")
_FOLDER = re.compile(rf"^{_FINAL}$")


def read_pythons(source: Source) -> tuple[str, ...]:
    """Read the versions of the interpreters here, oldest first; ``3.11`` if only that much can be seen."""

    def look() -> str:
        versions = {version for version, _ in _installed()}
        return json.dumps(sorted(versions))

    return newest_patches(json_or_none(source.answer("pythons.json", look)) or ())


def newest_patches(versions: Sequence[str]) -> tuple[str, ...]:
    """Return versions, oldest first; a bare ``3.11`` is dropped if a full one of it is there."""
    minors_of_patches = {version.rpartition(".")[0] for version in versions}
    return tuple(sorted(set(versions) - minors_of_patches, key=_version_key))


def find_python(version: str) -> Path | None:
    """Return the newest interpreter here for ``X.Y``; None if there is none."""
    paths: dict[str, Path] = {}
    for installed, path in _installed():
        # With a dot behind both, 3.1 is not the beginning of 3.11.
        if f"{installed}.".startswith(f"{version}."):
            paths.setdefault(installed, path)
    if not paths:
        return None
    newest = max(paths, key=_version_key)
    return paths[newest]


def _version_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _installed() -> Iterator[tuple[str, Path]]:
    """Yield the version and the path of each interpreter; of one version, the first is taken."""
    is_windows = sys.platform == "win32"
    program = "python.exe" if is_windows else "bin/python3"
    home = home_folder()
    base = getattr(sys, "_base_executable", sys.executable)
    yield platform.python_version(), Path(base)
    yield from _on_path()
    yield from _matching(
        _FOLDER,
        _folder("PYENV_ROOT", home / ".pyenv") / "versions",
        program,
    )
    if is_windows:
        data = _folder("APPDATA", home)
    else:
        data = _folder("XDG_DATA_HOME", home / ".local" / "share")
    managed = _folder("UV_PYTHON_INSTALL_DIR", data / "uv" / "python")
    yield from _matching(_MANAGED, managed, program)


def _on_path() -> Iterator[tuple[str, Path]]:
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        # To look into a shim of pyenv or asdf would mean running it.
        if not folder.is_absolute() or folder.name == "shims":
            continue
        for name in Source().names(entry, "python"):
            version = _version_of(folder / name)
            if version:
                yield version, folder / name


def _version_of(program: Path) -> str | None:
    """Return the version of a program, from the folder of its manager (pyenv, uv) or else from its real name."""
    real = Path(os.path.realpath(program))
    name = _NAMED.match(real.name)
    if name is None or not is_trusted(program):
        return None
    # The folder has the patch release too, the name only ``3.11``.
    folder = re.search(rf"(?:/versions/|/cpython-){_FINAL}[/-]", str(real))
    match = folder or name
    return match[1]


def _matching(
    pattern: re.Pattern[str],
    folder: Path,
    program: str,
) -> Iterator[tuple[str, Path]]:
    """Yield the version and the program of each folder whose name matches a pattern, if it has that program."""
    for name in Source().names(str(folder)):
        match = pattern.match(name)
        path = folder / name / program
        if match and os.access(path, os.F_OK):
            yield match[1], path


def _folder(variable: str, otherwise: Path) -> Path:
    return Path(os.environ.get(variable) or otherwise)
