"""A sha256 for every file of a resolution: from the index, the catalogue, the file itself, or one single transfer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuinstall.errors import InterruptedByUserError
from gpuinstall.lock.wheels import Known, local_path, sha256_of
from gpuinstall.web import Head, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpuinstall.lock.document import LockedFile
    from gpuinstall.lock.wheels import WheelCache
    from gpuinstall.reporter import Meter, Reporter
    from gpuinstall.web import Client

AT_ONCE = 16
OFFICIAL_HOSTS = ".pytorch.org"


@dataclass(frozen=True)
class Hashes:
    """The hashes by address, and the files that must be fetched to be hashed with what their hosts say of them."""

    known: Mapping[str, str]
    missing: Mapping[LockedFile, Head]

    def __or__(self, other: Hashes) -> Hashes:
        """Both together."""
        return Hashes({**self.known, **other.known}, {**self.missing, **other.missing})

    @property
    def bytes_missing(self) -> int:
        """The bytes that the missing hashes cost, as far as the hosts say."""
        return sum(head.size or 0 for head in self.missing.values())


def known_hashes(
    files: Sequence[LockedFile], catalogued: Callable[[], Mapping[str, str]], cache: WheelCache, client: Client
) -> Hashes:
    """Find every hash that costs no transfer; ``catalogued`` gives the official index's, by the name of the file."""
    known = {file.url: sha256 for file in files if (sha256 := file.sha256 or _local(file))}
    official = [file for file in files if file.url not in known and _is_official(file)]
    published = catalogued() if official else {}
    known |= {file.url: published[file.name] for file in official if file.name in published}
    rest = [file for file in files if file.url not in known]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(rest, pool.map(partial(_ask, client, cache), rest), strict=True))
    known |= {file.url: answer.sha256 for file, answer in answers.items() if isinstance(answer, Known)}
    return Hashes(known, {file: answer for file, answer in answers.items() if isinstance(answer, Head)})


def fetch_missing(hashes: Hashes, cache: WheelCache, client: Client, reporter: Reporter) -> dict[str, str]:
    """Stream every file that has no hash into the cache, once; return all hashes by address."""
    if not hashes.missing:
        return dict(hashes.known)
    cache.sweep()
    with reporter.transfer("Download", hashes.bytes_missing or None) as meter, transfers(meter) as (pool, count):
        fetched = {
            file.url: pool.submit(cache.fetch, file.url, file.name, head.etag, client, count)
            for file, head in hashes.missing.items()
        }
        return {**hashes.known, **{url: future.result() for url, future in fetched.items()}}


@contextmanager
def transfers(meter: Meter) -> Iterator[tuple[ThreadPoolExecutor, Meter]]:
    """Run transfers side by side; when one fails or the user interrupts, the others end at their next chunk."""
    stopped = Event()

    def count(size: int) -> None:
        if stopped.is_set():
            raise InterruptedByUserError("interrupted", "the transfer was interrupted")
        meter(size)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            yield pool, count
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _is_official(file: LockedFile) -> bool:
    return (urlsplit(file.url).hostname or "").endswith(OFFICIAL_HOSTS)


def _local(file: LockedFile) -> str | None:
    path = local_path(file.url)
    return sha256_of(path) if path else None


def _ask(client: Client, cache: WheelCache, file: LockedFile) -> Known | Head:
    try:
        head = client.head(file.url)
    except UnreachableError:
        return cache.known(file.url) or Head()
    return cache.current(file.url, head) or head
