"""The bytes of locked files: a sha256 for each, by one transfer at most, and all of them brought into one folder."""

from __future__ import annotations

import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from gpuinstall.errors import InstallationError, InterruptedByUserError, LockError
from gpuinstall.files import open_regular, written
from gpuinstall.threads import side_by_side
from gpuinstall.units import readable
from gpuinstall.web import Head, UnreachableError
from gpuinstall.web.cache import CachedWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.lock import Lock, LockedFile
    from gpuinstall.reporter import Meter, Progress, Reporter
    from gpuinstall.session import Session

AT_ONCE = 16
OFFICIAL_HOSTS = ".pytorch.org"
_KEPT_FROM_US = {"http-status", "unreachable"}


@dataclass(frozen=True)
class Hashes:
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
    """Find every hash that costs no transfer; ``catalogued`` gives the official index's, by the name of the file."""
    known = {file.url: file.sha256 for file in files if file.sha256} | _local_hashes(files, session.reporter)
    official = [file for file in files if file.url not in known and _is_official(file)]
    published = catalogued() if official else {}
    known |= {file.url: published[file.name] for file in official if file.name in published}
    rest = [file for file in files if file.url not in known]
    answers = dict(zip(rest, side_by_side(partial(_ask, session), rest), strict=True))
    known |= {file.url: answer.sha256 for file, answer in answers.items() if isinstance(answer, CachedWheel)}
    return Hashes(known, {file: answer for file, answer in answers.items() if isinstance(answer, Head)})


def fetch_missing(hashes: Hashes, session: Session, also: Mapping[LockedFile, int | None]) -> dict[str, str]:
    """Stream every file that has no hash into the cache, once; return all hashes by address.

    ``also`` are files whose hashes are known, with their sizes, that come at the same time.
    """
    if not hashes.missing:
        return dict(hashes.known)
    cache, client = session.cache, session.client
    cache.sweep()
    parts = {file.name: head.size for file, head in hashes.missing.items()}
    parts |= {file.name: size for file, size in also.items()}
    with _transfers(parts, session) as (pool, count):
        fetched = {
            file.url: pool.submit(cache.fetch, file.url, file.name, head, client, partial(count, file.name))
            for file, head in hashes.missing.items()
        }
        others = pool.map(partial(_fetch_hashed, session=session, count=count), also, also.values())
        found = {**hashes.known, **{url: future.result() for url, future in fetched.items()}}
        list(others)
        return found


def fetch_hashed(sizes: Mapping[LockedFile, int | None], session: Session) -> int:
    """Stream files whose hashes are known into the cache, side by side; return the bytes that came.

    A file that its host keeps from us is left out: uv may have a key to it, or an explanation. Raise
    InstallationError where one is not what was locked, or a transfer fails.
    """
    with _transfers({file.name: size for file, size in sizes.items()}, session) as (pool, count):
        return sum(pool.map(partial(_fetch_hashed, session=session, count=count), sizes, sizes.values()))


def _fetch_hashed(file: LockedFile, size: int | None, *, session: Session, count: Progress) -> int:
    try:
        meter, sha256 = partial(count, file.name), file.sha256 or ""
        path = session.cache.bring(file.url, file.name, sha256, session.client, meter, size=size)
        return path.stat().st_size
    except InstallationError as error:
        if error.code in _KEPT_FROM_US:
            return 0
        raise


def download(locks: Sequence[Lock], folder: Path, session: Session) -> list[str]:
    """Bring every file into ``folder`` by its name, its hash checked, and return the names.

    Where two files have one name, the second lies below its hash; what is there already stays. Raise LockError where
    there is no lock or a file has no sha256 in it, InstallationError where a file is another.
    """
    if not locks:
        raise LockError("lock-missing", "there is no lock to fetch the files of", hint="gpuinstall lock")
    files = _by_path(file for lock in locks for file in lock.files)
    if unhashed := [name for name, file in files.items() if file.sha256 is None]:
        raise LockError("lock-unhashed", f"a lock has no sha256 of {unhashed[0]}", hint="gpuinstall lock --upgrade")
    with _transfers(dict.fromkeys(files), session) as (pool, count):
        list(pool.map(partial(_bring, folder, session=session, count=count), files, files.values()))
    return sorted(files)


@contextmanager
def _transfers(parts: Mapping[str, int | None], session: Session) -> Iterator[tuple[ThreadPoolExecutor, Progress]]:
    """Run transfers side by side, and say what came of them; when one fails or the user interrupts, the others end at
    their next chunk.
    """
    stopped, came, start = Event(), dict.fromkeys(parts, 0), monotonic()

    def count(part: str, size: int) -> None:
        if stopped.is_set():
            raise InterruptedByUserError("interrupted", "the transfer was interrupted")
        came[part] += size
        progress(part, size)

    with session.reporter.progress("Download", parts) as progress, ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            yield pool, count
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
    _say_fetched([size for size in came.values() if size], monotonic() - start, session.reporter)


def _say_fetched(came: Sequence[int], seconds: float, reporter: Reporter) -> None:
    if came:
        files = f"{len(came)} file{'s' if len(came) > 1 else ''}"
        rate = readable(int(sum(came) / max(seconds, 0.001)))
        reporter.step("Fetched", f"{files}, {readable(sum(came))} at {rate}/s", seconds)


def local_path(url: str) -> Path | None:
    """The file that a ``file:`` address names, None for any other address."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def sha256_of(path: Path, meter: Meter = lambda _count: None) -> str:
    """Hash a file; raise InstallationError where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
                meter(len(chunk))
        return digest.hexdigest()
    except OSError as error:
        raise InstallationError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None


def _is_official(file: LockedFile) -> bool:
    return (urlsplit(file.url).hostname or "").endswith(OFFICIAL_HOSTS)


def _local_hashes(files: Sequence[LockedFile], reporter: Reporter) -> dict[str, str]:
    """Hash the files that lie on this machine and have no hash, by address."""
    here = {file: path for file in files if not file.sha256 and (path := local_path(file.url))}
    parts = {file.name: path.stat().st_size if path.is_file() else None for file, path in here.items()}
    with reporter.progress("Hash", parts) as progress:
        return {file.url: sha256_of(path, partial(progress, file.name)) for file, path in here.items()}


def _ask(session: Session, file: LockedFile) -> CachedWheel | Head:
    try:
        head = session.client.head(file.url)
    except UnreachableError:
        return session.cache.known(file.url) or Head()
    return session.cache.current(file.url, head) or head


def _by_path(files: Iterable[LockedFile]) -> dict[str, LockedFile]:
    """Give each file a path of its own."""
    paths: dict[str, LockedFile] = {}
    for file in files:
        first = paths.setdefault(file.name, file)
        if first.sha256 != file.sha256:
            paths[f"{file.sha256}/{file.name}"] = file
    return paths


def _bring(folder: Path, name: str, file: LockedFile, *, session: Session, count: Progress) -> None:
    path, wanted = folder / name, file.sha256 or ""
    if path.is_file() and sha256_of(path) == wanted:
        return
    local = local_path(file.url)
    near = local or session.cache.path(wanted, file.name)
    if (local or near.is_file()) and sha256_of(near) == wanted:
        with written(path) as copy, open_regular(near) as original:
            shutil.copyfileobj(original, copy)
    elif local:
        raise InstallationError("hash-mismatch", f"{local} is not the file that was locked")
    else:
        session.client.download(file.url, path, wanted, partial(count, name))
