"""The files of a lock on their way: uv fetches them from a relay of ours, checks, unpacks and installs them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import tomli_w

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.errors import InstallationError, LockError
from gpuinstall.files import parse_toml, read_raw, write_atomically
from gpuinstall.interruption import TransferInterrupted
from gpuinstall.lock.fetch import transfers
from gpuinstall.lock.lock import Lock, LockedFile, is_unknown
from gpuinstall.lock.uv_failure import ONLINE, build_failure
from gpuinstall.web import Head
from gpuinstall.web.client import FileHash
from gpuinstall.web.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session


@dataclass(frozen=True)
class Transfer:
    """The files of a lock on their way to uv, of which ``missing`` have to come, with their sizes.

    ``heads`` are what is said of those whose hash is taken on the way. uv reads them from ``private_lock``; ``folder``
    is the lock's own, ``wheels`` one that files are taken from first, ``only`` the packages that are wanted;
    ``compiled`` are wheels, each in a folder of its sha256, for packages that have none.
    """

    lock: Lock
    choice: Choice
    private_lock: Path
    folder: Path
    missing: Mapping[LockedFile, int]
    heads: Mapping[LockedFile, Head] = field(default_factory=dict)
    wheels: Path | None = None
    only: Collection[str] | None = None
    compiled: Mapping[str, Path] = field(default_factory=dict)

    def run(
        self, command: list[str], session: Session, variables: Mapping[str, str] | None = None
    ) -> Lock:
        """Have uv fetch, check, unpack and install; return the lock with the hashes that it lacked.

        Raises:
            InstallationError: A file does not come, or uv cannot install it.
            TransferInterrupted: The user interrupts.
        """
        heads, hashes = {file.url: head for file, head in self.heads.items()}, dict[str, str]()
        sizes = {file.url: size for file, size in self.missing.items()}
        environment = {**session.environment, **(variables or {})}
        environment |= uv.from_loopback(environment, session.patience)

        def keep(url: str, sha256: str) -> None:
            hashes[url] = sha256
            session.cache.keep(url, FileHash(sha256, (heads.get(url) or Head()).etag))

        with (
            transfers(
                {file.name: size or None for file, size in self.missing.items()}, session
            ) as (_, count),
            Relay(session.client, count, keep) as relay,
        ):

            def address(file: LockedFile) -> str:
                return relay.address(
                    file.url, file.name, sizes.get(file.url) or None, hashed=file.sha256 is not None
                )

            # Where several indexes may have a package, uv keeps its wheels by their address.
            default = None if session.sources.has_further_indexes else session.default_index
            indexes = indexes_of(self.lock, build_index(self.choice, session), default)
            write_atomically(self.private_lock, self.private(address, indexes))
            try:
                run_uv(command, replace(session, environment=environment))
            except InstallationError as error:
                failed = relay.failure or error
                if failed.code == "http-status":
                    failed.hint = failed.hint or _REMAKE
                raise failed from None
            except KeyboardInterrupt:
                came = [
                    replace(file, sha256=file.sha256 or hashes.get(file.url))
                    for file in self.missing
                ]
                whole = sum(cached_wheel(file, session.uv_cache) is not None for file in came)
                kept = f"{whole} of {len(came)} files are in uv's cache and will not be downloaded again"
                raise TransferInterrupted(
                    kept if whole else "no file was downloaded completely"
                ) from None
            files = [
                file for file in self.lock.files if self.only is None or file.package in self.only
            ]
            if any(is_unknown(file.sha256 or "") and file.url not in hashes for file in files):
                raise relay.failure or failure(
                    "a file was not downloaded through gpuinstall, so its hash is unknown"
                )
        return self.lock.completed(hashes)

    def private(self, address: Callable[[LockedFile], str], indexes: Mapping[str, str]) -> str:
        """Copy the lock for uv: every wheel at the ``address`` to fetch it from, every other file where it is.

        ``indexes`` are by package, for uv's cache keeps a wheel under the name of its index.
        """
        document = parse_toml(self.lock.text)
        wanted = [
            each for each in document["packages"] if self.only is None or each["name"] in self.only
        ]
        for package in wanted:
            name = package["name"]
            if directory := package.get("directory"):
                directory["path"] = str(self.folder / directory["path"])
            package.pop("index", None)
            package.update({"index": indexes[name]} if name in indexes else {})
            for entry in package.get("wheels", ()):
                self._place(entry, name, address)
            for kind in {"sdist", "archive"} & package.keys():
                self._place(package[kind], name, lambda file: file.url)
            if wheel := self.compiled.get(name):
                for kind in {"sdist", "archive", "vcs"} & package.keys():
                    del package[kind]
                package["wheels"] = [{"path": str(wheel), "hashes": {"sha256": wheel.parent.name}}]
        document.pop("requires-python", None)  # uv compares it with the interpreter that it runs on
        return tomli_w.dumps({**document, "packages": wanted})

    def _place(
        self, entry: dict[str, Any], package: str, address: Callable[[LockedFile], str]
    ) -> None:
        """Name the place that uv takes a file from."""
        if "path" in entry:
            place = self.folder / entry["path"]
            if not place.resolve().is_relative_to(self.folder.resolve()):
                message = f"{entry['path']} is a link outside {self.folder}"
                raise LockError("lock-traversal", message, hint="gpuinstall lock --upgrade")
            entry["path"] = str(place)
            return
        sha256 = entry["hashes"].get("sha256", "")
        file = LockedFile(package, entry["url"], None if is_unknown(sha256) else sha256)
        near = (
            [self.wheels / (file.sha256 or "") / file.name, self.wheels / file.name]
            if self.wheels
            else []
        )
        if local := next((path for path in near if path.is_file()), None):
            del entry["url"]
            entry["path"] = str(local)
        elif is_served(file.url):
            entry["url"] = address(file)
        if file.sha256 is None:
            entry["hashes"] = {}


def cached_wheel(file: LockedFile, uv_cache: Path) -> Path | None:
    """Find the folder of uv's cache that holds a wheel, unpacked.

    What uv knows of a wheel, its sha256 and its folder's name among it, is in ``wheels-v7/pypi/<package>/*.http``, or
    for other indexes than its own default in ``wheels-v7/index/<digest>/<package>/*.http`` (seen with 0.13.8).
    """
    entries = (
        uv_cache.glob(f"wheels-v*/{index}/{file.package}/*.http") for index in ("pypi", "index/*")
    )
    for entry in chain.from_iterable(entries) if file.sha256 else ():
        try:
            facts = read_raw(entry)
        except OSError:
            continue
        if (file.sha256 or "").encode() in facts:
            return next(
                (
                    folder
                    for folder in uv_cache.glob("archive-v*/*")
                    if folder.name.encode() in facts
                ),
                None,
            )
    return None


def build_index(choice: Choice, session: Session) -> str | None:
    """The index of a choice's build, under whose name uv's cache keeps its wheels, or the folder that has them."""
    return (
        f"{session.sources.torch_index}/{choice.build.backend.tag}"
        if is_served(choice.index)
        else choice.index
    )


def cache_words(lock: Lock | None, choice: Choice, session: Session) -> list[str]:
    """Let uv take from its cache what came from a build's index, but files whose hash is to be taken on their way."""
    index = build_index(choice, session)
    refreshed = refresh_words(lock) if lock else []
    return [*(["--index", index] if index and is_served(index) else []), *refreshed]


def refresh_words(lock: Lock) -> list[str]:
    """Have uv fetch anew the files of a lock whose hash is to be taken on their way."""
    unknown = [file.package for file in lock.files if is_unknown(file.sha256 or "")]
    return [word for package in unknown for word in ("--refresh-package", package)]


def indexes_of(lock: Lock, torch: str | None, default: str | None) -> dict[str, str]:
    """The index of each package; ``torch`` is that of the family, where it has one of its own."""
    family = load_catalog().family if torch else frozenset()
    found = ((name, torch if name in family else default) for name in lock.versions)
    return {name: index for name, index in found if index and is_served(index)}


def is_served(index: str | None) -> bool:
    """Say whether an index is one that is asked by HTTP."""
    return (index or "").startswith(("http://", "https://"))


def run_uv(command: list[str], session: Session) -> None:
    """Run uv and say what it builds."""

    def show(line: str) -> None:
        if line.strip().startswith("Building"):
            session.reporter.wait(line.strip())

    done = process.follow(command, show, env=session.environment, patience=session.patience)
    if not done.ok:
        raise failure(done.err)


def failure(message: str) -> InstallationError:
    """Turn uv's failure to install into an error of ours."""
    if failed := build_failure(message):
        return failed
    lines = [line.strip(" ×╰─▶│├") for line in message.splitlines()]
    why = " ".join(
        line for line in lines if line and not line.startswith(("warning:", "Using Python "))
    )
    if "Hash mismatch" in message:
        package = re.search(r"Hash mismatch for `?([^\s`]+)", message)
        said = f"{package[1] if package else 'a file'} is not the file that was locked"
        hint = "gpuinstall lock --upgrade   # only if you trust the source: the file is not the one that was locked"
        return InstallationError("hash-mismatch", said, why=why, hint=hint)
    for sign, code, said, hint in _SIGNS:
        if sign in message:
            return InstallationError(code, said, why=why, hint=hint)
    return InstallationError("installation-failed", "uv could not create the environment", why=why)


_REMAKE = "the same with --upgrade   # makes the lock again\ngpuinstall lock --upgrade   # makes every lock here again"
_SIGNS = (
    ("No space left", "no-space", "no space left on the disk", "df -h"),
    (
        "Network connectivity is disabled",
        "offline",
        "this run is offline, and a file is not in the cache",
        ONLINE,
    ),
    ("os error 13", "not-writable", "uv has no permission to write there", "ls -ld ."),
    ("error sending request", "network", "a file could not be downloaded", "the same again"),
    ("HTTP status", "file-gone", "a locked file is no longer at its URL", _REMAKE),
)
