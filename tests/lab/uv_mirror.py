"""A loopback mirror of uv's releases, with the pinned uv for this machine."""

import io
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bootstrap

from tests.lab.clone import ROOT
from tests.lab.host import NOT_FOUND, Answer, Host


def uv_program() -> Path:
    """Return the pinned uv of the development environment."""
    return Path(sys.executable).with_name("uv")


@contextmanager
def uv_mirror(program: bytes) -> Iterator[str]:
    """Serve an archive with ``program``, and yield the base URL."""
    name = f"uv-{bootstrap.archive_target()}"
    version = (ROOT / "lockfiles" / "uv.txt").read_text().split()[0].partition("==")[2]
    body = archive(f"{name}/uv", program)

    def respond(path: str, _headers: dict[str, str]) -> Answer:
        return (
            Answer(200, body, "application/gzip")
            if path == f"/{version}/{name}.tar.gz"
            else NOT_FOUND
        )

    host = Host("uv", respond)
    try:
        yield host.url
    finally:
        host.close()


def archive(name: str, program: bytes) -> bytes:
    """Pack a program like a uv release."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tape:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(program), 0o755
        tape.addfile(member, io.BytesIO(program))
    return buffer.getvalue()
