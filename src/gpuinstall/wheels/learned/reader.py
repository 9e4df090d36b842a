"""Reads wheels where they lie, each once, and remembers what they said."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import field, replace
from email.parser import Parser
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from packaging.utils import canonicalize_version
from packaging.version import InvalidVersion, Version

from gpuinstall.base.backend import CPU, Backend, known_backend
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.location import file_path
from gpuinstall.base.units import readable
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import Build, Wheel
from gpuinstall.wheels.companions import CompanionCode, load_members, read_package, read_tables
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.learned.row import LearnedRow, at_least
from gpuinstall.wheels.learned.store import LearnedStore, holds, now
from gpuinstall.wheels.needs import Needs, name_cuda, own_cuda, pinned_cuda
from gpuinstall.wheels.ranges import FileRanges, Limits, WheelError
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from email.message import Message

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.sources import Sources
    from gpuinstall.sources.web import Client
    from gpuinstall.wheels.torch_wheel import TorchCode

OFFICIAL_FILES = "download-r2.pytorch.org"
"""Where the official index keeps its files, and sends those who ask it for one."""
WHOLE = Limits(bytes=256 << 20, inflated=3 << 30)
"""How much of a wheel to read before it is said that it has no code for a GPU: some 10 s at 200 Mbit/s."""
MOST_OF_A_LOCK = 384 << 20
"""How many bytes of wheels to read for one lock: beyond, only the tables of libraries and METADATA are read."""
MOST_S_OF_A_LOCK = 1_200
"""For how many seconds in all, of eight wheels side by side."""
LEAST_OF_A_WHEEL = 8 << 20
"""How many of them are read of each wheel nevertheless."""
_FOR_GPUS = re.compile(r"\b(GPUs?|CUDA)\b", re.IGNORECASE | re.ASCII)
"""What the summary, the keywords or the classifiers of a package say that has code for them."""
_LIBRARY_ENDING = re.compile(r"\.(pyd|dll|dylib|so)\b(?=[\w.]*$)", re.ASCII)
ANY_BACKEND = "any"
"""What stands for the backend in the name of a row that is the same beside every torch."""
OF_TABLES = "tables"
"""What stands for it in the name of a row of which no code was read."""


@dataclass(frozen=True)
class Reader:
    """What reading needs of the world."""

    sources: Sources
    client: Client
    store: LearnedStore
    reporter: Reporter
    reading: Counter[str] = field(default_factory=Counter)
    """What was read of wheels in this run, as the session counts it."""
    rows: dict[tuple[str, str, bool], LearnedRow | InstallationError] = field(default_factory=dict)
    """What was learned in this run, or why not, by file, backend and whether it was to be read to the end.

    Also what is not kept for the next run: a search comes back to the same wheel for every build of torch.
    """

    def remembered(self, build: Build) -> LearnedRow | None:
        """Return what an earlier run learned of a build from any wheel, without a request."""
        for wheel in build.unread:
            row = self.store.known(wheel, build.backend.tag)
            if row and holds(row):
                return row
        return None

    def torch(self, build: Build) -> LearnedRow:
        """Read one of the ``unread`` wheels of a build that only a listing knows.

        Raises:
            InstallationError: if it cannot be read or is malformed.
        """
        wheel = build.unread[0]
        for candidate in build.unread:
            # Of one that was read before, even an old row may cost only the check of its etag.
            if self.store.known(candidate, build.backend.tag):
                wheel = candidate
                break

        def row_of(opened: WheelReader) -> LearnedRow:
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
                index=None if build.listed_at else self.sources.default_index,
                labelled=build.labelled,
            )

        return self._known_or_read(wheel, row_of, build.backend.tag)

    def companion(
        self,
        wheel: Wheel,
        backend: Backend,
        platform: str,
        *,
        whole: bool = False,
    ) -> LearnedRow:
        """Read a wheel as it runs beside the torch of a backend.

        Args:
            wheel: The wheel.
            backend: The backend of the torch.
            platform: As in ``linux-x86_64``.
            whole: Whether the library that answers has to be read to its end.

        Raises:
            InstallationError: if it cannot be read or is malformed.
        """
        is_same_beside_every_torch = not load_members().has_runtimes_apart(wheel.package)

        def row_of(opened: WheelReader) -> LearnedRow:
            metadata = opened.metadata()
            requires = tuple(map(str, metadata.get_all("Requires-Dist", ())))
            version = _exact(metadata["Version"] or "")
            has_own_version = version not in {"", _exact(wheel.version)}
            # uv takes a file that says its CUDA and torch behind the +, and in METADATA the version alone.
            if has_own_version and version != _exact(wheel.version.public):
                message = f"METADATA names version {version}, and pip would reject the file"
                raise WheelError("wheel-malformed", message)
            system = _system_of(opened.members)
            code, needs = CompanionCode(), Needs()
            # Which machine it was read for does not count: what is for Windows alone runs nowhere else.
            if system == "any" or platform.startswith("windows"):
                code, needs = read_package(
                    opened,
                    wheel.package,
                    may_have_code=_may_have_code(wheel.package, metadata),
                    cuda=None if is_same_beside_every_torch else backend.version,
                    whole=whole,
                )
            cuda = own_cuda(needs, code.opened, code.cuda) or pinned_cuda(requires)
            own_backend = Backend("cuda", cuda) if is_same_beside_every_torch and cuda else backend
            opens = {*needs.opened, *code.opened}.difference(needs.libraries)
            return replace(
                _row(wheel, own_backend, platform, opened),
                requires=requires,
                metadata_version=version if has_own_version else None,
                architectures=code.architectures,
                witness=code.member,
                is_whole=code.is_whole,
                unlinked=code.unlinked,
                cuda=cuda,
                system=system,
                needs=needs.libraries,
                opens=tuple(sorted(opens)),
                glibc=needs.glibc,
                torch=needs.torch,
            )

        key = ANY_BACKEND if is_same_beside_every_torch else backend.tag
        row = self._known_or_read(wheel, row_of, key, whole=whole)
        # The store has what the wheel says; this is the wheel as seen beside ``backend``.
        return replace(
            row,
            backend=backend.tag,
            cuda=row.cuda or load_members().cuda(wheel.package, wheel.version),
        )

    def listed(
        self,
        wheel: Wheel,
        backend: Backend,
        platform: str,
        *,
        counts_pins: bool,
    ) -> LearnedRow:
        """Return what the name of a wheel says, and its METADATA if its server tells it apart.

        Args:
            wheel: The wheel.
            backend: The backend of the torch that it is judged beside.
            platform: As in ``linux-x86_64``.
            counts_pins: Whether the libraries that METADATA requires tell its CUDA: only if its code is not read.
        """
        requires: tuple[str, ...] = ()
        if wheel.metadata or counts_pins:
            metadata = self._metadata_apart(wheel)
            requires = tuple(map(str, metadata.get_all("Requires-Dist", ()))) if metadata else ()
        cuda = load_members().cuda(wheel.package, wheel.version)
        if counts_pins:
            cuda = cuda or pinned_cuda(requires)
        return LearnedRow(
            package=wheel.package,
            version=wheel.version.public,
            backend=backend.tag,
            platform=platform,
            file=wheel.filename,
            url=wheel.url,
            size=0,
            bytes=0,
            requests=0,
            learned=now(),
            requires=requires,
            cuda=cuda,
        )

    def _metadata_apart(self, wheel: Wheel) -> Message | None:
        """Return the METADATA of a wheel without reading the wheel, unless it lies here."""
        if wheel.url.startswith("file:"):
            return self.open(wheel).metadata()
        return listed_metadata(wheel.url, self.client)

    def tables(self, wheel: Wheel, backend: Backend, platform: str) -> LearnedRow:
        """Read METADATA and the tables of one library of a wheel, some 0.3 MB.

        Raises:
            InstallationError: if it cannot be read or is malformed.
        """

        def row_of(opened: WheelReader) -> LearnedRow:
            requires = tuple(map(str, opened.metadata().get_all("Requires-Dist", ())))
            needs = read_tables(opened, wheel.package)
            return replace(
                _row(wheel, backend, platform, opened),
                requires=requires,
                # What METADATA pins counts only if the code, which is not read here, tells nothing.
                cuda=own_cuda(needs, (), None),
                needs=needs.libraries,
                glibc=needs.glibc,
            )

        row = self._known_or_read(wheel, row_of, OF_TABLES)
        return replace(
            row,
            backend=backend.tag,
            cuda=row.cuda or load_members().cuda(wheel.package, wheel.version),
        )

    def may_have_code(self, wheel: Wheel) -> bool:
        """Whether a wheel may have GPU code, by its name and the demands that its index tells."""
        members = load_members()
        is_known = members.names(wheel.package) or members.cuda(wheel.package, wheel.version)
        if is_known or wheel.url.startswith("file:"):
            return True
        # Where a server does not tell METADATA apart, the end of the wheel has it: its libraries are not read for that.
        metadata = listed_metadata(wheel.url, self.client) or self.open(wheel).metadata()
        return _may_have_code(wheel.package, metadata)

    def _known_or_read(
        self,
        wheel: Wheel,
        row_of: Callable[[WheelReader], LearnedRow],
        key: str,
        *,
        whole: bool = False,
    ) -> LearnedRow:
        """Return what is known of a wheel, or read it once in a run.

        One without a hash is asked after a day whether it is still the same.
        """
        place = (wheel.url, key, whole)
        if place not in self.rows:
            try:
                self.rows[place] = self._recalled_or_read(wheel, row_of, key, whole=whole)
            except InstallationError as error:
                self.rows[place] = error
        answer = self.rows[place]
        if isinstance(answer, InstallationError):
            raise answer
        return answer

    def _recalled_or_read(
        self,
        wheel: Wheel,
        row_of: Callable[[WheelReader], LearnedRow],
        key: str,
        *,
        whole: bool,
    ) -> LearnedRow:
        known = self.store.known(wheel, key)
        if known and not _is_complete(known, whole=whole):
            known = None
        if known and holds(known):
            return known
        limits = WHOLE if whole else Limits()
        is_late = self.reading["seconds"] > MOST_S_OF_A_LOCK
        left = 0 if is_late else MOST_OF_A_LOCK - self.reading["bytes"]
        most = max(LEAST_OF_A_WHEEL, min(limits.bytes, left))
        limits = replace(limits, bytes=most)
        started = monotonic()
        try:
            row = self._read(wheel, row_of, known, limits)
        except WheelError as error:
            if error.code != "transfer":
                raise
            # A transfer that breaks again is reported.
            row = self._read(wheel, row_of, known, limits)
        seconds = monotonic() - started
        self.reading.update(wheels=1, bytes=row.bytes, requests=row.requests, seconds=int(seconds))
        # What the rest of a lock's budget did not suffice for is read the next time.
        if row.architectures or row.is_whole or row.bytes >= Limits().bytes:
            self.store.keep(row, wheel, key)
        if row.architectures or row.package == "torch":
            self.reporter.step("Learned", _learned_text(row), seconds)
        return row

    def _read(
        self,
        wheel: Wheel,
        row_of: Callable[[WheelReader], LearnedRow],
        known: LearnedRow | None,
        limits: Limits,
    ) -> LearnedRow:
        """Read a wheel, unless its size and its stamp are still those of the one that is known."""
        ranges, stamp = self._opened(wheel)
        if known and stamp and (known.size, known.etag) == (ranges.size, stamp):
            return replace(known, learned=now())
        return replace(row_of(WheelReader(ranges, limits)), etag=stamp)

    def open(self, wheel: Wheel) -> WheelReader:
        """Open a wheel to read its Python sources, each of which is one part of the file."""
        ranges, _ = self._opened(wheel)
        return WheelReader(ranges, Limits(requests=500))

    def _opened(self, wheel: Wheel) -> tuple[HttpRanges | FileRanges, str | None]:
        """Open a wheel; return its stamp too: the etag, or when a local file was changed."""
        if wheel.url.startswith("file:"):
            path = Path(file_path(urlsplit(wheel.url).path))
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


def listed_metadata(url: str, client: Client) -> Message | None:
    """Return the METADATA of a wheel as its server tells it apart; None if it does not."""
    with suppress(InstallationError):
        page = client.page(f"{url}.metadata")
        if page:
            return Parser().parsestr(page.text)
    return None


def _system_of(names: Iterable[str]) -> str | None:
    """Return ``windows`` if all libraries of a wheel are for Windows, else ``any``; None if it has none."""
    endings = {ending[0] for ending in map(_LIBRARY_ENDING.search, names) if ending}
    if not endings:
        return None
    return "windows" if endings <= {".pyd", ".dll"} else "any"


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


def _learned_text(row: LearnedRow) -> str:
    """Return what was read of a wheel, in a line: of a package not what torch it is for, but its own CUDA."""
    code = " ".join(row.architectures) or "it does not list its GPU code"
    name = f"{row.package} {row.version}"
    if row.package == "torch":
        name = f"{name} {row.backend}"
    elif row.cuda:
        name = f"{name}, {at_least('CUDA', row.cuda)}"
    part = "" if row.is_whole else " in the part that was read"
    return f"{name}: {code}{part} ({readable(row.bytes)})"


def _is_complete(row: LearnedRow, *, whole: bool) -> bool:
    """Whether a row has what this release would read; False if it is of a library that today's list does not name."""
    members = load_members()
    if row.package == "torch":
        return True
    if whole and not row.is_whole:
        return False
    if not row.witness or not members.names(row.package):
        return True
    return bool(members.answering(row.package, [row.witness]))


def _may_have_code(package: str, metadata: Message) -> bool:
    """Whether a package is known to have GPU code, says so, or demands what such are compiled beside."""
    members = load_members()
    if package in members.stated:
        return False
    if members.names(package) or name_cuda(package):
        return True
    texts = [metadata.get(key, "") for key in ("Summary", "Keywords")]
    texts += metadata.get_all("Classifier", ())
    if any(_FOR_GPUS.search(str(text)) for text in texts):
        return True
    for text in metadata.get_all("Requires-Dist", ()):
        name = re.match(r"[\w.-]*", str(text))
        if name and members.compiled_beside.fullmatch(name[0]):
            return True
    return False


def _backend(wheel: Wheel, code: TorchCode) -> Backend:
    """Return what a torch is made for: as its name says, or if that says nothing as its code does.

    Raises:
        WheelError: if they disagree.
    """
    made_for = CPU
    if code.cuda:
        made_for = Backend("cuda", code.cuda)
    elif code.hip:
        # 7.2.53211-e1a6bc5663
        made_for = Backend("rocm", ".".join(code.hip.split(".")[:2]))
    named = known_backend(wheel.version.local) or known_backend(wheel.backend)
    if not _is_of(wheel, code.version, named):
        message = f"{wheel.filename} has another torch version than its name says"
        raise WheelError("wheel-malformed", message)
    if named is None:
        return made_for
    # version.py is not read for XPU: such a build looks like one for the CPU.
    kind = "cpu" if named.kind == "xpu" else named.kind
    if kind != made_for.kind:
        message = f"{wheel.filename} is built for {made_for}, and its name says {named}"
        raise WheelError("wheel-malformed", message)
    return named


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
