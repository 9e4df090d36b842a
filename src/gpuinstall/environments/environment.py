"""An environment on a disk: the marker that says that it is ours and what it was proven on, and its packages.

And the words by which advice names one environment, so that every command in it hits that one and no other.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.paths import environment_of, made_for, packages_folders
from gpuinstall.files import parse_toml, read_document, read_json, write_atomically
from gpuinstall.shell import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpuinstall.machine import Machine

MARKER_SCHEMA = "gpuinstall.environment/1"
NAME = "gpuinstall.json"
LOCK_NAME = re.compile(r"pylock\.(?:[\w-]+\.)*toml")
_WORD = re.compile(r"[\w .+!-]{1,100}")
_BACKEND = re.compile(r"cpu|cu\d+|rocm[\d.]+|xpu")
_TOOLKIT = re.compile(r"^cuda\b[^=\n]*= *'(\d+)\.(\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Marker:
    """``gpuinstall.json``, written last into an environment. ``id`` is its own, ``lock`` the name of the lock's file.

    ``machine`` is the fingerprint of the machine that ``verdict`` was reached on.
    """

    id: str
    lock: str
    lock_sha256: str
    python: str
    torch: str
    backend: str
    machine: str
    verdict: dict[str, Any]

    def write(self, venv: Path) -> None:
        """Write it into an environment."""
        write_atomically(
            venv / NAME, json.dumps({"schema": MARKER_SCHEMA} | asdict(self), indent=2) + "\n"
        )


@dataclass(frozen=True)
class Origin:
    """What an environment was made for; nothing where it is not of our making. ``gpus`` None: all of them."""

    for_cpu: bool = False
    gpus: tuple[int, ...] | None = None


def read_marker(venv: Path) -> Marker | None:
    """Read an environment's marker; None where it is not one of ours."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        document = read_json(venv / NAME, venv)
        if (
            isinstance(document, dict)
            and document.pop("schema", None) == MARKER_SCHEMA
            and _is_plain(document)
        ):
            return Marker(**document)
    return None


def read_origin(venv: Path, machine: Machine) -> Origin:
    """Read what an environment was made for: the CPU was asked for, or was all there was and still is."""
    marker = read_marker(venv)
    if marker is None:
        return Origin()
    tool = _read_lock(venv / marker.lock).get("tool")
    evidence = tool.get("gpuinstall") if isinstance(tool, dict) else None
    evidence = evidence if isinstance(evidence, dict) else {}
    if evidence.get("asked") == "cpu" or (evidence.get("backend") == "cpu" and not machine.gpus):
        return Origin(for_cpu=True)
    proven = marker.verdict.get("devices") if marker.machine == fingerprint(machine) else None
    planned = (
        [row.get("index") for row in proven if isinstance(row, dict)]
        if isinstance(proven, list)
        else []
    )
    indices = tuple(gpu.index for gpu in machine.gpus if gpu.index in planned)
    return Origin(gpus=indices if indices and len(indices) < len(machine.gpus) else None)


def fingerprint(machine: Machine) -> str:
    """Digest what a proof depends on: system, driver and GPUs."""
    driver = machine.driver and (str(machine.driver.version), str(machine.driver.cuda))
    gpus = [(gpu.uuid, gpu.index, str(gpu.compute_capability)) for gpu in machine.gpus]
    facts = [machine.os, machine.arch, machine.environment.l4t, driver, gpus]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def installed_packages(venv: Path) -> dict[str, str]:
    """The version of each package in an environment."""
    return {package.name: package.version for package in read_packages(packages_folders(venv))}


def locked_versions(venv: Path, marker: Marker) -> dict[str, str]:
    """The version of each package in an environment's own lock; empty for what comes from a folder or a repository."""
    rows = _read_lock(venv / marker.lock).get("packages")
    rows = rows if isinstance(rows, list) else []
    return {
        str(row.get("name")): str(row.get("version") or "") for row in rows if isinstance(row, dict)
    }


def added_packages(venv: Path) -> tuple[str, ...]:
    """Return the packages that pip or uv added to an environment, or exchanged, as ``name version``."""
    installed = installed_packages(venv)
    marker = read_marker(venv)
    locked = dict[str, str]()
    for name, version in locked_versions(venv, marker).items() if marker else ():
        # A lock has no version of what comes from a folder or a repository.
        locked[name] = version or installed.get(name, "")
    if "pip" not in locked:
        installed.pop("pip", None)
    return unlocked_packages(installed, locked)


def unlocked_packages(installed: Mapping[str, str], locked: Mapping[str, str]) -> tuple[str, ...]:
    """Name the packages that a lock does not hold, or holds in another version."""

    def is_locked(name: str, version: str) -> bool:
        try:
            return name in locked and _is_same(Version(version), Version(locked[name]))
        except InvalidVersion:
            return version == locked.get(name)

    return tuple(
        f"{name} {version}"
        for name, version in sorted(installed.items())
        if not is_locked(name, version)
    )


def _is_same(installed: Version, locked: Version) -> bool:
    """Whether a package may call itself ``installed`` if its file is ``locked``.

    Files of extensions say in their names which torch they are for (+cu12torch2.13), and not always inside. Of torch's
    own builds, which say just their backend (+cu126), a package without it is another build.
    """
    if installed.local or not locked.local or _BACKEND.fullmatch(locked.local):
        return installed == locked
    return installed.public == locked.public


def changed_build(
    venv: Path,
    installed: Mapping[str, str],
    locked: Mapping[str, str],
    is_tied: Callable[[str], bool],
) -> str:
    """Say how torch, or what comes with its build, is not what was locked, and by whom; nothing where it is.

    ``installed`` are the packages of ``venv``, without the pip that every environment has.
    """
    others = {text.partition(" ")[0] for text in unlocked_packages(installed, locked)}
    changed = others | (locked.keys() - installed.keys())
    tied = sorted(
        filter(is_tied, changed & locked.keys()), key=lambda name: (name != "torch", name)
    )
    if not tied:
        return ""
    by = {package.name: package.installer for package in read_packages(packages_folders(venv))}.get(
        tied[0]
    )
    was, now, who = locked[tied[0]], installed.get(tied[0]), f", installed by {by}," if by else ""
    rest = len(changed) - 1
    more = f"; {rest} more package{'s were' if rest > 1 else ' was'} changed" if rest else ""
    return (
        f"{tied[0]} is {now}{who} instead of {was}" if now else f"{tied[0]} {was} is missing"
    ) + more


def damaged_torch(venv: Path) -> str:
    """Name a file of the torch in an environment that is gone or cut; empty where it is whole."""
    damaged = (
        one for one in read_packages(packages_folders(venv)) if one.name == "torch" and one.lost
    )
    return next(
        (
            f"torch {one.version} is damaged: {one.lost[0]} is missing or truncated"
            for one in damaged
        ),
        "",
    )


def advice_words(python: Path) -> dict[str, str]:
    """Name the environment of an interpreter: ``at`` follows a command that looks at it, ``into`` one that renews it.

    ``cuda`` and ``toolkit`` are the CUDA of its torch, absent where it has none. One that is being built is named by
    the place that it is built for.
    """
    venv = environment_of(python)
    place = made_for(venv)
    words = {
        "python": quoted(place / python.relative_to(venv)),
        "prefix": quoted(place),
    } | _toolkit(venv)
    words["at"] = f" --venv {quoted(place)}"
    if renewing := renewing_arguments(venv):
        words["into"] = "".join(f" {quoted(word)}" for word in renewing)
    return words


def renewing_arguments(venv: Path) -> tuple[str, ...]:
    """Give the arguments by which our ``install`` makes an environment again; the one before is kept.

    ``--replace`` is among them where it would refuse: in environments of others, and where something else has changed
    the packages. What is no virtual environment (conda's, the system's, a portable one) is never installed into by us:
    without arguments an environment of its own is made.
    """
    if not (venv / "pyvenv.cfg").is_file():
        return ()
    changed = read_marker(venv) is None or added_packages(venv)
    return ("--venv", str(made_for(venv)), *(("--replace",) if changed else ()))


def _is_plain(document: dict[str, Any]) -> bool:
    """Say whether a marker holds what we would have written: it may be a stranger's."""
    words = {key: value for key, value in document.items() if key != "verdict"}
    plain = all(isinstance(word, str) and _WORD.fullmatch(word) for word in words.values())
    return (
        plain
        and LOCK_NAME.fullmatch(words["lock"]) is not None
        and isinstance(document["verdict"], dict)
    )


def _read_lock(lock: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return parse_toml(read_document(lock, lock.parent))
    return {}


def _toolkit(venv: Path) -> dict[str, str]:
    """Read the CUDA of an environment's torch from the text of its version, which is not run."""
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            version = _TOOLKIT.search(read_document(folder / "torch" / "version.py", venv))
            if version:
                return {
                    "cuda": f"{version[1]}.{version[2]}",
                    "toolkit": f"{version[1]}-{version[2]}",
                }
    return {}
