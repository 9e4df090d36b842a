"""The body of an answer, read within limits: of bytes, of silence, of speed, of time."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.patience import FLOOR, SILENCE, Pace
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from requests import Response

    from gpuinstall.patience import Patience

PAGE_BYTES = 50_000_000
FILE_BYTES = 20_000_000_000
"""What a file may have, whatever its server declares."""

_CHUNK = 1 << 20


def read_page(response: Response, url: str, patience: Patience) -> bytes:
    """Read a page; raise InstallationError where it is too large, or takes too long."""
    return b"".join(read_chunks(response, url, PAGE_BYTES, patience, patience.page))


def read_chunks(
    response: Response, url: str, limit: int, patience: Patience, seconds: float | None = None
) -> Iterator[bytes]:
    """Read a body as it comes, ``limit`` bytes and ``seconds`` at most; raise InstallationError for more."""
    read, pace = 0, Pace(patience)
    with _transfer(url, patience), _watched(response, url, pace, patience, seconds):
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            read += len(chunk)
            if read > limit:
                raise InstallationError("too-large", f"{url} sent more than {readable(limit)}", hint=_OTHER)
            pace.count(len(chunk))
            yield chunk


def declared(response: Response) -> int | None:
    """The length that a server declares of what it sends as it is."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and len(length) < 20 else None


_OTHER = "the index is at fault; another one is named by --torch-index, or UV_DEFAULT_INDEX"


@contextmanager
def _watched(response: Response, url: str, pace: Pace, patience: Patience, seconds: float | None) -> Iterator[None]:
    """Shut the connection down where it comes too slowly or takes too long: reads themselves end by silence alone."""
    done, start = threading.Event(), monotonic()
    reasons: list[str] = []

    def watch() -> None:
        while not done.wait(min(1.0, patience.silence / 4)):
            if pace.lags():
                reasons.append(
                    f"sent less than {readable(int(patience.floor * patience.window))} in {patience.window:.0f} s"
                )
            elif seconds is not None and monotonic() - start > seconds:
                reasons.append(f"was not done after {seconds:.0f} s")
            else:
                continue
            with suppress(OSError, RuntimeError, ValueError):
                response.raw.shutdown()
            return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if reasons:
            raise _too_slow(url, reasons[0]) from error
        raise
    finally:
        done.set()
    if reasons:  # a body without a length ends where the connection is shut down
        raise _too_slow(url, reasons[0])


@contextmanager
def _transfer(url: str, patience: Patience) -> Iterator[None]:
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    try:
        yield
    except ReadTimeoutError as error:
        raise _too_slow(url, f"sent nothing for {patience.silence:.0f} s") from error
    except HTTPError as error:
        raise InstallationError("transfer", f"the transfer of {url} broke off", hint="run the same again") from error


def _too_slow(url: str, said: str) -> InstallationError:
    hint = f"run the same again; {SILENCE} (seconds) and {FLOOR} (bytes a second) give a server more time"
    return InstallationError("too-slow", f"{url} {said}", hint=hint)
