"""An environment on a disk: the marker that says that it is ours and what it was proven on, and its packages.

Also the words by which advice names one environment, so that every command in it hits that one and no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from os.path import exists, isdir, isfile
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import uv_program
from gpuinstall.base.codec import read_object
from gpuinstall.base.environment_paths import (
    environment_of,
    interpreter,
    made_for,
    packages_folders,
)
from gpuinstall.base.files import read_document, read_json, write_atomically
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import Value, asdict

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.environments.packages import InstalledPackage

MARKER_SCHEMA = "gpuinstall.environment/1"
NAME = "gpuinstall.json"
LOCK_NAME = r"pylock\.(?:[\w-]+\.)*toml"
_WORD = r"[\w .+!-]{1,100}"
_TOOLKIT = r"(?m)^cuda\b[^=\n]*= *'(\d+)\.(\d+)"


class Marker(Value):
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
    packages: Mapping[str, str] = {}
    """The version of each package of its lock, as the installation left it."""
    is_for_cpu: bool = False
    """Whether the CPU was requested, whatever GPUs there are."""

    def write(self, venv: Path) -> None:
        """Write it into an environment."""
        document = json.dumps({"schema": MARKER_SCHEMA} | asdict(self), indent=2)
        write_atomically(venv / NAME, f"{document}\n")


class Origin(Value):
    """What an environment was made for; nothing if it is not of our making."""

    for_cpu: bool = False
    gpus: tuple[int, ...] | None = None
    """The indices of some of the machine's GPUs; None: all of them."""


def read_marker(venv: Path) -> Marker | None:
    """Return an environment's marker; None if it is not one of ours."""
    with suppress(OSError, ValueError):
        # Nor is one that a link in a folder leads to.
        document = read_json(venv / NAME, venv.parent)
        marker = read_object(Marker, document)
        # It may be a stranger's, and hold what we would not have written.
        texts = [text for text in asdict(marker).values() if isinstance(text, str)]
        is_ours = document.get("schema") == MARKER_SCHEMA and re.fullmatch(
            LOCK_NAME, marker.lock
        )
        if is_ours and all(re.fullmatch(_WORD, text) for text in texts):
            return marker
    return None


def read_origin(venv: Path, machine: Machine) -> Origin:
    """Return the origin of an environment: whether the CPU was requested, or was all there was and still is."""
    marker = read_marker(venv)
    if marker is None:
        return Origin()
    if marker.is_for_cpu or (marker.backend == "cpu" and not machine.gpus):
        return Origin(for_cpu=True)
    # On another machine the indices mean other cards.
    if marker.machine != fingerprint(machine):
        return Origin()
    planned = set[int]()
    # It may be a stranger's.
    with suppress(AttributeError, TypeError):
        planned |= {device.get("index") for device in marker.verdict["devices"]}
    indices = tuple(gpu.index for gpu in machine.gpus if gpu.index in planned)
    if len(indices) in {0, len(machine.gpus)}:
        # A verdict on the CPU names no card, and all of them need no list.
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
        # AMD's kernel and driver are facts of their maker.
        dict(machine.makers),
        [(gpu.uuid, gpu.index, gpu.code_name) for gpu in machine.gpus],
    ]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def versions_of(
    packages: Iterable[InstalledPackage], known: Collection[str] = ("pip",)
) -> dict[str, str]:
    """Return the version of each package by its name; of pip, which every environment has, only if it is ``known``."""
    versions = {package.name: package.version for package in packages}
    if "pip" not in known:
        versions.pop("pip", None)
    return versions


def added_packages(venv: Path) -> tuple[str, ...]:
    """Return the packages that pip or uv added to an environment, or exchanged, as ``name version``."""
    from gpuinstall.environments.packages import read_packages

    marker = read_marker(venv)
    recorded = marker.packages if marker else {}
    installed = versions_of(read_packages(packages_folders(venv)), recorded)
    return tuple(
        f"{name} {version}"
        for name, version in sorted(installed.items())
        if recorded.get(name) != version
    )


def changed_packages(
    installed: Mapping[str, str], recorded: Mapping[str, str]
) -> dict[str, str]:
    """Return in words which packages are gone or have another version than is recorded, by their names, torch first.

    Args:
        installed: The versions of an environment's packages.
        recorded: Those that its marker has.
    """
    changed = {}
    for name in sorted(recorded, key=lambda name: (name != "torch", name)):
        version = recorded[name]
        now = installed.get(name)
        if now is None:
            changed[name] = f"{name} {version} is gone"
        elif now != version:
            changed[name] = f"{name} is {now} instead of {version}"
    return changed


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
        "uv": quoted(uv_program()),
        "python": quoted(place / python.relative_to(venv)),
        "prefix": quoted(place),
        "at": f" --venv {quoted(place)}",
    }
    cuda = torch_cuda(venv)
    if cuda:
        words["cuda"] = cuda
        words["toolkit"] = cuda.replace(".", "-")
    renewing = renewing_arguments(venv)
    if renewing:
        words["into"] = "".join(f" {quoted(word)}" for word in renewing)
    if is_virtual(venv):
        words["anew"] = f"{words['at']} --replace"
    return words


def is_virtual(venv: Path) -> bool:
    """Whether an environment is a virtual one, which can be made again; conda's, a portable Python, the system's are none."""
    return isfile(venv / "pyvenv.cfg")


def renewing_arguments(venv: Path) -> tuple[str, ...]:
    """Return the arguments by which our ``install`` brings the right build into an environment.

    Into one of others it goes with ``--into``, also into conda's and an embedded one; what others installed stays in
    both. The system's is never installed into: without arguments an environment of its own is made.
    """
    # These mark a Python that is one program's alone (``install/foreign.py`` asks the interpreter itself).
    is_others = isdir(venv / "conda-meta") or any(
        interpreter(venv).parent.glob("*._pth")
    )
    if not (is_virtual(venv) or is_others):
        return ()
    place = made_for(venv)
    arguments = ("--venv", str(place))
    # What is built where nothing lies becomes one of ours.
    if read_marker(place) or not exists(place):
        return arguments
    return ("--into", *arguments)


def torch_cuda(venv: Path) -> str:
    """Return the CUDA of an environment's torch, by the text of its version, which is not run; "" if it has none."""
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", venv)
            version = re.search(_TOOLKIT, text)
            if version:
                return ".".join(version.groups())
    return ""
