"""The bytes of locked files: a sha256 for each, a relay for uv to fetch them from, all of them in one folder."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from gpuinstall.errors import InstallationError, InterruptedByUserError, LockError
from gpuinstall.files import open_regular, written
from gpuinstall.provenance import is_of_pytorch
from gpuinstall.threads import side_by_side
from gpuinstall.units import readable
from gpuinstall.web import Head, UnreachableError
from gpuinstall.web.client import FileHash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.lock import Lock, LockedFile
    from gpuinstall.reporter import Meter, Progress
    from gpuinstall.session import Session

FILES_AT_ONCE = 16


class Hashes(NamedTuple):
    """The hashes by address, and the files that must be fetched to be hashed with what their hosts say of them."""

    known: Mapping[str, str]
    missing: Mapping[LockedFile, Head]

    def __or__(self, other: Hashes) -> Hashes:
        """Both together."""
        return Hashes({**self.known, **other.known}, {**self.missing, **other.missing})

    def of(self, files: Sequence[LockedFile]) -> Hashes:
        """Those of some files alone."""
        urls = {file.url for file in files}
        known = {url: sha256 for url, sha256 in self.known.items() if url in urls}
        return Hashes(known, {file: head for file, head in self.missing.items() if file.url in urls})


def known_hashes(files: Sequence[LockedFile], catalogued: Callable[[], Mapping[str, str]], session: Session) -> Hashes:
    """Return every hash that costs no transfer; for the other files, what their hosts say of them.

    The sources are tried in the order of their cost.

    Args:
        files: The files, some of them with the hash that their index gives.
        catalogued: Gives the hashes of the official index, by the name of the file.
        session: What asks the hosts.
    """
    known = {file.url: file.sha256 for file in files if file.sha256}
    for source in (partial(_hash_local_files, session), partial(_look_up, catalogued)):
        known |= source([file for file in files if file.url not in known])
    missing = {}
    remaining = [file for file in files if file.url not in known]
    for file, answer in zip(remaining, side_by_side(partial(_ask, session), remaining), strict=True):
        if isinstance(answer, FileHash):
            known[file.url] = answer.sha256
        else:
            missing[file] = answer
    return Hashes(known, missing)


def _hash_local_files(session: Session, files: Iterable[LockedFile]) -> dict[str, str]:
    """Hash the files that lie on this machine, each once as long as its size, time and inode stay."""
    hashes: dict[str, str] = {}
    paths: dict[LockedFile, Path] = {}
    for file in files:
        path = local_path(file.url)
        known = session.cache.known(file.url) if path else None
        if path and known and known.etag == _stamp(path):
            hashes[file.url] = known.sha256
        elif path:
            paths[file] = path
    parts = {file.name: path.stat().st_size if path.is_file() else None for file, path in paths.items()}
    with session.reporter.progress("Hash", parts) as progress:
        for file, path in paths.items():
            stamp = _stamp(path)
            hashes[file.url] = _hash(_chunks_of(path), partial(progress, file.name))
            session.cache.keep(file.url, FileHash(hashes[file.url], stamp))
    return hashes


def _stamp(path: Path) -> str:
    """Return what tells a file from a changed one, in the place of a server's mark; empty if there is none."""
    with suppress(OSError):
        status = path.stat()
        return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
    return ""


def _look_up(catalogued: Callable[[], Mapping[str, str]], files: Iterable[LockedFile]) -> dict[str, str]:
    """Look up the hashes of files of the official index."""
    official = [file for file in files if is_of_pytorch(file.url)]
    published = catalogued() if official else {}
    return {file.url: published[file.name] for file in official if file.name in published}


def fetch_missing(hashes: Hashes, session: Session) -> dict[str, str]:
    """Stream every file that has no hash, once, and keep nothing of it but that; return all hashes by address."""
    if not hashes.missing:
        return dict(hashes.known)
    heads = hashes.missing

    def sha256_at(file: LockedFile, head: Head) -> str:
        sha256 = _hash(session.client.chunks(file.url, head.size), partial(count, file.name))
        session.cache.keep(file.url, FileHash(sha256, head.etag))
        return sha256

    with transfers({file.name: head.size for file, head in heads.items()}, session) as (pool, count):
        hashed = pool.map(sha256_at, heads, heads.values())
        return {**hashes.known, **dict(zip((file.url for file in heads), hashed, strict=True))}


def download(locks: Sequence[Lock], folder: Path, session: Session) -> list[str]:
    """Bring every file into ``folder`` by its name, its hash checked, and return the names.

    Where two files have one name, the second lies below its hash; what is there already stays. Raise LockError where
    there is no lock or a file has no sha256 in it, InstallationError where a file is another.
    """
    if not locks:
        raise LockError("lock-missing", "no lock to download files for", hint="gpuinstall lock")
    files: dict[str, LockedFile] = {}
    for file in (file for lock in locks for file in lock.files):
        if files.setdefault(file.name, file).sha256 != file.sha256:
            files[f"{file.sha256}/{file.name}"] = file
    if unhashed := [name for name, file in files.items() if file.sha256 is None]:
        raise LockError("lock-unhashed", f"a lock has no sha256 for {unhashed[0]}", hint="gpuinstall lock --upgrade")
    with transfers(dict.fromkeys(files), session) as (pool, count):
        list(pool.map(partial(_bring, folder, session=session, count=count), files, files.values()))
    return sorted(files)


@contextmanager
def transfers(parts: Mapping[str, int | None], session: Session) -> Iterator[tuple[ThreadPoolExecutor, Progress]]:
    """Run transfers side by side, and say what came of them; when one fails or the user interrupts, the others end at
    their next chunk.
    """
    stopped, came = Event(), dict.fromkeys(parts, 0)
    start = end = monotonic()

    def count(part: str, size: int) -> None:
        if stopped.is_set():
            raise InterruptedByUserError("interrupted", "the download was interrupted")
        nonlocal end
        came[part], end = came.get(part, 0) + size, monotonic()
        progress(part, size)

    with session.reporter.progress("Download", parts) as progress, ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        try:
            yield pool, count
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
    if sizes := [size for size in came.values() if size]:
        seconds, files = end - start, f"{len(sizes)} file{'s' if len(sizes) > 1 else ''}"
        rate = readable(int(sum(sizes) / max(seconds, 0.001)))
        session.reporter.step("Fetched", f"{files}, {readable(sum(sizes))} at {rate}/s", seconds)


def _hash(chunks: Iterable[bytes], meter: Meter, copy: IO[bytes] | None = None) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        if copy:
            copy.write(chunk)
        digest.update(chunk)
        meter(len(chunk))
    return digest.hexdigest()


def local_path(url: str) -> Path | None:
    """The file that a ``file:`` address names, None for any other address."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _chunks_of(path: Path) -> Iterator[bytes]:
    """Read a file of this machine; raise InstallationError where it cannot be read."""
    try:
        with open_regular(path) as file:
            yield from iter(partial(file.read, 1 << 20), b"")
    except OSError as error:
        raise InstallationError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None


def _ask(session: Session, file: LockedFile) -> FileHash | Head:
    """What an address holds, where its hash was taken and it is still the same, or nobody can say."""
    known = session.cache.known(file.url)
    try:
        head = session.client.head(file.url)
    except UnreachableError:
        return known or Head()
    return known if known and known.etag and known.etag == head.etag else head


def _bring(folder: Path, name: str, file: LockedFile, *, session: Session, count: Progress) -> None:
    path, local = folder / name, local_path(file.url)
    if path.is_file() and _hash(_chunks_of(path), lambda _count: None) == file.sha256:
        return
    with written(path) as copy:
        chunks = _chunks_of(local) if local else session.client.chunks(file.url, None)
        sha256 = _hash(chunks, partial(count, name), copy)
        if sha256 != file.sha256:
            message, evidence = f"{file.url} is not the file that was locked", f"sha256 {sha256}, not {file.sha256}"
            why = "it changed on its server, or was damaged during the download"
            raise InstallationError("hash-mismatch", message, why=why, evidence=evidence)
