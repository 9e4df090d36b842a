"""The marker of a managed environment, and options that select it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from os.path import exists, isdir, isfile
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import uv_program
from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.environment_paths import (
    environment_of,
    interpreter,
    made_for,
    packages_folders,
)
from gpuinstall.base.files import (
    read_document,
    read_json,
    sha256_of,
    write_atomically,
)
from gpuinstall.base.removal import is_link
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import Value

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
    """``gpuinstall.json``, the file that is written last."""

    id: str
    lock: str
    """The name of the lock file."""
    lock_sha256: str
    python: str
    torch: str
    backend: str
    machine: str
    """The fingerprint of the machine that was verified."""
    verdict: dict[str, Any]
    packages: Mapping[str, str] = {}
    """The installed versions of the lock's packages."""
    is_for_cpu: bool = False
    """Whether the CPU was requested."""
    scripts: Mapping[str, str] = {}
    """The SHA-256 of ``pyvenv.cfg`` and of the activation scripts."""
    has_pip: bool = False
    """Whether it has pip, which no lock file contains."""

    def write(self, venv: Path, scratch: Path | None = None) -> None:
        """Write the marker into an environment.

        Args:
            venv: The environment.
            scratch: The folder of the temporary file, on the same file system; None: the environment.
        """
        body = {"schema": MARKER_SCHEMA, **write_object(self)}
        document = json.dumps(body, indent=2)
        write_atomically(venv / NAME, f"{document}\n", scratch)


def script_digests(venv: Path) -> dict[str, str]:
    """Return the SHA-256 of ``pyvenv.cfg`` and the activation scripts."""
    digests = {}
    for file in (venv / "pyvenv.cfg", *venv.glob("bin/*activate*")):
        if isfile(file) and not is_link(file):
            digests[file.relative_to(venv).as_posix()] = sha256_of(file)
    return digests


def modified_scripts(venv: Path) -> set[str]:
    """Return the scripts that were modified since the last change."""
    marker = read_marker(venv)
    recorded = marker.scripts if marker else {}
    now = script_digests(venv)
    return {name for name in recorded.keys() & now if now[name] != recorded[name]}


class Origin(Value):
    """The devices that a managed environment was created for."""

    for_cpu: bool = False
    gpus: tuple[int, ...] | None = None
    """The GPU indices, or None for all GPUs."""


def read_marker(venv: Path) -> Marker | None:
    """Read the marker of a managed environment, if it is one."""
    with suppress(OSError, ValueError):
        # A marker behind a link does not count.
        document = read_json(venv / NAME, venv.parent)
        marker = read_object(Marker, document)
        is_valid = document.get("schema") == MARKER_SCHEMA
        is_valid &= re.fullmatch(LOCK_NAME, marker.lock) is not None
        # Another user may have written anything.
        texts = [one for one in write_object(marker).values() if isinstance(one, str)]
        if is_valid and all(re.fullmatch(_WORD, text) for text in texts):
            return marker
    return None


def read_origin(venv: Path, machine: Machine) -> Origin:
    """Return the devices that an environment was created for.

    A CPU build counts as requested if the machine still has no GPU.
    """
    marker = read_marker(venv)
    if marker is None:
        return Origin()
    if marker.is_for_cpu or (marker.backend == "cpu" and not machine.gpus):
        return Origin(for_cpu=True)
    # On another machine, the indices mean other GPUs.
    if marker.machine != fingerprint(machine):
        return Origin()
    planned = set[int]()
    # Another user may have written the verdict.
    with suppress(AttributeError, TypeError):
        planned |= {device.get("index") for device in marker.verdict["devices"]}
    indices = tuple(gpu.index for gpu in machine.gpus if gpu.index in planned)
    # A verdict about the CPU has no GPU.
    if len(indices) in {0, len(machine.gpus)}:
        return Origin()
    return Origin(gpus=indices)


def fingerprint(machine: Machine) -> str:
    """Return a digest of the system, driver, and GPUs."""
    import hashlib  # slow: loads OpenSSL

    facts = [
        machine.os,
        machine.arch,
        machine.environment.l4t,
        machine.driver and (str(machine.driver.version), str(machine.driver.cuda)),
        # AMD's kernel and driver.
        dict(machine.makers),
        [(gpu.uuid, gpu.index, gpu.code_name) for gpu in machine.gpus],
    ]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def versions_of(
    packages: Iterable[InstalledPackage], known: Collection[str] = ("pip",)
) -> dict[str, str]:
    """Return the versions of packages by name, with pip only if ``known``.

    Many environments have pip without a request for it.
    """
    versions = {package.name: package.version for package in packages}
    if "pip" not in known:
        versions.pop("pip", None)
    return versions


def added_packages(venv: Path) -> tuple[str, ...]:
    """Return packages that pip or uv added or changed: ``name version``."""
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
    """Return messages about missing and changed packages by name, torch first.

    Args:
        installed: The installed versions.
        recorded: The versions in the marker.
    """
    changed = {}
    for name in sorted(recorded, key=lambda name: (name != "torch", name)):
        version = recorded[name]
        now = installed.get(name)
        if now is None:
            changed[name] = f"{name} {version} is missing"
        elif now != version:
            changed[name] = f"{name} is {now} instead of {version}"
    return changed


def advice_words(python: Path) -> dict[str, str]:
    """Return placeholders of fixes that select an environment.

    An environment under construction has its final path.

    Returns:
        ``uv``, ``python``, and ``prefix`` are paths. ``at`` has the options of commands that
        inspect the environment. ``into`` has the options of an installation into it, and
        ``anew`` of a rebuild. ``cuda`` and ``toolkit`` are the CUDA of its torch, if any.
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
    """Return whether an environment is virtual and can be rebuilt.

    conda's environments, embedded Pythons, and the system's Python are not.
    """
    return isfile(venv / "pyvenv.cfg")


def renewing_arguments(venv: Path) -> tuple[str, ...]:
    """Return the arguments of ``install`` that select an environment.

    Unmanaged environments, conda's, and embedded Pythons need ``--into``, which keeps
    their other packages.

    Returns:
        Empty for the system's Python, so that ``install`` creates an environment.
    """
    # An embedded Python has a ._pth file. install/unmanaged.py queries the interpreter itself.
    is_embedded = any(interpreter(venv).parent.glob("*._pth"))
    if not (is_virtual(venv) or isdir(venv / "conda-meta") or is_embedded):
        return ()
    place = made_for(venv)
    arguments = ("--venv", str(place))
    # A new environment will be managed.
    if read_marker(place) or not exists(place):
        return arguments
    return ("--into", *arguments)


def torch_cuda(venv: Path) -> str:
    """Read the CUDA version of torch from the text of its ``version.py``.

    Returns:
        Empty without torch or CUDA.
    """
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", venv)
            version = re.search(_TOOLKIT, text)
            if version:
                return ".".join(version.groups())
    return ""
