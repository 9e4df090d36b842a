"""The Python interpreters at hand, found by looking: nothing is run, no shim is woken."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuinstall.base.process import is_startable
from gpuinstall.base.versions import numbers
from gpuinstall.machine.children import json_or_none
from gpuinstall.machine.source import Source, home_folder

_FINAL = r"([0-9]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)"
"""A released version, ``3.11`` or ``3.11.7``: no alpha and no release candidate."""

_NAME = rf"python(?:[0-9]|{_FINAL})?(?:\.exe)?"
_FOLDER = rf"/(?:versions/|cpython-){_FINAL}[/-]"
"""That of a version which pyenv or uv manages: it has the patch release too, the program's name only ``3.11``."""


def read_pythons(source: Source) -> tuple[str, ...]:
    """Read the versions of the interpreters here, oldest first; ``3.11`` if only that much can be seen."""

    def look() -> str:
        versions = {version for version, _ in _installed()}
        return json.dumps(sorted(versions))

    return newest_patches(json_or_none(source.answer("pythons.json", look)) or ())


def newest_patches(versions: Sequence[str]) -> tuple[str, ...]:
    """Return versions, oldest first; a bare ``3.11`` is dropped if a full one of it is there."""
    minors_of_patches = {version.rpartition(".")[0] for version in versions}
    return tuple(sorted(set(versions) - minors_of_patches, key=numbers))


def find_python(version: str) -> Path | None:
    """Return the newest interpreter here for ``X.Y``; None if there is none."""
    paths: dict[str, Path] = {}
    for installed, path in _installed():
        # With a dot behind both, 3.1 is not the beginning of 3.11.
        if f"{installed}.".startswith(f"{version}."):
            paths.setdefault(installed, path)
    return paths.get(max(paths, key=numbers, default=""))


def _installed() -> Iterator[tuple[str, Path]]:
    """Yield the version and the path of each interpreter; of one version, the first is taken."""
    # Not the Python of the tool's own environment, but the one that it was made of.
    base = getattr(sys, "_base_executable", sys.executable)
    yield platform.python_version(), Path(base)
    for program in (*_on_path(), *_managed()):
        version = _version_of(program)
        if version:
            yield version, program


def _on_path() -> Iterator[Path]:
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(entry)
        # To look into a shim of pyenv or asdf would mean running it.
        if folder.is_absolute() and folder.name != "shims":
            for name in Source().names(entry, "python"):
                yield folder / name


def _managed() -> Iterator[Path]:
    """Yield what may be the interpreter of each version that pyenv or uv manages."""
    is_windows = sys.platform == "win32"
    home = home_folder()
    data = _folder("XDG_DATA_HOME", home / ".local" / "share")
    if is_windows:
        data = _folder("APPDATA", home)
    for versions in (
        _folder("PYENV_ROOT", home / ".pyenv") / "versions",
        _folder("UV_PYTHON_INSTALL_DIR", data / "uv" / "python"),
    ):
        for name in Source().names(str(versions)):
            yield versions / name / ("python.exe" if is_windows else "bin/python3")


def _folder(variable: str, otherwise: Path) -> Path:
    return Path(os.environ.get(variable) or otherwise)


def _version_of(program: Path) -> str | None:
    """Return the version of an interpreter, by the folder of its manager, else by its real name; None if it is none."""
    real = Path(os.path.realpath(program))
    name = re.fullmatch(_NAME, real.name)
    if name is None or not is_startable(program):
        return None
    folder = re.search(_FOLDER, real.as_posix())
    return folder[1] if folder else name[1]
