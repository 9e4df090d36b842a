"""A lock's environment on a node, in one of three ways: its own, a shared one, or one unpacked from an image.

The folder of an environment has the name of its lock's digest, so that what is there already is not made again.
"""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall import process
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import InstallationError, LockError
from gpuinstall.files import remove_path, unwritable, write_atomically
from gpuinstall.fleet.surroundings import own_folder
from gpuinstall.install.install import install
from gpuinstall.install.options import InstallOptions
from gpuinstall.lock.lock import read_lock
from gpuinstall.probe import read_machine
from gpuinstall.project import Settings, open_project
from gpuinstall.request import Request
from gpuinstall.verify import verify_environment

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.fleet.run_folder import LockGroup, RunFolder
    from gpuinstall.reporter import Reporter

Mode = Literal["node", "shared", "image"]
_SQUASH = ("-quiet", "-no-progress", "-no-xattrs", "-comp", "zstd", "-processors", "4")


@dataclass(frozen=True)
class Placing:
    """Where environments lie and how they come there; ``builds`` says that this node builds what others take."""

    root: Path
    mode: Mode = "node"
    builds: bool = True

    def place(self, group: LockGroup) -> Path:
        """The folder of a lock's environment."""
        return self.root / group.digest


def install_group(group: LockGroup, folder: RunFolder, placing: Placing, reporter: Reporter) -> dict[str, Any]:
    """Bring a lock's environment here, proven on this node's GPUs; raise what installing raises."""
    place, image = placing.place(group), _image(group, folder)
    if placing.mode == "image" and not placing.builds:
        _unpack(image, place)
    if placing.mode != "node" and not placing.builds:
        return _taken(group, place, reporter)
    own_folder(placing.root)
    lock = read_lock(folder.locks / group.name / group.lock)
    if lock.sha256 != group.sha256:
        raise LockError("lock-edited", f"{lock.name} is not the lock of the plan", hint="gpuinstall fleet plan")
    write_atomically(place / lock.name, lock.text)
    request = Request(preferred_pythons=(group.python,))
    settings = Settings(request, only=True, anew=True, venv=place / ".venv", wheels=folder.wheels.absolute())
    with open_project(folder.path, settings, reporter) as project:
        done = install(project, InstallOptions(locked=True, target=lock.target, keep=False, attempts=1))
    if placing.mode == "image":
        _pack(place, image)
    return _told(done.venv, done.change, done.verdict.get("status", "unproven"))


def _taken(group: LockGroup, place: Path, reporter: Reporter) -> dict[str, Any]:
    """Prove on this node what another has built."""
    venv = place / ".venv"
    marker = read_marker(venv)
    if marker is None or marker.lock_sha256 != group.sha256:
        message = f"{venv} is not there, or of another lock: its builder failed, or this node does not share the folder"
        raise InstallationError("not-built", message, hint="gpuinstall fleet report")
    verdict = verify_environment(interpreter(venv), read_machine(reporter), reporter=reporter)
    if verdict.status == "failed":
        message = f"the kernels of {group.name} failed on this node"
        raise InstallationError("kernel-failed", message, hint="gpuinstall fleet verify says which")
    return _told(venv, "taken", verdict.status)


def _told(venv: Path, change: str, status: str) -> dict[str, Any]:
    return {"environment": str(venv), "change": change, "verdict": status}


def _image(group: LockGroup, folder: RunFolder) -> Path:
    """The image of a lock: squashfs where its programs are, else an archive that every Python can unpack."""
    squashed = shutil.which("mksquashfs") and shutil.which("unsquashfs")
    packed = folder.images / f"{group.digest}.squashfs"
    archive = packed.with_suffix(".tar.gz")
    return packed if packed.exists() or (squashed and not archive.exists()) else archive


def _pack(place: Path, image: Path) -> None:
    """Write an environment as one file, published by its rename."""
    if image.exists():
        return
    part = image.with_name(f".{image.name}.part")
    try:
        image.parent.mkdir(parents=True, exist_ok=True)
        remove_path(part)
        if image.suffix == ".squashfs":
            _run("mksquashfs", str(place), str(part), *_SQUASH)
        else:
            with tarfile.open(part, "w:gz", compresslevel=1) as packed:
                packed.add(place, arcname=".")
        part.replace(image)
    except OSError as error:
        raise unwritable(image, error) from None


def _unpack(image: Path, place: Path) -> None:
    """Make a folder of an image; what is there already stays."""
    if (place / ".venv").exists():
        return
    if not image.exists():
        raise InstallationError("not-built", f"there is no {image}: its builder failed", hint="gpuinstall fleet report")
    part = own_folder(place.parent) / f".{place.name}.part"
    remove_path(part)
    try:
        if image.suffix == ".squashfs":
            _run("unsquashfs", "-quiet", "-no-progress", "-d", str(part), str(image))
        else:
            with tarfile.open(image) as packed:
                packed.extractall(part, filter="fully_trusted")  # noqa: S202  we have packed it
        remove_path(place)
        part.rename(place)
    except OSError as error:
        raise unwritable(place, error) from None


def _run(*command: str) -> None:
    done = process.run(command)
    if not done.ok:
        last = (done.err.strip() or done.out.strip() or "without a word").splitlines()[-1]
        code = "no-space" if "No space left" in done.err else "image-failed"
        raise InstallationError(code, f"{command[0]} ended with status {done.status}: {last}", hint="df -h")
