"""The package cuda-compat: where its archive is, and how it is fetched and unpacked."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import make_private_folder, parse_json, sha256_of, write_atomically
from gpuinstall.base.units import readable
from gpuinstall.environments.cuda_compat.archive import library_version, unpack_libraries
from gpuinstall.environments.cuda_compat.libraries import CompatLibraries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog.drivers import CompatPackage
    from gpuinstall.sources.session import Session

_COMPONENT = "cuda_compat"
_PLATFORMS = {"x86_64": "linux-x86_64", "aarch64": "linux-sbsa"}
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
        parts = [self.address, readable(self.size) if self.size else "", f"licence: {self.license}"]
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
            return _local_archive(Path(given))
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
        hint="Run it again with --cuda-compat-from PATH: a tar or a folder",
    )


def _local_archive(path: Path) -> CompatArchive:
    if path.is_dir():
        return CompatArchive(str(path))
    if not path.is_file():
        raise UsageError("file-unreadable", f"{path} is neither a file nor a folder")
    return CompatArchive(str(path), size=path.stat().st_size)


def listed_archive(text: str, manifest: str, arch: str) -> CompatArchive | None:
    """Return the archive of cuda-compat that a manifest of NVIDIA's redistributables lists; None if it lists none.

    Some manifests have an archive for each CUDA, ``{"cuda13.3": {"relative_path": …}}``: the newest is taken.
    """
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        component = parse_json(text)[_COMPONENT]
        entry: dict[str, Any] = component[_PLATFORMS[arch]]
        if "relative_path" not in entry:
            entry = entry[max(entry, key=_numbers)]
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


def _numbers(variant: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", variant)]


def fetch_libraries(archive: CompatArchive, folder: Path, session: Session) -> CompatLibraries:
    """Unpack an archive into a new folder, after its hash was compared; return what lies there then.

    Raises:
        InstallationError: It cannot be fetched, is damaged, or is not the one that was listed.
    """
    make_private_folder(folder)
    write_atomically(folder / ".gitignore", "*\n")
    path = Path(archive.address)
    if not archive.is_local:
        path = session.scratch / Path(urlsplit(archive.address).path).name
        _download(archive, path, session)
    sha256 = sha256_of(path) if path.is_file() else ""
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


def _download(archive: CompatArchive, path: Path, session: Session) -> None:
    """Write an archive to a file of this run."""
    following = session.reporter.progress("cuda-compat", {path.name: archive.size})
    with path.open("wb") as file, following as progress:
        for chunk in session.client.chunks(archive.address, archive.size):
            file.write(chunk)
            progress(path.name, len(chunk))
