"""Python interpreters on this machine.

The paths of most interpreters contain the version. Other interpreters, such as the
shims of version managers, are started once to read the version.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from gpuinstall.base.advice import make_change
from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import xdg_folder
from gpuinstall.base.process import is_startable, list_program_folders, run_python
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import TextOrigin
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import version_key
from gpuinstall.machine.children import describe_end, json_lines, json_or_none
from gpuinstall.machine.source import Source

_Answer = TypeVar("_Answer")

_FINAL = r"(3\.[0-9]{1,2}(?:\.[0-9]{1,2})?)"
"""A final release of Python, such as ``3.11`` or ``3.11.7``."""

_NAME = rf"python(?:3|{_FINAL})?(?:\.exe)?"
_FOLDER = rf"/(?:versions/|cpython-){_FINAL}[/-]"
"""The folder of a Python version that pyenv or uv manages.

The folder's name has the patch release. The program's name has only ``3.11``.
"""

_VERSION = r"(?:c?python[@-]?)?(\d+\.\d+(?:\.\d+)?t?)"
"""A Python version in uv's format."""

_START_SECONDS = 5.0
_SCRIPT = """
import json, sys
if sys.implementation.name != "cpython":
    sys.exit("it is %s, not CPython" % sys.implementation.name)
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "level": sys.version_info[3],
    "flags": getattr(sys, "abiflags", ""),
    "base": getattr(sys, "_base_executable", None) or sys.executable,
}))
"""


class Python(Value):
    """Facts that a started interpreter reports."""

    version: str
    """The Python release, such as ``3.12.1``."""
    base: str
    """The base interpreter that a shim or virtual environment uses."""
    level: str
    """The release level: ``final``, ``candidate``, ``beta``, or ``alpha``."""
    flags: str

    @property
    def minor(self) -> str:
        """The version to request: ``3.12``, or ``3.13t`` (free-threaded)."""
        suffix = "t" if "t" in self.flags else ""
        return ".".join(self.version.split(".")[:2]) + suffix

    @property
    def is_standard_release(self) -> bool:
        """Whether this is a final release with the global interpreter lock."""
        return self.level == "final" and "t" not in self.flags


@cache
def start_python(program: Path) -> Python | UsageError:
    """Start an interpreter to read its version, at most once per process."""
    try:
        argv = (program, "-I", "-S", "-c", _SCRIPT)
        return run_script(Python, argv, _START_SECONDS)
    except UsageError as error:
        return error


def run_script(
    kind: type[_Answer], argv: Sequence[str | Path], seconds: float | None = None
) -> _Answer:
    """Run one of gpuinstall's scripts, and parse the report that it prints.

    Args:
        kind: The type of the report.
        argv: The interpreter and its arguments.
        seconds: The time limit. None: the limit for an interpreter query.

    Raises:
        UsageError: The interpreter does not run.
    """
    from gpuinstall.base.timeouts import read_timeouts

    seconds = seconds or read_timeouts().interpreter_query
    try:
        done = run_python(argv, seconds=seconds)
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        # Startup files may print further lines.
        for answer in reversed(json_lines(done)):
            with suppress(ValueError):
                return read_object(kind, answer)
        reason = describe_end(done, seconds)
    raise UsageError(
        "python-unusable",
        f"{argv[0]} cannot be run as a Python interpreter",
        why=reason,
        hint="Select another interpreter with --python PATH or --venv DIR",
    )


def select_base_python(request: Request) -> tuple[Request, Path | None]:
    """Start the interpreter that a request selects by path or name.

    Args:
        request: The request.

    Returns:
        The request with the version ``X.Y`` of this interpreter, and the interpreter
        that creates environments, which is None if the request has a version.

    Raises:
        UsageError: The interpreter does not exist, or cannot be started.
    """
    name = request.python
    if not name:
        return request, None
    version, preferred, base = python_version(name), request.preferred_pythons, None
    if not version and (re.search(r"[/\\]", name) or find_named_python(name)):
        program = find_interpreter(name)
        python = start_python(program)
        if isinstance(python, UsageError):
            python.fixes = (make_change("--python", "3.12"),)
            raise python
        version, base = python.minor, Path(python.base)
        preferred = (python.version, *preferred)
    if not version:
        return request, None
    place = request.places.get(name, TextOrigin(name))
    places = {**request.places, version: place}
    request = replace(
        request, python=version, preferred_pythons=preferred, places=places
    )
    return request, base


def python_version(text: str) -> str | None:
    """Return the version in a name such as ``python3.12``, in uv's format.

    A version specifier is returned unchanged.

    Returns:
        The version or specifier, or None if the text is neither.
    """
    version = re.fullmatch(_VERSION, text)
    if version:
        return version[1]
    return text if text.startswith(("<", ">", "=", "!", "~")) else None


def find_interpreter(name: str) -> Path:
    """Return the interpreter at a path, or with a name on PATH.

    Raises:
        UsageError: The interpreter does not exist.
    """
    program = find_named_python(name)
    if program is None:
        raise UsageError(
            "python-missing", f"no such interpreter: {name}", hint="Check the path"
        )
    return program


def find_named_python(name: str) -> Path | None:
    """Return the interpreter at a path, or with a name on PATH, if any."""
    import shutil  # slow to import

    program = shutil.which(name, path=os.pathsep.join(list_program_folders()))
    # Keep symbolic links, because an environment's links lead to its base interpreter.
    return Path(program).absolute() if program else None


def read_active_python() -> str | None:
    """Return the version of the interpreter that the user runs, if known.

    It is ``python3`` on PATH (Windows: ``python``), which an active environment replaces.
    """
    program = find_named_python("python" if sys.platform == "win32" else "python3")
    if program is None or not _is_safe_to_start(program):
        return None
    version = _parse_path_version(program)
    if version:
        return version
    python = start_python(program)
    if isinstance(python, Python) and python.is_standard_release:
        return python.version
    return None


def read_pythons(source: Source) -> tuple[str, ...]:
    """Return the Python versions on this machine, oldest first.

    A Python with an unknown patch release has a version such as ``3.11``.
    """

    def list_versions() -> str:
        versions = {version for version, _ in _find_installed()}
        return json.dumps(sorted(versions))

    return drop_redundant_minors(
        json_or_none(source.answer("pythons.json", list_versions)) or ()
    )


def drop_redundant_minors(versions: Sequence[str]) -> tuple[str, ...]:
    """Sort Python versions, and drop ``3.11`` if ``3.11.7`` is present."""
    minors_of_patches = {version.rpartition(".")[0] for version in versions}
    return tuple(sorted(set(versions) - minors_of_patches, key=version_key))


def find_python(version: str) -> Path | None:
    """Return the newest working interpreter for a Python version ``X.Y``."""
    installed = [one for one in _find_installed() if _has_version(one[0], version)]
    newest_first = sorted(installed, key=lambda one: version_key(one[0]), reverse=True)
    for _, program in newest_first:
        python = start_python(program)
        if isinstance(python, Python) and _has_version(python.version, version):
            return Path(python.base)
    return None


def _has_version(installed: str, version: str) -> bool:
    # With a dot appended to both, 3.1 is not a prefix of 3.11.
    return f"{installed}.".startswith(f"{version}.")


def _find_installed() -> list[tuple[str, Path]]:
    """Return the version and path of each installed interpreter."""
    # Include the base interpreter of gpuinstall's environment.
    base = getattr(sys, "_base_executable", sys.executable)
    found = [(platform.python_version(), Path(base))]
    unknown = []
    for program in (*_find_path_interpreters(), *_find_managed_interpreters()):
        if is_startable(program):
            version = _parse_path_version(program)
            if version:
                found.append((version, program))
            else:
                unknown.append(program)
    seen = [version for version, _ in found]
    started = [one for one in unknown if not _is_version_found(one, seen)]
    pythons = map_concurrently(start_python, started)
    for program, python in zip(started, pythons, strict=True):
        if isinstance(python, Python) and python.is_standard_release:
            found.append((python.version, program))
    return found


def _is_version_found(program: Path, versions: Sequence[str]) -> bool:
    """Return whether another interpreter has the version of a shim."""
    if not _is_shims_folder(program.parent):
        return False
    version = _parse_name_version(program)
    # Skip a shim without a version, because version managers have another shim for each version.
    return not version or any(_has_version(one, version) for one in versions)


def _is_shims_folder(folder: Path) -> bool:
    return folder.name == "shims"


def _find_path_interpreters() -> Iterator[Path]:
    for folder in _read_path_folders():
        for name in Source().names(str(folder), "python"):
            if re.fullmatch(_NAME, name) and _is_safe_to_start(folder / name):
                yield folder / name


def _is_safe_to_start(program: Path) -> bool:
    """Return whether an interpreter can be started without a window.

    Apple's stub opens one if the developer tools are missing.
    """
    return sys.platform != "darwin" or program.parent != Path("/usr/bin")


def _read_path_folders() -> list[Path]:
    return [*map(Path, list_program_folders())]


def _find_managed_interpreters() -> Iterator[Path]:
    """Yield possible paths of interpreters that pyenv or uv manages."""
    is_windows = sys.platform == "win32"
    data = xdg_folder("XDG_DATA_HOME", ".local/share")
    if is_windows:
        data = xdg_folder("APPDATA", "")
    roots = [
        xdg_folder("PYENV_ROOT", ".pyenv") / "versions",
        xdg_folder("UV_PYTHON_INSTALL_DIR", str(data / "uv" / "python")),
    ]
    # pyenv's folder may be in another user's home.
    roots += [
        folder.parent / "versions"
        for folder in _read_path_folders()
        if _is_shims_folder(folder)
    ]
    for versions in dict.fromkeys(roots):
        for name in Source().names(str(versions)):
            yield versions / name / ("python.exe" if is_windows else "bin/python3")


def _parse_path_version(program: Path) -> str | None:
    """Return the Python version in the resolved path of an interpreter.

    Returns:
        The version in the name of the manager's folder or of the program, or None for
        shims and unknown versions.
    """
    if _is_shims_folder(program.parent):
        return None
    real = Path(os.path.realpath(program))
    folder = re.search(_FOLDER, real.as_posix())
    return folder[1] if folder else _parse_name_version(real)


def _parse_name_version(program: Path) -> str | None:
    name = re.fullmatch(_NAME, program.name)
    return name[1] if name else None
