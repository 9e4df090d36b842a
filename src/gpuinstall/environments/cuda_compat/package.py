"""The package cuda-compat: where its archive is, and how it is fetched and unpacked."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import tarfile
import zlib
from contextlib import ExitStack, suppress
from os.path import exists, isdir, isfile, islink
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from gpuinstall.base.environment_paths import COMPAT_FOLDER
from gpuinstall.base.errors import InstallationError, MachineError, UsageError
from gpuinstall.base.files import (
    make_private_folder,
    own_cache_folder,
    parse_json,
    sha256_of,
    write_atomically,
    writing,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.in_use import scratch_folder
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import readable
from gpuinstall.base.versions import DriverVersion, numbers
from gpuinstall.catalog.drivers import CompatPackage, load_drivers
from gpuinstall.environments.cuda_compat.libraries import (
    CompatLibraries,
    MachineHere,
    check_place,
    loaded_first,
    machine_with,
)
from gpuinstall.machine.nvidia.compat import unsupported
from gpuinstall.machine.nvidia.driver import MachineDriver
from gpuinstall.machine.nvidia.libraries import LIBCUDA
from gpuinstall.machine.probe import read_machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.sources.session import Session

_COMPONENT = "cuda_compat"

# NVIDIA's redistributables call Arm servers by their standard, SBSA.
_PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}

_SHA256 = re.compile(r"[0-9a-f]{64}")

_MOST_BYTES = 2 << 30
"""What an archive may unpack to: that of CUDA 13.3 has some 300 MB of libraries in 101 MB."""

_LIBRARY = re.compile(r"lib(?:cuda|cudadebugger|nvidia-[a-z0-9]+)\.so(?:\.[0-9]+)*")

# Each decompressor has an exception of its own for damaged bytes; a file that is cut off ends in EOFError.
_DAMAGES = (EOFError, ValueError, lzma.LZMAError, tarfile.TarError, zlib.error)

COMPAT_PLACE = "GPUINSTALL_CUDA_COMPAT_FROM"
"""The variable that names an archive, or a manifest, to take in place of NVIDIA's."""

_PACKAGE = "cuda-compat"


class CompatArchive(NamedTuple):
    """An archive that can be fetched."""

    address: str
    """Its URL, or the path of a file or a folder."""
    sha256: str | None = None
    size: int | None = None
    """In bytes."""
    license: str = "NVIDIA's licence"
    """The name of its licence."""

    @property
    def is_local(self) -> bool:
        """Whether it lies on this machine."""
        return "://" not in self.address

    def __str__(self) -> str:
        parts = [
            self.address,
            readable(self.size) if self.size else "",
            f"licence: {self.license}",
        ]
        return " · ".join(filter(None, parts))


def find_archive(
    given: str,
    packages: Sequence[CompatPackage],
    arch: str,
    session: Session,
) -> CompatArchive:
    """Return the archive to fetch.

    Args:
        given: The URL of an archive or of a manifest, a path, or empty for NVIDIA's own.
        packages: Those that serve the machine, the first choice first.
        arch: The processor.
        session: Asks for manifests.

    Raises:
        UsageError: There is nothing at a path.
        InstallationError: No manifest lists an archive.
    """
    manifests = [package.manifest for package in packages]
    if given:
        if "://" not in given:
            if not exists(given):
                raise UsageError(
                    "file-unreadable", f"{given} is neither a file nor a folder"
                )
            return CompatArchive(given)
        if not urlsplit(given).path.endswith(".json"):
            return CompatArchive(given)
        manifests = [given]
    for manifest in manifests:
        page = session.client.page(manifest)
        archive = page and listed_archive(page.text, manifest, arch)
        if archive:
            return archive
    raise InstallationError(
        "cuda-compat-not-listed",
        f"no manifest lists cuda-compat for linux {arch}: {', '.join(manifests) or 'none is known'}",
        hint=f"Set {COMPAT_PLACE} to the path of a tar or a folder",
    )


def listed_archive(
    text: str,
    manifest: str,
    arch: str,
) -> CompatArchive | None:
    """Return the archive of cuda-compat that a manifest of NVIDIA's redistributables lists; None if it lists none.

    Some manifests have an archive for each CUDA, ``{"cuda13.3": {"relative_path": …}}``: the newest is taken.

    Args:
        text: The manifest.
        manifest: Its URL, from which those of its archives start.
        arch: The processor.
    """
    # A manifest that is laid out in another way lists nothing for us, and the next one is asked.
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        component = parse_json(text)[_COMPONENT]
        entry: dict[str, Any] = component[_PLATFORMS[arch]]
        if "relative_path" not in entry:
            entry = entry[max(entry, key=numbers)]
        sha256 = str(entry["sha256"])
        if not _SHA256.fullmatch(sha256):
            return None
        return CompatArchive(
            urljoin(manifest, str(entry["relative_path"])),
            sha256,
            int(entry["size"]),
            license=str(component["license"]),
        )
    return None


def fetch_libraries(
    archive: CompatArchive,
    folder: Path,
    session: Session,
) -> CompatLibraries:
    """Unpack an archive into a new folder, after its hash was compared; return what lies there then.

    Args:
        archive: The archive, or a folder of this machine.
        folder: Where the libraries are to lie.
        session: Fetches.

    Raises:
        InstallationError: It cannot be fetched, is damaged, or is not the one that was listed.
    """
    make_private_folder(folder)
    # They will lie in the folder of a project, and are nothing for its repository.
    write_atomically(folder / ".gitignore", "*\n")
    path = Path(archive.address)
    if not archive.is_local:
        path = session.scratch / Path(urlsplit(archive.address).path).name
        following = session.reporter.progress(_PACKAGE, {path.name: archive.size})
        with path.open("wb") as file, following as progress:
            for chunk in session.client.chunks(archive.address, archive.size):
                file.write(chunk)
                progress(path.name, len(chunk))
    sha256 = ""
    if isfile(path):
        sha256 = sha256_of(path)
    if archive.sha256 and sha256 != archive.sha256:
        raise InstallationError(
            "hash-mismatch",
            f"{archive.address} is not the file that was listed",
            evidence=f"sha256 {sha256}, not {archive.sha256}",
            hint="Run it again",
        )
    unpack_libraries(path, folder)
    version = library_version(folder)
    return CompatLibraries(
        driver=str(version or "of an unknown driver"),
        sha256=sha256,
        address="" if archive.is_local else archive.address,
        path=str(folder),
    )


def unpack_libraries(archive: Path, folder: Path) -> None:
    """Write the libraries of an archive, or of a folder, into a folder.

    Args:
        archive: A tar or a folder.
        folder: The new place of the libraries.

    Raises:
        InstallationError: It is damaged, is no tar, or has no libcuda; or they cannot be written.
    """
    try:
        with writing(folder):
            if isdir(archive):
                _copy_libraries(archive, folder)
            else:
                _extract_libraries(archive, folder)
    except _DAMAGES as error:
        raise _damaged(archive, str(error) or type(error).__name__) from None
    if not isfile(folder / LIBCUDA):
        raise _damaged(archive, f"it has no {LIBCUDA}")


def _copy_libraries(source: Path, folder: Path) -> None:
    """Copy those of the first folder, from the top, that has a libcuda."""
    found = min(source.rglob(LIBCUDA), key=lambda path: len(path.parts), default=None)
    if found is None:
        return
    for path in found.parent.iterdir():
        if not _LIBRARY.fullmatch(path.name):
            continue
        if islink(path):
            _link(folder / path.name, str(path.readlink()))
        elif isfile(path):
            shutil.copyfile(path, folder / path.name)


def _extract_libraries(archive: Path, folder: Path) -> None:
    unpacked = 0
    with archive.open("rb") as file, tarfile.open(fileobj=file, mode="r|*") as tar:
        for member in tar:
            # What is skipped is unpacked too: a megabyte can hold a terabyte of zeros.
            unpacked += member.size
            if unpacked > _MOST_BYTES:
                raise ValueError(f"it unpacks to more than {_MOST_BYTES >> 30} GiB")
            path = folder / PurePosixPath(member.name).name
            # The first of a name counts: nothing is written through a link that an earlier member has made.
            if not _LIBRARY.fullmatch(path.name) or os.path.lexists(path):
                continue
            if member.issym():
                _link(path, member.linkname)
            content = None
            if member.isfile():
                content = tar.extractfile(member)
            if content:
                path.write_bytes(content.read())


def _link(path: Path, target: str) -> None:
    """Make a link to another library of the folder; one that leads elsewhere is none."""
    name = PurePosixPath(target).name
    if _LIBRARY.fullmatch(name) and name != path.name:
        path.symlink_to(name)


def _damaged(archive: Path, reason: str) -> InstallationError:
    hint = f"Set {COMPAT_PLACE} to the path of another tar, or a folder"
    if archive.suffix == ".deb":
        unpack = f"dpkg-deb -x {quoted(archive.name)} cuda-compat"
        hint = f"{unpack}   # in its folder\nexport {COMPAT_PLACE}=$PWD/cuda-compat"
    return InstallationError(
        "cuda-compat-archive",
        f"{archive.name} is no complete tar of cuda-compat: {reason}",
        hint=hint,
    )


def library_version(folder: Path) -> DriverVersion | None:
    """Return the driver release that an unpacked libcuda is of: the file's name has it."""
    name = (folder / LIBCUDA).resolve().name
    with suppress(ValueError):
        return DriverVersion.parse(name.removeprefix("libcuda.so."))
    return None


def take_libraries(
    locked: CompatArchive | None,
    folder: Path,
    *,
    session: Session,
    resources: ExitStack,
) -> MachineHere:
    """Fetch the libraries, try them, and return this machine with them; they are not kept yet.

    Args:
        locked: The archive that a lock of the folder was made with; it is taken unless the user's variable names another.
        folder: The folder of the environments that they are for.
        session: Fetches.
        resources: As long as they are open, children load the libraries; what was not kept goes with them.

    Returns:
        The machine with its own driver if that serves as much.

    Raises:
        MachineError: They cannot be used here.
        InstallationError: They cannot be had.
    """
    given = os.environ.get(COMPAT_PLACE, "")
    tables = load_drivers()
    # The driver is to answer for itself, not the libraries of an earlier run above it.
    resources.enter_context(loaded_first(None))
    machine = read_machine(session.reporter)
    driver = MachineDriver(machine, tables)
    packages = tuple(driver.compat_packages())
    if machine.gpus:
        reason = unsupported(machine, tables)
        if reason:
            raise _unusable(reason)
        if not packages and not given:
            session.reporter.step(
                _PACKAGE, f"not used: {driver} serves CUDA {driver.cuda} itself"
            )
            return MachineHere(machine)
    archive = locked
    if given or archive is None:
        archive = find_archive(given, packages or tables.compat, machine.arch, session)
    session.reporter.notice(_PACKAGE, str(archive))
    check_place(folder)
    # Programs are loaded from there, which a folder for temporary files may not allow.
    make_private_folder(own_cache_folder())
    work = resources.enter_context(scratch_folder(own_cache_folder()))
    libraries = fetch_libraries(archive, work / COMPAT_FOLDER, session)
    if not machine.gpus:
        # An image is built without GPUs: each start of a program decides.
        return MachineHere(machine, libraries)
    other = machine_with(libraries, machine, session.reporter)
    if isinstance(other, Reason):
        if other.code == "cuda-compat-not-newer":
            session.reporter.step(_PACKAGE, f"not used: {other.message}")
            return MachineHere(machine)
        raise _unusable(other)
    resources.enter_context(loaded_first(libraries.folder))
    return MachineHere(other, libraries)


def _unusable(reason: Reason) -> MachineError:
    return MachineError(
        "cuda-compat-unusable",
        f"cuda-compat is not used here: {reason.message}",
        hint="Run it again without --cuda-compat",
    )
