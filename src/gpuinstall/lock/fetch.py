"""The bytes of locked files: a sha256 for each, a relay for uv to fetch them from, all of them in one folder."""

from __future__ import annotations

import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from gpuinstall.base.errors import InstallationError, InterruptedByUserError, LockError
from gpuinstall.base.files import open_regular, written
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import number_of, readable
from gpuinstall.catalog import authored
from gpuinstall.sources.provenance import is_of_pytorch
from gpuinstall.sources.web import Head, UnreachableError
from gpuinstall.sources.web.client import FileHash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.reporter import Meter, Progress
    from gpuinstall.lock.lock import Lock, LockedFile
    from gpuinstall.sources.session import Session

FILES_AT_ONCE = 16
CHUNK = 1 << 20
"""The bytes of a local file that are read at once."""


class Hashes(NamedTuple):
    """What is known of the hashes of some files."""

    known: Mapping[str, str]
    """The sha256 of a file by its address."""

    missing: Mapping[LockedFile, Head]
    """The files that must be fetched to be hashed, with what their servers say of them."""

    def __or__(self, other: Hashes) -> Hashes:
        """Return both together."""
        return Hashes({**self.known, **other.known}, {**self.missing, **other.missing})

    def of(self, files: Sequence[LockedFile]) -> Hashes:
        """Return those of some files alone."""
        known = {file.url: self.known[file.url] for file in files if file.url in self.known}
        missing = {file: self.missing[file] for file in files if file in self.missing}
        return Hashes(known, missing)


def known_hashes(files: Iterable[LockedFile], session: Session) -> Hashes:
    """Return every hash that costs no transfer; for the other files, what their servers say of them.

    The sources are tried in the order of their cost; some files have the hash that their index gives.
    """
    known = {}
    remaining = []
    for file in files:
        if file.sha256:
            known[file.url] = file.sha256
        else:
            remaining.append(file)
    known |= _hash_local_files(remaining, session)
    known |= _catalogued_hashes(remaining)
    remaining = [file for file in remaining if file.url not in known]
    missing = {}
    answers = side_by_side(partial(_query_server, session), remaining)
    for file, answer in zip(remaining, answers, strict=True):
        if isinstance(answer, FileHash):
            known[file.url] = answer.sha256
        else:
            missing[file] = answer
    return Hashes(known, missing)


def _hash_local_files(files: Iterable[LockedFile], session: Session) -> dict[str, str]:
    """Hash the files that are on this machine, each once as long as its size, time and inode stay."""
    paths = {file: path for file in files if (path := local_path(file.url))}
    hashes = dict[str, str]()
    with session.reporter.progress("Hash", {file.name: None for file in paths}) as progress:
        for file, path in paths.items():
            known = session.cache.known(file.url)
            stamp = _stamp(path)
            # A search resolves several times, and a wheel of torch has a gigabyte.
            if known is None or known.etag != stamp:
                known = FileHash(_hash(_chunks_of(path), partial(progress, file.name)), stamp)
                session.cache.keep(file.url, known)
            hashes[file.url] = known.sha256
    return hashes


def _stamp(path: Path) -> str:
    """Return what tells a file from a changed one, in the place of a server's mark; empty if there is none."""
    with suppress(OSError):
        status = path.stat()
        return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return ""


def _catalogued_hashes(files: Iterable[LockedFile]) -> dict[str, str]:
    """Return the hashes of files of the official index, as far as they are catalogued."""
    official = [file for file in files if is_of_pytorch(file.url)]
    if not official:
        return {}
    rows = authored.read_data("hashes.toml")["wheels"]
    published = {row["file"]: row["sha256"] for row in rows}
    return {file.url: published[file.name] for file in official if file.name in published}


def _query_server(session: Session, file: LockedFile) -> FileHash | Head:
    """Return the hash of an earlier run if the file is the same, or its server cannot be reached."""
    known = session.cache.known(file.url)
    try:
        head = session.client.head(file.url)
    except UnreachableError:
        return known or Head()
    if known and known.etag and known.etag == head.etag:
        return known
    return head


def fetch_missing(hashes: Hashes, session: Session) -> dict[str, str]:
    """Stream every file that has no hash, once, and keep only its hash; return all hashes by address."""
    heads = hashes.missing
    if not heads:
        return dict(hashes.known)

    def sha256_at(file: LockedFile, head: Head) -> str:
        chunks = session.client.chunks(file.url, head.size)
        sha256 = _hash(chunks, partial(count, file.name))
        session.cache.keep(file.url, FileHash(sha256, head.etag))
        return sha256

    known = dict(hashes.known)
    sizes = {file.name: head.size for file, head in heads.items()}
    with transfers(sizes, session) as (pool, count):
        digests = pool.map(sha256_at, heads, heads.values())
        for file, sha256 in zip(heads, digests, strict=True):
            known[file.url] = sha256
    return known


def download(
    locks: Sequence[Lock],
    folder: Path,
    session: Session,
) -> list[str]:
    """Bring every file of some locks into ``folder``, check its hash, and return the names.

    Of two files with one name, the second is in a folder that is named after its hash. A file that is there stays.

    Raises:
        LockError: there is no lock, or one has no sha256 of a file.
        InstallationError: a file is not the one that was locked.
    """
    if not locks:
        raise LockError(
            "lock-missing",
            "no lock to download files for",
            hint="gpuinstall lock",
        )
    files = _files_by_name(locks)
    for name, file in files.items():
        if file.sha256 is None:
            message = f"a lock has no sha256 for {name}"
            raise LockError(
                "lock-unhashed",
                message,
                hint="gpuinstall lock --upgrade",
            )
    with transfers(dict.fromkeys(files), session) as (pool, count):
        bring = partial(
            _bring,
            folder,
            session=session,
            count=count,
        )
        list(pool.map(bring, files, files.values()))
    return sorted(files)


def _files_by_name(locks: Iterable[Lock]) -> dict[str, LockedFile]:
    """Return the files of locks by the paths that they get in a folder."""
    files: dict[str, LockedFile] = {}
    for lock in locks:
        for file in lock.files:
            first = files.setdefault(file.name, file)
            if first.sha256 != file.sha256:
                files[f"{file.sha256}/{file.name}"] = file
    return files


def _bring(
    folder: Path,
    name: str,
    file: LockedFile,
    *,
    session: Session,
    count: Progress,
) -> None:
    """Bring one file into a folder, unless it is there; raise InstallationError if it is another."""
    path = folder / name
    if path.is_file():
        sha256 = _hash(_chunks_of(path), lambda _count: None)
        if sha256 == file.sha256:
            return
    local = local_path(file.url)
    with written(path) as copy:
        if local:
            chunks = _chunks_of(local)
        else:
            chunks = session.client.chunks(file.url, None)
        sha256 = _hash(chunks, partial(count, name), copy)
        if sha256 != file.sha256:
            raise InstallationError(
                "hash-mismatch",
                f"{file.url} is not the file that was locked",
                why="it changed on its server, or was damaged during the download",
                evidence=f"sha256 {sha256}, not {file.sha256}",
            )


@contextmanager
def transfers(
    sizes: Mapping[str, int | None], session: Session
) -> Iterator[tuple[ThreadPoolExecutor, Progress]]:
    """Run transfers side by side, and report their size at the end.

    If one fails or the user interrupts, the others end at their next chunk.

    Args:
        sizes: The bytes of each file by its name; None if they are not known.
        session: The run, whose reporter shows the progress.
    """
    stopped = Event()
    received = Counter[str]()

    def count(name: str, size: int) -> None:
        if stopped.is_set():
            raise InterruptedByUserError("interrupted", "the download was interrupted")
        received[name] += size
        progress(name, size)

    with (
        session.reporter.progress("Download", sizes) as progress,
        ThreadPoolExecutor(FILES_AT_ONCE) as pool,
    ):
        try:
            yield pool, count
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
    if received:
        files = number_of(len(received), "file")
        session.reporter.detail("Fetched", f"{files}, {readable(received.total())}")


def local_path(url: str) -> Path | None:
    """Return the file that a ``file:`` address names; None for any other address."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    return Path(unquote(parts.path))


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
