"""Reads wheels where they lie, each once, and remembers what they said."""

from __future__ import annotations

import re
from contextlib import suppress
from email.message import Message
from pathlib import Path
from posixpath import basename
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.location import file_path
from gpuinstall.base.requirement import without_wildcard
from gpuinstall.base.text import readable
from gpuinstall.base.values import Value, asdict, field, replace
from gpuinstall.base.versions import CPU, Backend, known_backend
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.learned.row import Depth, LearnedRow
from gpuinstall.wheels.learned.store import LearnedStore, holds, learned_store, now
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import declared_cuda, name_cuda, pinned_cuda
from gpuinstall.wheels.package import (
    LibraryCode,
    read_package,
    read_tables,
)
from gpuinstall.wheels.ranges import (
    MOST_OF_A_WHEEL,
    FileRanges,
    Limits,
    WheelError,
)
from gpuinstall.wheels.torch_wheel import read_torch
from gpuinstall.wheels.wheel_reader import WheelReader, parse_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from packaging.version import Version

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.sources import Sources
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client
    from gpuinstall.wheels.torch_wheel import TorchCode

OFFICIAL_FILES = "download-r2.pytorch.org"
"""Where the official index keeps its files, and sends those who ask it for one."""
MOST = {
    Depth.TABLES: MOST_OF_A_WHEEL,
    Depth.PART: MOST_OF_A_WHEEL,
    # Before it is said that it has no code for a GPU: some 10 s at 200 Mbit/s.
    Depth.WHOLE: 256 << 20,
}
"""How many bytes of a wheel to read, whatever else was read."""
MOST_INFLATED = 3 << 30
"""The same of what they inflate to: of libraries that is eight times their size at most, so that no honest wheel ends here."""
MOST_OF_A_LOCK = 384 << 20
"""How many bytes of wheels, read in this run or before, a lock may rest on: beyond, no older version is looked at."""
_FOR_GPUS = re.compile(r"\b(GPUs?|CUDA)\b", re.IGNORECASE | re.ASCII)
"""What the summary, the keywords or the classifiers of a package say that has code for them."""
_NAMED = re.compile(r"(^|-)(kernels?|cuda|gpu)(-|$)", re.ASCII)
"""How a package may be named that has nothing else: deepspeed-kernels 0.0.1.dev1698255861 and qoco-cuda 0.2.2 say no
more of their code."""
_LOWEST = re.compile(
    r"(?:compute capability|\bSM)[ *_]*(>=|≥)? ?(\d{1,2})\.?(\d)(\+| (?:\([^)\n]*\) )?(?:or|and) (?:newer|higher|later|above))?",
    re.IGNORECASE | re.ASCII,
)
"""How a description asks for chips: ``compute capability 8.0 or newer``, ``SM75+``."""
_LIBRARY_ENDING = re.compile(r"\.(pyd|dll|dylib|so)\b(?=[\w.]*$)", re.ASCII)
OF_SERVER, OF_WHEEL = "of its server", "of the wheel"
"""The origins of METADATA."""
ANY_BACKEND = "any"
"""What stands for the backend in the name of a row that is the same beside every torch."""

RowKey = tuple[str, str, Depth]


class Reader(Value):
    """What reading needs of the world."""

    sources: Sources
    client: Client
    store: LearnedStore
    reporter: Reporter
    rows: dict[RowKey, LearnedRow | InstallationError] = field(default_factory=dict)
    """What was learned in this run, or why not, by address, backend and depth.

    Also what is not kept for the next run: a search comes back to the same wheel for every build of torch.
    """

    @property
    def bytes_read(self) -> int:
        """The bytes of wheels that this run rests on, of each depth of a wheel once, whether read now or known before.

        Without torch: of its builds that were read before all are known, and of the others only the newest are read.
        """
        # Other threads may add rows.
        answers = [*self.rows.values()]
        return sum(
            row.bytes
            for row in answers
            if isinstance(row, LearnedRow) and row.package != "torch"
        )

    @property
    def is_spent(self) -> bool:
        """Whether so much was read for one lock that no older version is looked at."""
        return self.bytes_read > MOST_OF_A_LOCK

    def remembered(self, build: Build) -> LearnedRow | None:
        """Return what an earlier run learned of a build from any wheel, without a request."""
        for wheel in build.unread:
            row = self.store.known(wheel, build.backend.tag, Depth.PART)
            if row and holds(row):
                return row
        return None

    def torch(self, build: Build) -> LearnedRow:
        """Read one of the ``unread`` wheels of a build that only a listing knows.

        Raises:
            InstallationError: if it cannot be read or is malformed.
        """
        # Of one that was read before, even an old row may cost only the check of its etag.
        known = (
            wheel
            for wheel in build.unread
            if self.store.known(wheel, build.backend.tag, Depth.PART)
        )
        wheel = next(known, build.unread[0])

        def row_of(opened: WheelReader) -> LearnedRow:
            code = read_torch(opened)
            toolkit = code.toolkit
            codes: tuple[LibraryCode, ...] = ()
            if code.library:
                codes = (LibraryCode(code.library, code.architectures),)
            return _row(
                wheel,
                _backend(wheel, code),
                f"{build.os}-{build.arch}",
                opened,
                codes=codes,
                cuda=toolkit.version if toolkit and toolkit.kind == "cuda" else None,
                requires=_requires(opened.metadata()),
                pythons=build.pythons,
                glibc=build.glibc,
                source=build.listed_at,
                index=None if build.listed_at else self.sources.default_index,
                labelled=build.labelled,
            )

        return self._known_or_read(wheel, row_of, build.backend.tag, Depth.PART)

    def companion(
        self,
        wheel: Wheel,
        backend: Backend,
        platform: str,
        depth: Depth = Depth.PART,
    ) -> LearnedRow:
        """Read a wheel as it runs beside the torch of a backend.

        Args:
            wheel: The wheel.
            backend: The backend of the torch.
            platform: As in ``linux-x86_64``.
            depth: How much of it is read.

        Raises:
            InstallationError: if it cannot be read or is malformed.
        """
        members = load_members()

        def row_of(opened: WheelReader) -> LearnedRow:
            facts = _facts(wheel, opened, backend, depth)
            return _row(wheel, backend, platform, opened, **facts)

        # What the wheel says, whatever torch and platform it was first read beside.
        if depth is Depth.METADATA:
            metadata = parse_metadata(self._served_metadata(wheel) or "")
            row = _row(wheel, backend, platform, requires=_requires(metadata))
        else:
            depends_on_torch = members.has_runtimes_apart(wheel.package)
            key = backend.tag if depends_on_torch else ANY_BACKEND
            row = self._known_or_read(wheel, row_of, key, depth)

        # The wheel as it is beside this torch.
        cuda = row.cuda
        if not cuda and len(row.cudas) < 2:
            pins = row.requires
            if depth < Depth.PART:
                # Its own code may be older than the NCCL that it requires, and tells that once it is read.
                pins = tuple(filter(members.runtime.match, pins))
            label = wheel.version.local
            declared = declared_cuda(wheel.package, wheel.version, label)
            major = declared or pinned_cuda(pins, platform)
            cuda = f"{major}.0" if major else None
        return replace(row, backend=backend.tag, platform=platform, cuda=cuda)

    def readings(
        self, wheel: Wheel, build: Build, start: Depth = Depth.METADATA
    ) -> Generator[LearnedRow, None, None]:
        """Yield the rows of a wheel, each deeper than the previous one.

        Args:
            wheel: The wheel.
            build: The build of torch that it runs with.
            start: The depth of the first row.

        Raises:
            InstallationError: The wheel cannot be read or is malformed.
        """
        platform = f"{build.os}-{build.arch}"
        for depth in list(Depth)[start:]:
            yield self.companion(wheel, build.backend, platform, depth)

    def may_have_code(self, wheel: Wheel) -> bool:
        """Whether a wheel may have GPU code, by its name and its METADATA."""
        return _may_have_code(wheel.package, self.metadata(wheel))

    def metadata(self, wheel: Wheel) -> Message:
        """Return METADATA from its server, or from the wheel."""
        text = self._cached_metadata(wheel, OF_WHEEL) or self._served_metadata(wheel)
        if text is None:
            text = self._open(wheel).metadata_text()
            self._keep_metadata(wheel, OF_WHEEL, text)
        return parse_metadata(text)

    def names(self, wheel: Wheel) -> set[str]:
        """Return the names of the files in a wheel.

        Raises:
            InstallationError: if it cannot be read.
        """
        return {basename(path) for path in self._open(wheel).members}

    def _served_metadata(self, wheel: Wheel) -> str | None:
        """Return METADATA from its server, which may lack it."""
        if wheel.url.startswith("file:"):
            return self._open(wheel).metadata_text()
        text = self._cached_metadata(wheel, OF_SERVER)
        if text is None:
            with suppress(InstallationError):
                page = self.client.page(f"{wheel.url}.metadata")
                if page:
                    text = page.text
                    self._keep_metadata(wheel, OF_SERVER, text)
        return text

    def _cached_metadata(self, wheel: Wheel, origin: str) -> str | None:
        """Return cached METADATA of a file with a hash."""
        if wheel.sha256 is None:
            return None
        return self.client.cached_text(f"{wheel.url} {origin}", wheel.sha256)

    def _keep_metadata(self, wheel: Wheel, origin: str, text: str) -> None:
        if wheel.sha256 and not wheel.url.startswith("file:"):
            self.client.keep_text(f"{wheel.url} {origin}", wheel.sha256, text)

    def _known_or_read(
        self,
        wheel: Wheel,
        row_of: Callable[[WheelReader], LearnedRow],
        key: str,
        depth: Depth,
    ) -> LearnedRow:
        """Return what is known of a wheel, or read it once in a run.

        One without a hash is asked after a day whether it is still the same.
        """
        place = (wheel.url, key, depth)
        if place not in self.rows:
            try:
                row = self.store.known(wheel, key, depth)
                if row is None or not holds(row):
                    row = self._read(wheel, row_of, row, depth)
                    self.store.keep(row, wheel, key)
                self.rows[place] = row
            except InstallationError as error:
                self.rows[place] = error
        answer = self.rows[place]
        if isinstance(answer, InstallationError):
            raise answer
        return answer

    def _read(
        self,
        wheel: Wheel,
        row_of: Callable[[WheelReader], LearnedRow],
        known: LearnedRow | None,
        depth: Depth,
    ) -> LearnedRow:
        """Read a wheel, unless it is still the one that is known."""
        started = monotonic()
        ranges = self._ranges(wheel)
        stamp = ranges.etag
        if known and stamp and known.size == ranges.size and known.etag == stamp:
            return replace(known, learned=now())
        opened = WheelReader(ranges, Limits(MOST[depth], MOST_INFLATED))
        row = replace(row_of(opened), etag=stamp, depth=depth)
        if row.codes or row.package == "torch":
            self.reporter.step("Learned", _learned_text(row), monotonic() - started)
        return row

    def _open(self, wheel: Wheel) -> WheelReader:
        return WheelReader(self._ranges(wheel))

    def _ranges(self, wheel: Wheel) -> HttpRanges | FileRanges:
        """Return a wheel to be read."""
        if wheel.url.startswith("file:"):
            return FileRanges(Path(file_path(urlsplit(wheel.url).path)))
        # These hosts may serve each other's files.
        own = (
            self.sources.torch_index,
            self.sources.default_index or "",
            f"https://{OFFICIAL_FILES}",
        )
        hosts = {urlsplit(address).netloc for address in own}
        hosts |= load_extensions().hosts_beside(urlsplit(wheel.url).netloc)
        return HttpRanges(
            self.client.ask_part,
            wheel.url,
            hosts=hosts - {""},
            patience=self.client.patience,
        )


def reader_for(session: Session, reporter: Reporter | None = None) -> Reader:
    """Return a reader for a run, whose readers share what each has learned.

    Args:
        session: The run.
        reporter: Is told of what is learned; None: the run's own.
    """
    return Reader(
        session.sources,
        session.client,
        learned_store(),
        reporter or session.reporter,
        session.rows,
    )


def _facts(
    wheel: Wheel,
    opened: WheelReader,
    backend: Backend,
    depth: Depth,
) -> dict[str, Any]:
    """Return what METADATA and the native code of a wheel say, as fields of a row."""
    metadata = opened.metadata()
    version = _exact(metadata["Version"] or "")
    has_own_version = version not in {"", _exact(wheel.version)}
    # uv takes a file that says its CUDA and torch behind the +, and in METADATA the version alone.
    if has_own_version and version != _exact(wheel.version.public):
        message = f"METADATA names version {version}, and pip would reject the file"
        raise WheelError("wheel-malformed", message)
    if depth is Depth.TABLES:
        facts = read_tables(opened, wheel.package)
    else:
        facts = read_package(
            opened,
            wheel.package,
            may_have_code=_may_have_code(wheel.package, metadata)
            or _is_described_with_cuda(metadata),
            cuda=backend.version,
            whole=depth is Depth.WHOLE,
        )
    return {
        **asdict(facts),
        "requires": _requires(metadata),
        "metadata_version": version if has_own_version else None,
        "cuda": f"{facts.cudas[0]}.0" if len(facts.cudas) == 1 else None,
        "lowest": _lowest_named(metadata),
        "system": _system_of(opened.members),
    }


def _requires(metadata: Message) -> tuple[str, ...]:
    requirements = metadata.get_all("Requires-Dist", ())
    return tuple(without_wildcard(str(one)) for one in requirements)


def _system_of(names: Iterable[str]) -> str | None:
    """Return ``windows`` if all libraries of a wheel are for Windows, else ``any``; None if it has none."""
    endings = set()
    for name in names:
        ending = _LIBRARY_ENDING.search(name)
        if ending:
            endings.add(ending[0])
    if not endings:
        return None
    return "windows" if endings <= {".pyd", ".dll"} else "any"


def _row(
    wheel: Wheel,
    backend: Backend,
    platform: str,
    opened: WheelReader | None = None,
    **facts: Any,
) -> LearnedRow:
    """Return a row of a wheel; one that was not opened is known by its name alone."""
    return LearnedRow(
        package=wheel.package,
        version=wheel.version.public,
        backend=backend.tag,
        platform=platform,
        file=wheel.filename,
        url=wheel.url,
        sha256=wheel.sha256,
        size=opened.size if opened else 0,
        bytes=opened.bytes_read if opened else 0,
        learned=now(),
        **facts,
    )


def _learned_text(row: LearnedRow) -> str:
    """Return what was read of a wheel, in a line: of a package not what torch it is for, but its own CUDA."""
    code = " ".join(row.architectures) or "it does not list its GPU code"
    name = f"{row.package} {row.version}"
    if row.package == "torch":
        name = f"{name} {row.backend}"
    elif row.toolkit:
        name = f"{name}, CUDA {row.toolkit[0]}"
    part = "" if row.is_whole else " in the part that was read"
    return f"{name}: {code}{part} ({readable(row.bytes)})"


def _may_have_code(package: str, metadata: Message) -> bool:
    """Whether a package is known to have GPU code, says so, or demands what such are compiled beside."""
    members = load_members()
    if members.names(package) or name_cuda(package) or _NAMED.search(package):
        return True
    if package in members.stated:
        return False
    texts = [metadata.get(key, "") for key in ("Summary", "Keywords")]
    texts += metadata.get_all("Classifier", ())
    if any(_FOR_GPUS.search(str(text)) for text in texts):
        return True
    return members.is_compiled_beside(map(str, metadata.get_all("Requires-Dist", ())))


def _is_described_with_cuda(metadata: Message) -> bool:
    """Whether its description names CUDA: mitsuba 3.9.1 says it nowhere else, and has PTX as text."""
    return bool(re.search(r"\bCUDA\b", _description(metadata)))


def _lowest_named(metadata: Message) -> str | None:
    """Return the lowest compute capability that its description asks for, of parts of it too: the least that it needs."""
    lowest = [
        (int(major), int(minor))
        for at_least, major, minor, newer in _LOWEST.findall(_description(metadata))
        if at_least or newer
    ]
    return "{}.{}".format(*min(lowest)) if lowest else None


def _description(metadata: Message) -> str:
    return f"{metadata.get('Description', '')}\n{metadata.get_payload()}"


def _backend(wheel: Wheel, code: TorchCode) -> Backend:
    """Return what a torch is made for: as its name says, or if that says nothing as its code does.

    Raises:
        WheelError: if they disagree.
    """
    made_for = code.toolkit or CPU
    named = known_backend(wheel.version.local) or known_backend(wheel.backend)
    inner, _, label = code.version.partition("+")
    is_of_name = named is None or label in {"", named.tag}
    if inner != wheel.version.public or not is_of_name:
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


def _exact(version: Version | str) -> str:
    return canonicalize_version(version, strip_trailing_zero=False)
