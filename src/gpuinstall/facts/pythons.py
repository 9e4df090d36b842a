"""The Python interpreters at hand, found by looking: nothing is run, no shim is woken."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuinstall.facts.source import Source, ThisMachine, home_folder, json_or_none
from gpuinstall.process import is_trusted

_FINAL = r"([0-9]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)"
_NAMED = re.compile(rf"^python{_FINAL}(?:\.exe)?$")
_MANAGED = re.compile(rf"^cpython-{_FINAL}-")
_CONDA = re.compile(rf"^python-{_FINAL}-.*\.json$")
_FOLDER = re.compile(rf"^{_FINAL}$")


def read_pythons(source: Source) -> tuple[str, ...]:
    """Read the versions of the interpreters here, oldest first; ``3.11`` where only that much can be seen."""
    return parse_pythons(
        source.answer(
            "pythons.json", lambda: json.dumps(sorted({version for version, _ in _here()}))
        )
    )


def find_python(version: str) -> Path | None:
    """Find an interpreter here for ``X.Y``, the newest of it; None where there is none."""
    here = reversed([*_here()])  # of two that are alike the first one counts
    fitting = {
        installed: path for installed, path in here if f"{installed}.".startswith(f"{version}.")
    }
    return fitting[max(fitting, key=_number)] if fitting else None


def parse_pythons(text: str) -> tuple[str, ...]:
    """Read a list of versions; a bare ``3.11`` is dropped where a full one of it is there."""
    document = json_or_none(text)
    listed = document if isinstance(document, list) else []
    versions = {
        version for version in listed if isinstance(version, str) and _FOLDER.match(version)
    }
    full = {version.rpartition(".")[0] for version in versions if version.count(".") == 2}
    return tuple(sorted(versions - full, key=_number))


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _here() -> Iterator[tuple[str, Path]]:
    program = "python.exe" if sys.platform == "win32" else "bin/python3"
    yield platform.python_version(), Path(getattr(sys, "_base_executable", sys.executable))
    home = home_folder()
    on_path = (Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep))
    for folder in (folder for folder in on_path if folder.is_absolute() and folder.name != "shims"):
        for path in (folder / name for name in ThisMachine().names(str(folder))):
            yield from ((version, path) for version in _version_of(path))
    yield from _matching(_FOLDER, _folder("PYENV_ROOT", home / ".pyenv") / "versions", program)
    windows = sys.platform == "win32"
    data = (
        _folder("APPDATA", home) if windows else _folder("XDG_DATA_HOME", home / ".local" / "share")
    )
    yield from _matching(
        _MANAGED, _folder("UV_PYTHON_INSTALL_DIR", data / "uv" / "python"), program
    )
    for conda in _condas(home):
        yield from (
            (version, conda / program) for version, _ in _matching(_CONDA, conda / "conda-meta", "")
        )
    yield from _matching(_FOLDER, Path("/Library/Frameworks/Python.framework/Versions"), program)
    yield from _registered()


def _version_of(program: Path) -> Iterator[str]:
    """Read the version off a program's name, its real name, or the folder that its manager keeps it in."""
    if not program.name.startswith("python"):
        return
    real = Path(os.path.realpath(program))
    kept_in = re.search(rf"(?:/versions/|/cpython-){_FINAL}[/-]", str(real))
    named = _NAMED.match(real.name)
    if named is not None and is_trusted(program):
        yield kept_in[1] if kept_in else named[1]


def _matching(pattern: re.Pattern[str], folder: Path, program: str) -> Iterator[tuple[str, Path]]:
    for name in ThisMachine().names(str(folder)):
        match = pattern.match(name)
        if match and os.access(folder / name / program, os.F_OK):
            yield match[1], folder / name / program


def _condas(home: Path) -> Iterator[Path]:
    bases = [_folder("CONDA_PREFIX", home / "miniconda3"), Path("/opt/conda")]
    bases += [home / name for name in ("miniconda3", "anaconda3", "miniforge3", "mambaforge")]
    for base in dict.fromkeys(bases):
        yield base
        yield from (base / "envs" / name for name in ThisMachine().names(str(base / "envs")))


def _registered() -> Iterator[tuple[str, Path]]:
    """Read Windows' registry of interpreters (PEP 514)."""
    if sys.platform != "win32":
        return
    import winreg

    for root in (winreg.HKEY_CURRENT_USER, winreg.HKEY_LOCAL_MACHINE):
        with suppress(OSError), winreg.OpenKey(root, r"Software\Python\PythonCore") as core:
            for number in range(winreg.QueryInfoKey(core)[0]):
                version = winreg.EnumKey(core, number)
                yield (
                    version,
                    Path(winreg.QueryValue(core, rf"{version}\InstallPath"), "python.exe"),
                )


def _folder(variable: str, otherwise: Path) -> Path:
    return Path(os.environ[variable]) if os.environ.get(variable) else otherwise
