"""The bytes of locked files: a sha256 for each, all of them in one folder, a relay from which uv installs them."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from os.path import isfile
from pathlib import Path
from threading import Event
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import tomli_w

from gpuinstall.base import process, uv
from gpuinstall.base.errors import InstallationError, InterruptedByUserError, LockError
from gpuinstall.base.files import (
    open_regular,
    parse_toml,
    sha256_of,
    write_atomically,
    written,
)
from gpuinstall.base.interruption import TransferInterrupted
from gpuinstall.base.location import file_path
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import authored, load_catalog
from gpuinstall.environments.stamp import file_stamp
from gpuinstall.lock.file.lock import Lock, LockedFile, is_unknown
from gpuinstall.lock.uv.errors import REMAKE, explain_installation
from gpuinstall.sources.provenance import is_of_pytorch
from gpuinstall.sources.relay import Relay
from gpuinstall.sources.web import FileHash, Head, UnreachableError

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from gpuinstall.base.reporter import Meter, Progress
    from gpuinstall.plan.values import Choice
    from gpuinstall.sources.session import Session

_Item = TypeVar("_Item")

FILES_AT_ONCE = 16
"""How many are fetched side by side: a large lock has some two hundred, most of them small."""
CHUNK = 1 << 20
"""The bytes of a local file that are read at once."""


class Hashes(NamedTuple):
    """What is known of the hashes of some files."""

    known: Mapping[str, str]
    """The sha256 of a file by its address."""

    missing: Mapping[LockedFile, Head]
    """The files that must be fetched to be hashed, with what their servers say of them."""


def known_hashes(
    files: Sequence[LockedFile],
    session: Session,
) -> Hashes:
    """Return every hash that costs no transfer; for the other files, what their servers say of them."""
    known = {}
    missing = {}
    answers = side_by_side(partial(_known_hash, session), files)
    for file, answer in zip(files, answers, strict=True):
        if isinstance(answer, Head):
            missing[file] = answer
        else:
            known[file.url] = answer
    return Hashes(known, missing)


def _known_hash(session: Session, file: LockedFile) -> str | Head:
    """Return the hash of a file, or what its server says of it; the sources are tried in the order of their cost."""
    if file.sha256:
        return file.sha256
    if is_of_pytorch(file.url) and file.name in _published_hashes():
        return _published_hashes()[file.name]
    # Of an earlier run.
    known = session.cache.known(file.url)
    path = local_path(file.url)
    try:
        if path:
            head = Head(etag=str(file_stamp(str(path))))
        else:
            head = session.client.head(file.url)
    except UnreachableError:
        return known.sha256 if known else Head()
    if known and known.etag and known.etag == head.etag:
        return known.sha256
    if path is None:
        return head
    # A search resolves several times, and a wheel of torch has a gigabyte: its hash is kept too.
    sha256 = sha256_of(path)
    session.cache.keep(file.url, FileHash(sha256, head.etag))
    return sha256


@cache
def _published_hashes() -> Mapping[str, str]:
    """Return the hashes of files of the official index that are catalogued, by name."""
    rows = authored.read_data("hashes.toml")["wheels"]
    return {row["file"]: row["sha256"] for row in rows}


def fetch_missing(
    heads: Mapping[LockedFile, Head],
    session: Session,
) -> dict[str, str]:
    """Stream every file, once, and return its hash by its address; nothing else of it is kept.

    Args:
        heads: What the servers of the files say of them.
        session: The clients of the run.
    """
    if not heads:
        return {}
    hashes = dict[str, str]()

    def fetch(progress: Progress, file: LockedFile) -> None:
        head = heads[file]
        chunks = session.client.chunks(file.url, head.size)
        sha256 = _hash(chunks, partial(progress, file.name))
        session.cache.keep(file.url, FileHash(sha256, head.etag))
        hashes[file.url] = sha256

    sizes = {file.name: head.size for file, head in heads.items()}
    _transfer(fetch, heads, sizes, session)
    return hashes


def download(
    locks: Sequence[Lock],
    folder: Path,
    session: Session,
) -> list[str]:
    """Bring every file of some locks into ``folder``, check its hash, and return the names; a file that is there stays.

    Of two files with one name, as two indexes may have them, the second is in a folder that is named after its hash.

    Raises:
        LockError: there is no lock, or one has no sha256 of a file.
        InstallationError: a file is not the one that was locked.
    """
    if not locks:
        message = "no lock to download files for"
        raise LockError("lock-missing", message, hint="gpuinstall lock")
    files: dict[str, LockedFile] = {}
    for lock in locks:
        if lock.addresses:
            origin = f"{some([*lock.addresses])} from a folder or a repository"
            session.reporter.warn(f"{lock.name} has {origin}: not downloaded")
        for file in lock.files:
            if file.sha256 is None:
                message = f"{lock.name} has no sha256 for {file.name}"
                hint = "gpuinstall lock --upgrade"
                raise LockError("lock-unhashed", message, hint=hint)
            if files.setdefault(file.name, file).sha256 != file.sha256:
                files[f"{file.sha256}/{file.name}"] = file

    def bring(progress: Progress, name: str) -> None:
        file = files[name]
        path = folder / name
        if isfile(path) and sha256_of(path) == file.sha256:
            return
        local = local_path(file.url)
        chunks = _chunks_of(local) if local else session.client.chunks(file.url, None)
        with written(path) as copy:
            sha256 = _hash(chunks, partial(progress, name), copy)
            if sha256 != file.sha256:
                raise InstallationError(
                    "hash-mismatch",
                    f"{file.url} is not the file that was locked",
                    why="it changed on its server, or was damaged during the download",
                    evidence=f"sha256 {sha256}, not {file.sha256}",
                )

    _transfer(bring, files, dict.fromkeys(files), session)
    return sorted(files)


def _transfer(
    bring: Callable[[Progress, _Item], None],
    items: Iterable[_Item],
    sizes: Mapping[str, int | None],
    session: Session,
) -> None:
    """Bring files side by side, and report their size at the end.

    If one fails or the user interrupts, the others end at their next chunk.

    Args:
        bring: Brings one of the items, and tells of its bytes.
        items: What is brought.
        sizes: The bytes of each file by its name; None if they are not known.
        session: The run, whose reporter shows the progress.
    """
    stopped = Event()

    def count(name: str, size: int) -> None:
        if stopped.is_set():
            raise InterruptedByUserError("interrupted", "the download was interrupted")
        progress(name, size)

    with (
        session.reporter.progress("Download", sizes) as progress,
        ThreadPoolExecutor(FILES_AT_ONCE) as pool,
    ):
        try:
            for _ in pool.map(partial(bring, count), items):
                pass
        finally:
            stopped.set()


def local_path(url: str) -> Path | None:
    """Return the file that a ``file:`` address names; None for any other address."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Path(file_path(parts.path))
    return None


def near_file(file: LockedFile, wheels: Path | None) -> Path | None:
    """Return where a file lies on this machine: in a folder of wheels, or at its address; None if it is fetched.

    Args:
        file: The file.
        wheels: The folder, which comes first, with files of one name in folders named after their hashes.
    """
    if wheels:
        for folder in (wheels / (file.sha256 or ""), wheels):
            path = folder / file.name
            if isfile(path):
                return path
    return local_path(file.url)


def _chunks_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file of this machine; raise InstallationError if it cannot be read."""
    try:
        with open_regular(path) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise InstallationError("file-unreadable", message) from None


def _hash(
    chunks: Iterable[bytes],
    meter: Meter,
    copy: IO[bytes] | None = None,
) -> str:
    """Return the sha256 of some bytes, which are counted, and written into ``copy``."""
    digest = hashlib.sha256()
    for chunk in chunks:
        if copy:
            copy.write(chunk)
        digest.update(chunk)
        meter(len(chunk))
    return digest.hexdigest()


class Transfer(Value):
    """The files of a lock on their way to uv."""

    lock: Lock
    folder: Path
    """The lock's own."""
    packages: Collection[str]
    """Those that are transferred."""
    torch_index: str | None
    """That of the family, under whose name uv's cache keeps its wheels."""
    private_lock: Path
    """The file from which uv reads what to install."""
    given: uv.BuildVariables = uv.BuildVariables()
    """Which variables builds receive."""
    built: Collection[str] = ()
    """The packages that are built."""
    missing: Mapping[LockedFile, int] = {}
    """The files that have to be fetched, with their sizes."""
    heads: Mapping[LockedFile, Head] = {}
    """What their servers say of those whose hash is taken on the way."""
    wheels: Path | None = None
    """A folder that files are taken from first."""

    def run(
        self,
        command: list[str],
        variables: Mapping[str, str],
        session: Session,
    ) -> Lock:
        """Have uv fetch, check, unpack and install; return the lock with the hashes that it lacked.

        Args:
            command: That of uv.
            variables: What it has beside the session's: the code of packages may run, as while resolving.
            session: The run.

        Raises:
            InstallationError: A file does not come, or uv cannot install it.
            TransferInterrupted: The user interrupts.
        """
        hashes = dict[str, str]()
        etags = {file.url: head.etag for file, head in self.heads.items()}
        sizes = {file.name: size or None for file, size in self.missing.items()}
        environment = self.given.given({**session.environment, **variables})
        environment |= uv.from_loopback(environment, session.patience)

        def keep(url: str, sha256: str) -> None:
            hashes[url] = sha256
            session.cache.keep(url, FileHash(sha256, etags.get(url)))

        with (
            session.reporter.progress("Download", sizes) as progress,
            Relay(session.client, progress, keep) as relay,
        ):

            def address(file: LockedFile) -> str:
                is_hashed = file.sha256 is not None
                return relay.address(
                    file.url, file.name, sizes.get(file.name), hashed=is_hashed
                )

            # Where several indexes may have a package, uv keeps its wheels by their address.
            default = session.default_index
            if session.sources.has_further_indexes:
                default = None
            private = self.private(address, default)
            write_atomically(self.private_lock, private, is_cached=True)
            try:
                run_uv(command, replace(session, environment=environment))
            except InstallationError as error:
                cause = relay.failure or error
                if cause.code == "http-status":
                    cause.hint = cause.hint or REMAKE
                raise cause from None
            except KeyboardInterrupt:
                message = (
                    "complete files are in uv's cache and will not be downloaded again"
                )
                raise TransferInterrupted(message) from None
            lock = self.lock.completed(hashes)
            if lock.incomplete.intersection(self.packages):
                raise relay.failure or explain_installation(
                    "a file was not downloaded through gpuinstall, so its hash is unknown"
                )
        return lock

    def private(
        self,
        address: Callable[[LockedFile], str],
        default: str | None,
    ) -> str:
        """Return the lock for uv: every wheel at the ``address`` to fetch it from, every other file where it is.

        Args:
            address: Returns where a file is fetched from.
            default: The index of all but the family, under whose name uv's cache keeps a wheel; None if packages may come
                from further ones, which uv does not tell apart.
        """
        document = parse_toml(self.lock.text)
        # uv compares it with the interpreter that it runs on.
        document.pop("requires-python", None)
        packages = [one for one in document["packages"] if one["name"] in self.packages]
        document["packages"] = packages
        family = load_catalog().family if self.torch_index else ()
        for package in packages:
            name = package["name"]
            # The one in the lock is for who makes it again; uv's cache goes by the one that uv would have asked.
            package.pop("index", None)
            index = self.torch_index if name in family else default
            if is_served(index) and "version" in package:
                package["index"] = index
            if "path" in package.get("vcs", {}):
                vcs = package["vcs"]
                vcs["path"] = str(self.folder / vcs["path"])
            if "directory" in package:
                directory = package["directory"]
                directory["path"] = str(self.folder / directory["path"])
            archive_url = package.get("archive", {}).get("url", "")
            archive = LockedFile(name, archive_url)
            if "+" in package.get("version", "") and archive.name.endswith(".whl"):
                # Only pip has to take it by its address; as a wheel uv fetches it once, through gpuinstall.
                package["wheels"] = [package.pop("archive")]
            for entry in package.get("wheels", ()):
                self._place(entry, name, address)
            if package.get("wheels") and name not in self.built:
                # uv would build it without an announcement.
                package.pop("sdist", None)
            for kind in {"sdist", "archive"} & package.keys():
                self._place(package[kind], name, lambda file: file.url)
        return tomli_w.dumps(document)

    def _place(
        self,
        entry: dict[str, Any],
        package: str,
        address: Callable[[LockedFile], str],
    ) -> None:
        """Write the place that uv takes a file from."""
        if "path" in entry:
            entry["path"] = str(self.folder / entry["path"])
            return
        sha256 = entry["hashes"].get("sha256", "")
        if is_unknown(sha256):
            sha256 = None
            entry["hashes"] = {}
        file = LockedFile(package, entry["url"], sha256)
        near = near_file(file, self.wheels)
        if near:
            # uv takes an archive of this machine by its path alone.
            del entry["url"]
            entry["path"] = str(near)
        elif is_served(file.url):
            entry["url"] = address(file)


def build_index(choice: Choice, session: Session) -> str | None:
    """Return the index of a choice's build, under whose name uv's cache keeps its wheels, or the folder that has them."""
    if is_served(choice.index):
        return f"{session.sources.torch_index}/{choice.build.backend.tag}"
    return choice.index


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
        command,
        each_error_line=show,
        env=session.environment,
        patience=session.patience,
    )
    if not run.ok:
        raise explain_installation(run.err)
