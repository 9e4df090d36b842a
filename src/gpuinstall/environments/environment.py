"""Read and write the marker of a managed environment."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from os.path import exists, isdir, isfile
from typing import TYPE_CHECKING, Any

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.environment_paths import (
    KEPT,
    EnvironmentPaths,
    environment_folder,
    find_final_path,
    interpreter,
    packages_folders,
)
from gpuinstall.base.files import (
    file_sha256,
    read_document,
    read_json,
    real_path,
    write_atomically,
)
from gpuinstall.base.removal import is_link
from gpuinstall.base.requirement import marker_environment
from gpuinstall.base.shell import quote_word
from gpuinstall.base.values import Value
from gpuinstall.base.version import RUNNING_PYTHON
from gpuinstall.environments.stamp import read_file_stamp

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.environments.packages import InstalledPackage

MARKER_SCHEMA = "gpuinstall.environment/1"
NAME = "gpuinstall.json"
LOCK_NAME = r"pylock\.(?:[\w-]+\.)*toml"
_WORD = r"[\w .+!-]{1,100}"
_RECORDED_PYTHON = r"(?m)^version(?:_info)? *= *(3\.\d+\.\d+)"
"""The version in pyvenv.cfg; venv and uv write different keys."""
_PYTHON_FILES = ("conda-meta/python-3.*.json", "lib/python3.*", "python3?*.dll")
"""Files of conda, Linux, and Windows whose name has the Python version."""
_NAMED_PYTHON = r"python-?(3)\.?(\d+)(\.\d+)?"
_TOOLKIT = r"(?m)^cuda\b[^=\n]*= *'(\d+)\.(\d+)"


class Marker(Value):
    """Contents of ``gpuinstall.json``, which marks a managed environment."""

    id: str
    lock: str
    """The file name of the environment's lock file."""
    lock_sha256: str
    python: str
    torch: str
    backend: str
    machine: str
    """The fingerprint of the machine that last verified the environment."""
    verdict: dict[str, Any]
    packages: Mapping[str, str] = {}
    """The installed versions of the locked packages."""
    records: Mapping[str, str] = {}
    """The size, time, inode, and SHA-256 of each locked package's RECORD."""
    is_for_cpu: bool = False
    """Whether the user requested a CPU build."""
    scripts: Mapping[str, str] = {}
    """The SHA-256 of ``pyvenv.cfg`` and of the activation scripts."""
    has_pip: bool = False
    """Whether pip was installed, which is never in the lock file."""
    project: str = ".."
    """The folder of the lock file, relative if it contains the environment."""

    def find_project(self, venv: Path) -> Path:
        """Return the folder of the lock file of an environment."""
        return real_path(venv / self.project)

    def write(
        self, venv: Path, scratch: Path | None = None, *, is_cached: bool = False
    ) -> None:
        """Write the marker into an environment.

        Args:
            venv: The environment.
            scratch: The folder for the temporary file, on the same file system; None: the environment.
            is_cached: Whether a commit flushes it to disk.
        """
        body = {"schema": MARKER_SCHEMA, **write_object(self)}
        document = json.dumps(body, indent=2)
        write_atomically(venv / NAME, f"{document}\n", scratch, is_cached=is_cached)


def stamp_records(
    packages: Iterable[InstalledPackage], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the size, time, inode, and SHA-256 of each package's RECORD.

    The digest is the same in a copy of the environment.

    Args:
        packages: The packages. Packages with a missing or empty RECORD are omitted.
        known: Earlier results, whose digest is valid unless the file changed.
    """
    stamps = {}
    for package in packages:
        file = package.record / "RECORD"
        size, changed_ns, inode = read_file_stamp(str(file))
        status = f"{size} {changed_ns} {inode}"
        earlier, _, digest = known.get(package.name, "").rpartition(" ")
        if size:
            digest = digest if earlier == status else file_sha256(file)
            stamps[package.name] = f"{status} {digest}"
    return stamps


def compute_script_digests(venv: Path) -> dict[str, str]:
    """Return the SHA-256 of ``pyvenv.cfg`` and the activation scripts."""
    digests = {}
    scripts = interpreter(venv).parent
    for file in (venv / "pyvenv.cfg", *scripts.glob("*activate*")):
        if isfile(file) and not is_link(file):
            digests[file.relative_to(venv).as_posix()] = file_sha256(file)
    return digests


def find_modified_scripts(venv: Path) -> set[str]:
    """Return scripts that were modified since gpuinstall's last change."""
    marker = read_marker(venv)
    recorded = marker.scripts if marker else {}
    now = compute_script_digests(venv)
    return {name for name in recorded.keys() & now if now[name] != recorded[name]}


def read_markers(venv: Path, machine: Machine) -> dict[str, str]:
    """Return the marker values of an environment's Python."""
    # An environment whose version is unknown has no packages.
    python = read_python_version(venv) or RUNNING_PYTHON
    return marker_environment(machine.os, machine.arch, python)


def read_python_version(venv: Path) -> str:
    """Return an environment's Python version without starting its interpreter.

    Returns:
        ``X.Y.Z``, ``X.Y`` if no file records the patch release, or "" if unknown.
    """
    text = ""
    with suppress(OSError, ValueError):
        text = read_document(venv / "pyvenv.cfg", venv)
    recorded = re.search(_RECORDED_PYTHON, text)
    if recorded:
        return recorded[1]
    for pattern in _PYTHON_FILES:
        for path in sorted(venv.glob(pattern)):
            found = re.match(_NAMED_PYTHON, path.name)
            if found:
                return f"{found[1]}.{found[2]}{found[3] or ''}"
    return ""


class Origin(Value):
    """The devices for which a managed environment was created."""

    for_cpu: bool = False
    gpus: tuple[int, ...] | None = None
    """The GPU indices, or None for all GPUs."""


def read_marker(venv: Path) -> Marker | None:
    """Read the marker of an environment, or return None if it is unmanaged.

    Raises:
        OSError: The disk or the file server fails.
    """
    try:
        # Ignore a marker behind a link.
        document = read_json(venv / NAME, venv.parent)
        marker = read_object(Marker, document)
        is_valid = document.get("schema") == MARKER_SCHEMA
        is_valid &= re.fullmatch(LOCK_NAME, marker.lock) is not None
        # Another user may have written this file.
        texts = write_object(marker)
        is_valid &= texts.pop("project").isprintable()
        words = [text for text in texts.values() if isinstance(text, str)]
        if is_valid and all(re.fullmatch(_WORD, word) for word in words):
            return marker
    except (OSError, ValueError) as error:
        if getattr(error, "errno", 0) in {errno.EIO, errno.ESTALE}:
            raise
    return None


def format_project(paths: EnvironmentPaths) -> str:
    """Return the project of an environment, as a marker stores it."""
    if paths.venv.is_relative_to(paths.folder):
        # The project can be moved, and have other paths in containers.
        return os.path.relpath(paths.folder, paths.venv)
    return str(paths.folder)


def is_vacant(venv: Path) -> bool:
    """Return whether an environment's folder is missing or empty.

    A folder that cannot be listed is not empty.
    """
    if not os.path.lexists(venv):
        return True
    is_listed = isdir(venv) and os.access(venv, os.R_OK)
    return is_listed and all(path.name in KEPT for path in venv.iterdir())


def read_origin(venv: Path, machine: Machine) -> Origin:
    """Return the devices for which an environment was created.

    A CPU build counts as requested if the machine still has no GPU.
    """
    marker = read_marker(venv)
    if marker is None:
        return Origin()
    if marker.is_for_cpu or (marker.backend == "cpu" and not machine.gpus):
        return Origin(for_cpu=True)
    # Indices refer to different GPUs on another machine.
    if marker.machine != fingerprint(machine):
        return Origin()
    planned = set[int]()
    # Another user may have written the verdict.
    with suppress(AttributeError, TypeError):
        planned |= {device.get("index") for device in marker.verdict["devices"]}
    indices = tuple(gpu.index for gpu in machine.gpus if gpu.index in planned)
    # A verdict for the CPU lists no GPU.
    if len(indices) in {0, len(machine.gpus)}:
        return Origin()
    return Origin(gpus=indices)


def fingerprint(machine: Machine) -> str:
    """Return a digest of a machine's system, driver, and GPUs."""
    import hashlib  # slow: loads OpenSSL

    facts = [
        machine.os,
        machine.arch,
        machine.environment.l4t,
        machine.driver and (str(machine.driver.version), str(machine.driver.cuda)),
        # The versions of AMD's kernel module and driver.
        dict(machine.makers),
        [(gpu.uuid, gpu.index, gpu.code_name) for gpu in machine.gpus],
    ]
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def package_versions(
    packages: Iterable[InstalledPackage], known: Collection[str] = ("pip",)
) -> dict[str, str]:
    """Return package versions by name, with pip only if it is in ``known``.

    Many environments contain a pip that the user did not request.
    """
    versions = {package.name: package.version for package in packages}
    if "pip" not in known:
        versions.pop("pip", None)
    return versions


def find_added_packages(venv: Path) -> tuple[str, ...]:
    """Return the packages that pip or uv added or changed."""
    from gpuinstall.environments.packages import read_packages

    marker = read_marker(venv)
    recorded = marker.packages if marker else {}
    installed = package_versions(read_packages(packages_folders(venv)), recorded)
    return tuple(
        f"{name} {version}"
        for name, version in sorted(installed.items())
        if recorded.get(name) != version
    )


def describe_changed_packages(
    installed: Mapping[str, str], recorded: Mapping[str, str]
) -> dict[str, str]:
    """Return messages about changed packages by name, beginning with torch.

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


def create_hint_placeholders(python: Path) -> dict[str, str]:
    """Return values for the placeholders in commands of fixes.

    For a staged environment, the paths are the final paths.

    Returns:
        ``python``, ``prefix``, and ``root`` are paths. ``at`` has options for commands that
        inspect the environment, ``into`` for an installation into it, and ``anew`` for a
        rebuild. ``cuda`` and ``toolkit`` are the CUDA version of its torch, if any.
    """
    venv = environment_folder(python)
    place = find_final_path(venv)
    words = {
        "python": quote_word(place / python.relative_to(venv)),
        "prefix": quote_word(place),
        "root": quote_word(place),
        "at": f" --venv {quote_word(place)}",
    }
    cuda = torch_cuda(venv)
    if cuda:
        words["cuda"] = cuda
        words["toolkit"] = cuda.replace(".", "-")
    renewing = install_arguments(venv)
    if renewing:
        words["into"] = "".join(f" {quote_word(word)}" for word in renewing)
    if is_virtual(venv):
        words["anew"] = f"{words['at']} --replace"
    return words


def is_virtual(venv: Path) -> bool:
    """Return whether an environment is virtual, so that it can be rebuilt.

    conda environments, embedded Pythons, and the system's Python are not virtual.
    """
    return isfile(venv / "pyvenv.cfg")


def install_arguments(venv: Path) -> tuple[str, ...]:
    """Return the ``install`` arguments that select an environment.

    Unmanaged environments, conda environments, and embedded Pythons require ``--into``,
    which keeps other packages.

    Returns:
        The arguments; empty for the system's Python, so that ``install`` creates an environment.
    """
    # An embedded Python has a ._pth file. install/unmanaged.py queries the interpreter itself.
    is_embedded = any(interpreter(venv).parent.glob("*._pth"))
    if not (is_virtual(venv) or isdir(venv / "conda-meta") or is_embedded):
        return ()
    place = find_final_path(venv)
    arguments = ("--venv", str(place))
    # A new environment will be managed.
    if read_marker(place) or not exists(place):
        return arguments
    return ("--into", *arguments)


def torch_cuda(venv: Path) -> str:
    """Read torch's CUDA version from its ``version.py`` without importing it.

    Returns:
        The version; empty without torch or CUDA.
    """
    for folder in packages_folders(venv):
        with suppress(OSError, ValueError):
            text = read_document(folder / "torch" / "version.py", venv)
            version = re.search(_TOOLKIT, text)
            if version:
                return ".".join(version.groups())
    return ""
