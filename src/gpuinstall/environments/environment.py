"""An environment on a disk: the marker that says that it is ours and what it was proven on, and its packages.

Also the words by which advice names one environment, so that every command in it hits that one and no other.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from gpuinstall.base.environment_paths import environment_of, made_for, packages_folders
from gpuinstall.base.files import parse_toml, read_document, read_json, write_atomically
from gpuinstall.base.shell import quoted
from gpuinstall.base.uv import uv_in_words
from gpuinstall.base.values import dataclass
from gpuinstall.environments.packages import read_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.environments.packages import InstalledPackage

MARKER_SCHEMA = "gpuinstall.environment/1"
NAME = "gpuinstall.json"
LOCK_NAME = re.compile(r"pylock\.(?:[\w-]+\.)*toml")
_WORD = re.compile(r"[\w .+!-]{1,100}")
_BACKEND = re.compile(r"cpu|cu\d+|rocm[\d.]+|xpu")
_TOOLKIT = re.compile(r"^cuda\b[^=\n]*= *'(\d+)\.(\d+)", re.MULTILINE)


NOT_COPIED = "none"
"""What a marker says of an environment that was made anew."""


@dataclass(frozen=True)
class Marker:
    """``gpuinstall.json``, written last into an environment."""

    id: str
    """The environment's own."""
    lock: str
    """The name of the lock's file."""
    lock_sha256: str
    python: str
    torch: str
    backend: str
    machine: str
    """The fingerprint of the machine that ``verdict`` was reached on."""
    verdict: dict[str, Any]
    copied_from: str = NOT_COPIED
    """The id of the environment of which it was a copy: all that was the user's in that is in this one too."""

    def write(self, venv: Path) -> None:
        """Write it into an environment."""
        document = json.dumps({"schema": MARKER_SCHEMA} | asdict(self), indent=2)
        write_atomically(venv / NAME, f"{document}\n")


@dataclass(frozen=True)
class Origin:
    """What an environment was made for; nothing if it is not of our making."""

    for_cpu: bool = False
    gpus: tuple[int, ...] | None = None
    """The indices of some of the machine's GPUs; None: all of them."""


def read_marker(venv: Path) -> Marker | None:
    """Return an environment's marker; None if it is not one of ours."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        document = read_json(venv / NAME, venv)
        if (
            not isinstance(document, dict)
            or document.pop("schema", None) != MARKER_SCHEMA
        ):
            return None
        marker = Marker(**document)
        # It may be a stranger's, and hold what we would not have written.
        verdict = document.pop("verdict")
        is_plain = all(map(_WORD.fullmatch, document.values()))
        if is_plain and isinstance(verdict, dict) and LOCK_NAME.fullmatch(marker.lock):
            return marker
    return None


def read_origin(venv: Path, machine: Machine) -> Origin:
    """Return what an environment was made for: the CPU was requested, or was all there was and still is."""
    marker = read_marker(venv)
    if marker is None:
        return Origin()
    lock = _read_lock(venv / marker.lock)
    evidence = _table(_table(lock.get("tool")).get("gpuinstall"))
    if evidence.get("asked") == "cpu":
        return Origin(for_cpu=True)
    if evidence.get("backend") == "cpu" and not machine.gpus:
        return Origin(for_cpu=True)
    if marker.machine != fingerprint(machine):
        return Origin()
    devices = _tables(marker.verdict.get("devices"))
    planned = [device.get("index") for device in devices]
    indices = tuple(gpu.index for gpu in machine.gpus if gpu.index in planned)
    if len(indices) in {0, len(machine.gpus)}:
        return Origin()
    return Origin(gpus=indices)


def fingerprint(machine: Machine) -> str:
    """Return a digest of what a proof depends on: system, driver and GPUs."""
    import hashlib  # loads OpenSSL, which a plan does without

    facts = [
        machine.os,
        machine.arch,
        machine.environment.l4t,
        machine.driver and (str(machine.driver.version), str(machine.driver.cuda)),
        [(gpu.uuid, gpu.index, str(gpu.compute_capability)) for gpu in machine.gpus],
    ]
    text = json.dumps(facts)
    return hashlib.sha256(text.encode()).hexdigest()


def packages_called(
    names: Collection[str],
    folders: Iterable[Path],
) -> list[InstalledPackage]:
    """Return those of the packages in some folders that have one of these names."""
    return [package for package in read_packages(folders) if package.name in names]


def installed_packages(venv: Path) -> dict[str, str]:
    """Return the version of each package in an environment."""
    packages = read_packages(packages_folders(venv))
    return {package.name: package.version for package in packages}


def added_packages(venv: Path) -> tuple[str, ...]:
    """Return the packages that pip or uv added to an environment, or exchanged, as ``name version``."""
    installed = installed_packages(venv)
    marker = read_marker(venv)
    lock = _read_lock(venv / marker.lock) if marker else {}
    locked = {}
    for row in _tables(lock.get("packages")):
        name = str(row.get("name"))
        # A lock has no version of what comes from a folder or a repository.
        locked[name] = str(row.get("version") or installed.get(name, ""))
    if "pip" not in locked:
        installed.pop("pip", None)
    return unlocked_packages(installed, locked)


def unlocked_packages(
    installed: Mapping[str, str],
    locked: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the packages that a lock does not hold, or holds in another version, as ``name version``."""
    unlocked = []
    for name, version in sorted(installed.items()):
        if name not in locked or not _is_same(version, locked[name]):
            unlocked.append(f"{name} {version}")
    return tuple(unlocked)


def _is_same(installed: str, locked: str) -> bool:
    """Whether a package may call itself ``installed`` if its file is ``locked``.

    Files of extensions say in their names which torch they are for (+cu12torch2.13), and not always inside. Of torch's
    own builds, which say just their backend (+cu126), a package without it is another build.
    """
    try:
        version = Version(installed)
        expected = Version(locked)
    except InvalidVersion:
        return installed == locked
    if version.local or not expected.local or _BACKEND.fullmatch(expected.local):
        return version == expected
    return version.public == expected.public


def changed_build(
    installed: Mapping[str, str],
    locked: Mapping[str, str],
    is_tied: Callable[[str], bool],
) -> str:
    """Return how torch, or what comes with its build, is not what was locked; empty if it is.

    Args:
        installed: The versions of its packages, without the pip that every environment has.
        locked: Those in its lock.
        is_tied: Whether the build of torch decides the version of a package.
    """
    changed = locked.keys() - installed.keys()
    for text in unlocked_packages(installed, locked):
        changed.add(text.partition(" ")[0])
    tied = sorted(filter(is_tied, changed & locked.keys()))
    if not tied:
        return ""
    first = "torch" if "torch" in tied else tied[0]
    if first not in installed:
        return f"{first} {locked[first]} is missing"
    return f"{first} is {installed[first]} instead of {locked[first]}"


def damaged_torch(venv: Path) -> str:
    """Return which file of the torch in an environment is gone or cut; empty if it is whole."""
    for torch in packages_called({"torch"}, packages_folders(venv)):
        if torch.lost:
            return f"torch {torch.version} is damaged: {torch.lost[0]} is missing or truncated"
    return ""


def advice_words(python: Path) -> dict[str, str]:
    """Return the words by which advice names the environment of an interpreter.

    One that is being built is named by the place that it is built for.

    Returns:
        ``uv``; ``python`` and ``prefix``; ``at``, which follows a command that
        looks at it; ``into``, which follows one that brings another torch into it, and ``anew`` one that makes it
        again, the one before being kept; ``cuda`` and ``toolkit``, the CUDA of its torch, absent if it has none.
    """
    venv = environment_of(python)
    place = made_for(venv)
    words = {
        "uv": uv_in_words(),
        "python": quoted(place / python.relative_to(venv)),
        "prefix": quoted(place),
        **_toolkit(venv),
        "at": f" --venv {quoted(place)}",
    }
    renewing = renewing_arguments(venv)
    if renewing:
        words["into"] = "".join(f" {quoted(word)}" for word in renewing)
        words["anew"] = f"{words['at']} --replace"
    return words


def renewing_arguments(venv: Path) -> tuple[str, ...]:
    """Return the arguments by which our ``install`` brings the right build into an environment.

    Into one of others it goes with ``--into``, and what others installed stays. ``--replace`` is among them if ours
    has packages of others: the environment before is kept. What is no virtual environment (conda's, the system's, a
    portable one) is never installed into by us: without arguments an environment of its own is made.
    """
    if not (venv / "pyvenv.cfg").is_file():
        return ()
    arguments = ("--venv", str(made_for(venv)))
    if read_marker(venv) is None:
        return ("--into", *arguments)
    return (*arguments, "--replace") if added_packages(venv) else arguments


def _read_lock(lock: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return parse_toml(read_document(lock, lock.parent))
    return {}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict)]


def _toolkit(venv: Path) -> dict[str, str]:
    """Read the CUDA of an environment's torch from the text of its version, which is not run."""
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", venv)
            version = _TOOLKIT.search(text)
            if version:
                major, minor = version.groups()
                return {"cuda": f"{major}.{minor}", "toolkit": f"{major}-{minor}"}
    return {}
