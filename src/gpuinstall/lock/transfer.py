"""The files of a lock on their way: uv fetches them from a relay of ours, checks, unpacks and installs them."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import tomli_w

from gpuinstall.base import process, uv
from gpuinstall.base.errors import InstallationError, LockError
from gpuinstall.base.files import parse_toml, read_raw, write_temporarily
from gpuinstall.base.interruption import TransferInterrupted
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.fetch import transfers
from gpuinstall.lock.lock import Lock, LockedFile, is_unknown
from gpuinstall.lock.uv_failure import REMAKE, explain_installation
from gpuinstall.sources.web import Head
from gpuinstall.sources.web.client import FileHash
from gpuinstall.sources.web.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from gpuinstall.plan.values import Choice
    from gpuinstall.sources.session import Session


@dataclass(frozen=True)
class Transfer:
    """The files of a lock on their way to uv."""

    lock: Lock
    choice: Choice
    private_lock: Path
    """The file from which uv reads them."""
    folder: Path
    """The lock's own."""
    missing: Mapping[LockedFile, int]
    """Those that have to be fetched, with their sizes."""
    heads: Mapping[LockedFile, Head] = field(default_factory=dict)
    """What their servers say of those whose hash is taken on the way."""
    wheels: Path | None = None
    """A folder that files are taken from first."""
    only: Collection[str] | None = None
    """The packages that are transferred; None: all."""

    def run(
        self,
        command: list[str],
        session: Session,
        variables: Mapping[str, str] | None = None,
    ) -> Lock:
        """Have uv fetch, check, unpack and install; return the lock with the hashes that it lacked.

        Raises:
            InstallationError: A file does not come, or uv cannot install it.
            TransferInterrupted: The user interrupts.
        """
        hashes = dict[str, str]()
        etags = {file.url: head.etag for file, head in self.heads.items()}
        sizes = {file.url: size for file, size in self.missing.items() if size}
        sizes_by_name = {file.name: size or None for file, size in self.missing.items()}
        environment = {**session.environment, **(variables or {})}
        environment |= uv.from_loopback(environment, session.patience)

        def keep(url: str, sha256: str) -> None:
            hashes[url] = sha256
            session.cache.keep(url, FileHash(sha256, etags.get(url)))

        with (
            transfers(sizes_by_name, session) as (_, count),
            Relay(session.client, count, keep) as relay,
        ):

            def address(file: LockedFile) -> str:
                return relay.address(
                    file.url,
                    file.name,
                    sizes.get(file.url),
                    hashed=file.sha256 is not None,
                )

            # Where several indexes may have a package, uv keeps its wheels by their address.
            default = None if session.sources.has_further_indexes else session.default_index
            indexes = indexes_of(
                self.lock,
                build_index(self.choice, session),
                default,
            )
            write_temporarily(self.private_lock, self.private(address, indexes))
            try:
                run_uv(command, replace(session, environment=environment))
            except InstallationError as error:
                cause = relay.failure or error
                if cause.code == "http-status":
                    cause.hint = cause.hint or REMAKE
                raise cause from None
            except KeyboardInterrupt:
                message = "complete files are in uv's cache and will not be downloaded again"
                raise TransferInterrupted(message) from None
            lock = self.lock.completed(hashes)
            unknown = {file.package for file in lock.files if is_unknown(file.sha256 or "")}
            if unknown.intersection(self.only or unknown):
                raise relay.failure or explain_installation(
                    "a file was not downloaded through gpuinstall, so its hash is unknown"
                )
        return lock

    def private(
        self,
        address: Callable[[LockedFile], str],
        indexes: Mapping[str, str],
    ) -> str:
        """Return the lock for uv: every wheel at the ``address`` to fetch it from, every other file where it is.

        Args:
            address: Returns where a file is fetched from.
            indexes: The index of each package, for uv's cache keeps a wheel under its name.
        """
        document = parse_toml(self.lock.text)
        document.pop("requires-python", None)  # uv compares it with the interpreter that it runs on
        packages = document["packages"]
        if self.only is not None:
            packages = [package for package in packages if package["name"] in self.only]
        document["packages"] = packages
        for package in packages:
            name = package["name"]
            package.pop("index", None)
            if name in indexes:
                package["index"] = indexes[name]
            if "directory" in package:
                directory = package["directory"]
                directory["path"] = str(self.folder / directory["path"])
            address_of = package.get("archive", {}).get("url", "")
            if "+" in package.get("version", "") and LockedFile(name, address_of).name.endswith(
                ".whl"
            ):
                # Only pip has to take it by its address; as a wheel uv fetches it once, through gpuinstall.
                package["wheels"] = [package.pop("archive")]
            for entry in package.get("wheels", ()):
                self._place(entry, name, address)
            for kind in {"sdist", "archive"} & package.keys():
                self._place(
                    package[kind],
                    name,
                    lambda file: file.url,
                )
        return tomli_w.dumps(document)

    def _place(
        self,
        entry: dict[str, Any],
        package: str,
        address: Callable[[LockedFile], str],
    ) -> None:
        """Write the place that uv takes a file from."""
        if "path" in entry:
            place = self.folder / entry["path"]
            if not place.resolve().is_relative_to(self.folder.resolve()):
                message = f"{entry['path']} is a link outside {self.folder}"
                raise LockError("lock-traversal", message, hint="gpuinstall lock --upgrade")
            entry["path"] = str(place)
            return
        sha256 = entry["hashes"].get("sha256", "")
        if is_unknown(sha256):
            sha256 = None
            entry["hashes"] = {}
        file = LockedFile(package, entry["url"], sha256)
        local = self._local(file)
        if local:
            del entry["url"]
            entry["path"] = str(local)
        elif is_served(file.url):
            entry["url"] = address(file)

    def _local(self, file: LockedFile) -> Path | None:
        """Return the place of a file in the folder that files are taken from first, if it is there."""
        if self.wheels is None:
            return None
        for folder in (self.wheels / (file.sha256 or ""), self.wheels):
            path = folder / file.name
            if path.is_file():
                return path
        return None


def cached_wheel(file: LockedFile, uv_cache: Path) -> Path | None:
    """Return the folder of uv's cache that holds a wheel, unpacked."""
    if not file.sha256:
        return None
    # What uv knows of a wheel, its sha256 and its folder's name among it, is in wheels-v7/pypi/<package>/*.http, or
    # for other indexes than its own default in wheels-v7/index/<digest>/<package>/*.http (seen with 0.13.8).
    for index in ("pypi", "index/*"):
        for entry in uv_cache.glob(f"wheels-v*/{index}/{file.package}/*.http"):
            try:
                facts = read_raw(entry)
            except OSError:
                continue
            if file.sha256.encode() not in facts:
                continue
            for folder in uv_cache.glob("archive-v*/*"):
                if folder.name.encode() in facts:
                    return folder
            return None
    return None


def build_index(choice: Choice, session: Session) -> str | None:
    """Return the index of a choice's build, under whose name uv's cache keeps its wheels, or the folder that has them."""
    if is_served(choice.index):
        return f"{session.sources.torch_index}/{choice.build.backend.tag}"
    return choice.index


def cache_words(
    lock: Lock | None,
    choice: Choice,
    session: Session,
) -> list[str]:
    """Return uv's options to take from its cache what came from a build's index, but files of unknown hash."""
    words = []
    index = build_index(choice, session)
    if index and is_served(index):
        words += ["--index", index]
    if lock:
        words += refresh_words(lock)
    return words


def refresh_words(lock: Lock) -> list[str]:
    """Return uv's options to fetch anew the files of a lock whose hash is to be taken on their way."""
    words = []
    for file in lock.files:
        if is_unknown(file.sha256 or ""):
            words += ["--refresh-package", file.package]
    return words


def indexes_of(
    lock: Lock,
    torch: str | None,
    default: str | None,
) -> dict[str, str]:
    """Return the index of each package; ``torch`` is that of the family, if it has one of its own."""
    family = load_catalog().family if torch else ()
    indexes = {}
    for name in lock.versions:
        index = torch if name in family else default
        if index and is_served(index):
            indexes[name] = index
    return indexes


def is_served(index: str | None) -> bool:
    """Whether an index is one that is asked by HTTP."""
    return (index or "").startswith(("http://", "https://"))


def run_uv(command: list[str], session: Session) -> None:
    """Run uv and report what it builds.

    Raises:
        InstallationError: if uv fails.
    """

    def show(line: str) -> None:
        if line.strip().startswith("Building"):
            session.reporter.wait(line.strip())

    run = process.run(
        command, each_error_line=show, env=session.environment, patience=session.patience
    )
    if not run.ok:
        raise explain_installation(run.err)
