"""Reads wheels where they lie, each once, and remembers what they said."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from email.parser import Parser
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging.utils import canonicalize_version
from packaging.version import InvalidVersion, Version

from gpuinstall.backend import CPU, Backend, known_backend
from gpuinstall.catalog import Build, Wheel
from gpuinstall.errors import InstallationError
from gpuinstall.learned.row import LearnedRow
from gpuinstall.learned.store import LearnedStore, holds, now
from gpuinstall.units import readable
from gpuinstall.wheels.companions import CompanionCode, load_members, read_companion
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.needs import Needs, own_cuda, read_needs
from gpuinstall.wheels.ranges import FileRanges, WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.reporter import Reporter
    from gpuinstall.sources import Sources
    from gpuinstall.web import Client
    from gpuinstall.wheels.torch_wheel import TorchCode

OFFICIAL_FILES = "download-r2.pytorch.org"
"""Where the official index keeps its files, and sends those who ask it for one."""
ANY_BACKEND = "any"
"""What stands for the backend in the name of a row that is the same beside every torch."""


@dataclass(frozen=True)
class Reader:
    """What reading needs of the world."""

    sources: Sources
    client: Client
    store: LearnedStore
    reporter: Reporter

    def remembered(self, build: Build) -> LearnedRow | None:
        """Return what an earlier run learned of a build from any wheel, without a request."""
        for wheel in build.unread:
            row = self.store.known(wheel, build.backend.tag)
            if row and holds(row):
                return row
        return None

    def torch(self, build: Build) -> LearnedRow:
        """Read a wheel of a build that only a listing knows; raise InstallationError."""
        wheel = build.unread[0]
        for known in build.unread:
            if self.store.known(known, build.backend.tag):
                wheel = known
                break

        def read(opened: WheelReader) -> LearnedRow:
            code = read_torch(opened)
            requires = opened.metadata().get_all("Requires-Dist", ())
            return replace(
                _row(
                    wheel,
                    _backend(wheel, code),
                    platform=f"{build.os}-{build.arch}",
                    opened=opened,
                ),
                architectures=code.architectures,
                cuda=code.cuda,
                witness=code.witness,
                requires=tuple(map(str, requires)),
                pythons=build.pythons,
                glibc=build.glibc,
                source=build.listed_at,
                labelled=build.labelled,
            )

        return self._learn(wheel, read, build.backend.tag)

    def companion(
        self,
        wheel: Wheel,
        backend: Backend,
        platform: str,
    ) -> LearnedRow:
        """Read a wheel as it runs beside the torch of a backend; raise InstallationError."""
        by_itself = not load_members().has_runtimes_apart(wheel.package)

        def read(opened: WheelReader) -> LearnedRow:
            metadata = opened.metadata()
            requires = tuple(map(str, metadata.get_all("Requires-Dist", ())))
            named = _exact(metadata["Version"] or "")
            if named and named != _exact(wheel.version):
                message = f"METADATA names version {named}, and pip would reject the file"
                raise WheelError("wheel-malformed", message)
            needs = read_needs(opened) if by_itself else Needs()
            code = CompanionCode()
            if needs.is_for_gpus or _may_have_code(wheel.package, requires):
                code = read_companion(opened, wheel.package, backend.version)
            if not by_itself:
                needs = read_needs(opened, {code.member or ""})
            cuda = own_cuda(needs, code.opened, code.cuda)
            made_for = Backend("cuda", cuda) if by_itself and cuda else backend
            opens = {*needs.opened, *code.opened}.difference(needs.libraries)
            return replace(
                _row(wheel, made_for, platform, opened),
                requires=requires,
                architectures=code.architectures,
                witness=code.member,
                cuda=cuda,
                needs=needs.libraries,
                opens=tuple(sorted(opens)),
                glibc=needs.glibc,
                torch=needs.torch,
            )

        row = self._learn(wheel, read, ANY_BACKEND if by_itself else backend.tag)
        cuda = row.cuda or load_members().cuda(wheel.package, wheel.version)
        return replace(
            row,
            backend=backend.tag,
            cuda=cuda,
        )

    def may_have_code(self, wheel: Wheel) -> bool:
        """Whether a wheel may have GPU code, by its name and the demands that its index tells."""
        if load_members().names(wheel.package) or wheel.url.startswith("file:"):
            return True
        requirements = listed_requirements(wheel, self.client)
        return requirements is None or _may_have_code(wheel.package, requirements)

    def _learn(
        self,
        wheel: Wheel,
        read: Callable[[WheelReader], LearnedRow],
        key: str,
    ) -> LearnedRow:
        """Return what is known of a wheel, or read it.

        One without a hash is asked after a day whether it is still the same.
        """
        current = self.store.known(wheel, key)
        if current and not _asked_rightly(current):
            current = None
        if current and holds(current):
            return current
        started = monotonic()
        try:
            row = self._read(wheel, read, current)
        except WheelError as error:
            if error.code != "transfer":
                raise
            # A transfer that breaks again is reported.
            row = self._read(wheel, read, current)
        self.store.keep(row, wheel, key)
        if row.architectures or row.package == "torch":
            code = " ".join(row.architectures) or "it does not list its GPU code"
            name = f"{row.package} {row.version} {row.backend}"
            summary = f"{name}: {code} ({readable(row.bytes)})"
            self.reporter.step("Learned", summary, monotonic() - started)
        return row

    def _read(
        self,
        wheel: Wheel,
        read: Callable[[WheelReader], LearnedRow],
        known: LearnedRow | None,
    ) -> LearnedRow:
        """Read a wheel, unless its server says that it is still the one that is known."""
        ranges, etag = self._opened(wheel)
        if known and etag and (known.size, known.etag) == (ranges.size, etag):
            return replace(known, learned=now())
        return replace(read(WheelReader(ranges)), etag=etag)

    def _opened(self, wheel: Wheel) -> tuple[HttpRanges | FileRanges, str | None]:
        if wheel.url.startswith("file:"):
            path = Path(url2pathname(urlsplit(wheel.url).path))
            return FileRanges(path), f"{path.stat().st_mtime_ns}"
        # These hosts may serve each other's files.
        own = (
            self.sources.torch_index,
            self.sources.default_index or "",
            f"https://{OFFICIAL_FILES}",
        )
        hosts = {urlsplit(address).netloc for address in own}
        ranges = HttpRanges(
            self.client.ask_part,
            wheel.url,
            hosts=hosts - {""},
            patience=self.client.patience,
        )
        return ranges, ranges.etag


def listed_requirements(wheel: Wheel, client: Client) -> list[str] | None:
    """Return the requirements that a server tells without the wheel; None if it tells none."""
    with suppress(InstallationError):
        page = client.page(f"{wheel.url}.metadata")
        if page:
            return Parser().parsestr(page.text).get_all("Requires-Dist", [])
    return None


def _row(
    wheel: Wheel,
    backend: Backend,
    platform: str,
    opened: WheelReader,
) -> LearnedRow:
    return LearnedRow(
        package=wheel.package,
        version=wheel.version.public,
        backend=backend.tag,
        platform=platform,
        file=wheel.filename,
        url=wheel.url,
        sha256=wheel.sha256,
        size=opened.size,
        bytes=opened.bytes_read,
        requests=opened.requests,
        learned=now(),
    )


def _asked_rightly(row: LearnedRow) -> bool:
    """Whether a row is of the library to ask today: another release may know better."""
    members = load_members()
    if row.package != "torch" and row.torch is None:
        return False
    if not row.witness or not members.names(row.package):
        return True
    return bool(members.answering(row.package, [row.witness]))


def _may_have_code(package: str, requires: Iterable[str]) -> bool:
    """Whether a package is known to have GPU code, or demands what such are compiled beside."""
    members = load_members()
    if members.names(package):
        return True
    for text in requires:
        name = re.match(r"[\w.-]*", text)
        if name and members.compiled_beside.fullmatch(name[0]):
            return True
    return False


def _backend(wheel: Wheel, code: TorchCode) -> Backend:
    """Return what a torch is made for: as its name says, or if that says nothing as its code does.

    Raises:
        WheelError: if they disagree.
    """
    made_for = Backend("cuda", code.cuda) if code.cuda else CPU
    kinds = {"xpu", made_for.kind}
    if made_for == CPU and code.hip:
        kinds = {"xpu", "rocm"}
    named = known_backend(wheel.version.local) or known_backend(wheel.backend)
    is_of_kind = named is None or named.kind in kinds
    if not is_of_kind or not _is_of(wheel, code.version, named):
        message = f"{wheel.filename} has another torch version than its name says"
        raise WheelError("wheel-malformed", message)
    return named or made_for


def _is_of(
    wheel: Wheel,
    inner: str,
    named: Backend | None,
) -> bool:
    try:
        version = Version(inner)
    except InvalidVersion:
        return False
    if version.public != wheel.version.public:
        return False
    return named is None or version.local in {None, named.tag}


def _exact(version: Version | str) -> str:
    return canonicalize_version(version, strip_trailing_zero=False)
