"""Read wheels from an index or disk once, and cache the facts found."""

from __future__ import annotations

import re
from contextlib import suppress
from email.message import Message
from functools import cache
from posixpath import basename
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from packaging.utils import canonicalize_version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.location import file_path
from gpuinstall.base.requirement import is_file_url, normalize_name, remove_wildcards
from gpuinstall.base.text import format_size
from gpuinstall.base.values import Value, asdict, field, replace
from gpuinstall.base.versions import CPU, Backend, known_backend
from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.learned.row import (
    Depth,
    WheelRow,
)
from gpuinstall.wheels.learned.store import (
    RowCache,
    current_time,
    open_row_cache,
)
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    find_pinned_cuda,
    is_for_cuda,
)
from gpuinstall.wheels.package import CODE_LIMIT, LibraryCode, PackageReader
from gpuinstall.wheels.ranges import FileRanges, Ranges, WheelError
from gpuinstall.wheels.torch_wheel import TOOLKITS, TorchCode, read_torch
from gpuinstall.wheels.wheel_reader import WheelReader, parse_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from packaging.version import Version

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.sources import Sources
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client

OFFICIAL_FILES = "download-r2.pytorch.org"
"""The file host to which the official PyTorch index redirects."""
LOCK_LIMIT = 400 << 20
"""The maximum bytes of wheels, cached or not, to read for one lock."""
CODE_LIMIT_OF_LOCK = 128 << 20
"""The maximum bytes of GPU code to read for one lock."""
_FOR_GPUS = re.compile(r"\b(GPUs?|CUDA)\b", re.IGNORECASE | re.ASCII)
"""Words that indicate GPU code in METADATA."""
_REQUIRED = re.compile(r"[a-z0-9][\w.-]*", re.IGNORECASE | re.ASCII)
"""The name in a requirement."""
_LIBRARY_ENDING = re.compile(r"\.(pyd|dll|dylib|so)\b(?=[\w.]*$)", re.ASCII)
_ELF_PLATFORMS = {b"\x3e\0": "linux-x86_64", b"\xb7\0": "linux-aarch64"}
"""The platforms by the machine number in an ELF header."""
_CHECKED = 32
"""The number of libraries to check in a wheel for any platform."""
_LARGE = 5 << 20
"""The size of wheels that are read without a sign of GPU code in METADATA."""
OF_SERVER, OF_WHEEL = "of its server", "of the wheel"
"""Cache key suffixes for METADATA of the index and of the wheel."""
LIBRARIES = "its libraries"
"""The cache key suffix for the file names of a wheel's libraries."""
ANY_BACKEND = "any"
"""The backend in cache keys of wheels that suit every torch build."""

RowKey = tuple[str, str, Depth]


class Reader(Value):
    """Reader of wheels that shares results within one run of gpuinstall."""

    sources: Sources
    client: Client
    store: RowCache
    reporter: Reporter
    rows: dict[RowKey, WheelRow | InstallationError] = field(default_factory=dict)
    """The results and errors of this run, by URL, backend, and depth."""

    @property
    def bytes_read(self) -> int:
        """The number of bytes of wheels that this run reads, except torch.

        Wheels of torch are excluded, because previous runs may have cached any number
        of them.
        """
        return self._count_bytes(Depth.WHOLE)

    @property
    def code_bytes_read(self) -> int:
        """The bytes of GPU code that this run reads, except from torch."""
        return self.bytes_read - self._count_bytes(Depth.TABLES)

    @property
    def deepest(self) -> Depth:
        """The depth to which the limits of the lock allow reading."""
        if self.bytes_read > LOCK_LIMIT:
            return Depth.METADATA
        is_of_code = self.code_bytes_read > CODE_LIMIT_OF_LOCK
        return Depth.TABLES if is_of_code else Depth.WHOLE

    def may_read_rest(self, row: WheelRow) -> bool:
        """Return whether the limits of the lock allow reading the rest."""
        if self.find_read_depth(row.url) is Depth.WHOLE:
            return True
        rest = min(row.size - row.bytes, CODE_LIMIT)
        code_bytes = self.code_bytes_read + rest
        return code_bytes <= CODE_LIMIT_OF_LOCK and self.bytes_read + rest <= LOCK_LIMIT

    def find_read_depth(self, url: str) -> Depth:
        """Return the depth to which this run has read a wheel."""
        rows = [*self.rows.items()]
        read = [
            depth
            for (place, _, depth), row in rows
            if place == url and isinstance(row, WheelRow)
        ]
        return max(read, default=Depth.METADATA)

    def _count_bytes(self, deepest: Depth) -> int:
        """Return the number of bytes read from wheels, up to a depth."""
        most = dict[tuple[str, str], int]()
        # Copy the items, because other threads may add rows.
        for (url, key, depth), row in [*self.rows.items()]:
            if isinstance(row, InstallationError) or row.package == "torch":
                continue
            if depth <= deepest:
                most[url, key] = max(most.get((url, key), 0), row.bytes)
        return sum(most.values())

    def find_cached_row(self, build: Build) -> WheelRow | None:
        """Return cached facts from any wheel of a torch build, or None."""
        for wheel in build.unread:
            row = self.store.get(wheel, build.backend.tag, Depth.PART)
            if row:
                return row
        return None

    def read_torch_row(self, build: Build) -> WheelRow:
        """Read the facts about a torch build from one of its wheels.

        Raises:
            InstallationError: The wheel cannot be read or is malformed.
        """
        wheel = build.unread[0]

        def read() -> WheelRow:
            return _torch_row(
                wheel, self._open(wheel), build, self.sources.addresses.default_index
            )

        return self._read_cached(wheel, read, build.backend.tag, Depth.PART)

    def readings(
        self,
        wheel: Wheel,
        build: Build,
        environment: Mapping[str, str],
        start: Depth = Depth.METADATA,
    ) -> Generator[WheelRow, None, None]:
        """Yield the facts about a wheel with increasing depth.

        The wheel is opened once, and each step continues where the previous step
        stopped.

        Args:
            wheel: The wheel.
            build: The build of torch that the wheel runs with.
            environment: The marker values of the target.
            start: The depth of the first result.

        Raises:
            InstallationError: The wheel cannot be read or is malformed.
        """
        platform = f"{build.os}-{build.arch}"
        depends_on_torch = wheel.package in load_members().per_cuda
        key = build.backend.tag if depends_on_torch else ANY_BACKEND

        @cache
        def rows() -> Iterator[WheelRow]:
            return _read_rows(wheel, self._open(wheel), build.backend, platform)

        def read() -> WheelRow:
            return next(row for row in rows() if row.depth == depth)

        for depth in list(Depth)[start:]:
            if depth is Depth.METADATA:
                metadata = parse_metadata(self._fetch_metadata(wheel) or "")
                requires = _read_requirements(metadata)
                row = _make_row(wheel, build.backend, platform, requires=requires)
            else:
                row = self._read_cached(wheel, read, key, depth)
            row = replace(row, backend=build.backend.tag, platform=platform)
            yield _add_declared_cuda(row, environment)

    def may_have_code(self, wheel: Wheel) -> bool:
        """Return whether a wheel's name or METADATA indicates GPU code."""
        return _may_have_code(wheel.package, self.metadata(wheel))

    def may_use_gpus(
        self, wheel: Wheel, build: Build, environment: Mapping[str, str]
    ) -> bool:
        """Return whether METADATA or a large wheel's tables indicate GPU code.

        Only the tables of apache-tvm 0.27.0, gpt4all 2.8.2, and sapien 3.0.3 do.
        """
        if self.may_have_code(wheel):
            return True
        if wheel.size < _LARGE:
            return False
        row = next(self.readings(wheel, build, environment, Depth.TABLES))
        return row.is_for_gpus or any(map(is_for_cuda, row.needs))

    def metadata(self, wheel: Wheel) -> Message:
        """Return a wheel's METADATA, from the index or the wheel itself."""
        text = self._read_cached_metadata(wheel, OF_WHEEL) or self._fetch_metadata(
            wheel
        )
        if text is None:
            text = self._open(wheel).metadata_text()
            self._cache_metadata(wheel, OF_WHEEL, text)
        return parse_metadata(text)

    def library_names(self, wheel: Wheel) -> set[str]:
        """Return the file names of the libraries in a wheel.

        Raises:
            InstallationError: The wheel cannot be read.
        """
        text = self._read_cached_metadata(wheel, LIBRARIES)
        if text is None:
            names = map(basename, self._open(wheel).members)
            text = "\n".join(filter(_LIBRARY_ENDING.search, names))
            self._cache_metadata(wheel, LIBRARIES, text)
        return set(text.split("\n"))

    def _fetch_metadata(self, wheel: Wheel) -> str | None:
        """Return METADATA from the index, or None if the index lacks it."""
        if is_file_url(wheel.url):
            return self._open(wheel).metadata_text()
        text = self._read_cached_metadata(wheel, OF_SERVER)
        if text is None:
            with suppress(InstallationError):
                page = self.client.page(f"{wheel.url}.metadata")
                # Some mirrors have no METADATA.
                text = page.text if page else ""
                self._cache_metadata(wheel, OF_SERVER, text)
        return text or None

    def _read_cached_metadata(self, wheel: Wheel, origin: str) -> str | None:
        """Return the cached METADATA of a wheel whose hash is known."""
        if wheel.sha256 is None:
            return None
        return self.client.cached_text(f"{wheel.url} {origin}", wheel.sha256)

    def _cache_metadata(self, wheel: Wheel, origin: str, text: str) -> None:
        if wheel.sha256 and not is_file_url(wheel.url):
            self.client.cache_text(f"{wheel.url} {origin}", wheel.sha256, text)

    def _read_cached(
        self,
        wheel: Wheel,
        read: Callable[[], WheelRow],
        key: str,
        depth: Depth,
    ) -> WheelRow:
        """Return cached facts about a wheel, or read them once in a run."""
        place = (wheel.url, key, depth)
        if place not in self.rows:
            try:
                row = self.store.get(wheel, key, depth)
                if row is None:
                    row = self._read_and_report(read)
                    self.store.put(row, wheel, key)
                self.rows[place] = row
            except InstallationError as error:
                self.rows[place] = error
        answer = self.rows[place]
        if isinstance(answer, InstallationError):
            raise answer
        return answer

    def _read_and_report(self, read: Callable[[], WheelRow]) -> WheelRow:
        """Read facts about a wheel, and report a release's GPU code once."""
        started = monotonic()
        row = read()
        reported = {
            (one.package, one.version)
            for one in [*self.rows.values()]
            if isinstance(one, WheelRow) and one.codes
        }
        is_new = (row.package, row.version) not in reported
        if row.package == "torch" or (row.codes and is_new):
            self.reporter.step("Inspected", _format_row(row), monotonic() - started)
        return row

    def _open(self, wheel: Wheel) -> WheelReader:
        return WheelReader(self._open_ranges(wheel))

    def _open_ranges(self, wheel: Wheel) -> Ranges:
        """Return the bytes of a local or remote wheel."""
        if is_file_url(wheel.url):
            return FileRanges(file_path(wheel.url))
        # Redirects between these hosts are allowed.
        addresses = self.sources.addresses
        own = (
            addresses.torch_index,
            addresses.default_index or "",
            f"https://{OFFICIAL_FILES}",
        )
        hosts = {urlsplit(address).netloc for address in own}
        hosts |= load_extensions().redirect_hosts(urlsplit(wheel.url).netloc)
        return HttpRanges(
            self.client.request_range,
            wheel.url,
            hosts=hosts - {""},
            timeouts=self.client.timeouts,
        )


def make_reader(session: Session, reporter: Reporter | None = None) -> Reader:
    """Create a reader for a run. All readers of a run share results.

    Args:
        session: The run.
        reporter: The reporter for inspected wheels, by default the run's reporter.
    """
    return Reader(
        session.sources,
        session.client,
        open_row_cache(),
        reporter or session.reporter,
        session.rows,
    )


def _torch_row(
    wheel: Wheel, opened: WheelReader, build: Build, default_index: str | None
) -> WheelRow:
    """Read the facts about a wheel of torch; raise WheelError."""
    code = read_torch(opened)
    toolkit = code.toolkit
    codes: tuple[LibraryCode, ...] = ()
    if code.library:
        codes = (LibraryCode(code.library, code.architectures),)
    return _make_row(
        wheel,
        _determine_backend(wheel, code),
        f"{build.os}-{build.arch}",
        opened,
        codes=codes,
        cuda=toolkit.version if toolkit and toolkit.kind == "cuda" else None,
        requires=_read_requirements(opened.metadata()),
        pythons=build.pythons,
        glibc=build.glibc,
        source=build.listed_at,
        index=None if build.listed_at else default_index,
        is_labeled=build.is_labeled,
        depth=Depth.PART,
    )


def _read_rows(
    wheel: Wheel, opened: WheelReader, backend: Backend, platform: str
) -> Iterator[WheelRow]:
    """Yield facts about a wheel's tables and code; raise WheelError."""
    metadata = opened.metadata()
    version = _canonical_version(metadata["Version"] or "")
    has_own_version = version not in {"", _canonical_version(wheel.version)}
    # uv accepts a local label in the file name that METADATA lacks.
    if has_own_version and version != _canonical_version(wheel.version.public):
        message = f"METADATA has version {version}, so pip would reject the file"
        raise WheelError("wheel-malformed", message)
    package = PackageReader(
        opened,
        wheel.package,
        may_have_code=_may_have_code(wheel.package, metadata)
        or _is_described_with_cuda(metadata),
        cuda=backend.version,
    )
    for depth in list(Depth)[Depth.TABLES :]:
        if depth is Depth.TABLES:
            facts = package.read_tables()
        else:
            facts = package.read_code(whole=depth is Depth.WHOLE)
        # Other wheels may be read before the rest of this one.
        opened.pause()
        yield _make_row(
            wheel,
            backend,
            platform,
            opened,
            **asdict(facts),
            requires=_read_requirements(metadata),
            metadata_version=version if has_own_version else None,
            cuda=f"{facts.cudas[0]}.0" if len(facts.cudas) == 1 else None,
            system="any" if package.programs else _library_system(wheel, opened),
            depth=depth,
        )


def _add_declared_cuda(row: WheelRow, environment: Mapping[str, str]) -> WheelRow:
    """Add the declared CUDA to the facts of a wheel."""
    cuda = row.cuda
    if not cuda and len(row.cudas) < 2:
        pins = row.requirements()
        if row.depth < Depth.PART:
            # The code may be for an older CUDA than the NCCL that the wheel requires.
            runtime = load_members().runtime
            pins = (one for one in pins if runtime.fullmatch(one.name))
        major = row.declared_cuda or find_pinned_cuda(pins, environment)
        cuda = f"{major}.0" if major else None
    return replace(row, cuda=cuda)


def _read_requirements(metadata: Message) -> tuple[str, ...]:
    requirements = metadata.get_all("Requires-Dist", ())
    return tuple(remove_wildcards(str(one)) for one in requirements)


def _library_system(wheel: Wheel, opened: WheelReader) -> str | None:
    """Return the platform of a wheel's libraries, or ``any`` if unknown."""
    names = [*filter(_LIBRARY_ENDING.search, opened.members)]
    if not names:
        return None
    if all(name.endswith((".pyd", ".dll")) for name in names):
        return "windows"
    checked = names[:_CHECKED] if wheel.is_pure else ()
    headers = [opened.read_beginning(name, 1 << 10) for name in checked]
    platforms = {_ELF_PLATFORMS.get(header[18:20], "any") for header in headers}
    return platforms.pop() if len(platforms) == 1 else "any"


def _make_row(
    wheel: Wheel,
    backend: Backend,
    platform: str,
    opened: WheelReader | None = None,
    **facts: Any,
) -> WheelRow:
    """Create the facts about a wheel. Without ``opened``, sizes are 0."""
    return WheelRow(
        package=wheel.package,
        version=wheel.version.public,
        backend=backend.tag,
        platform=platform,
        file=wheel.filename,
        url=wheel.url,
        sha256=wheel.sha256,
        size=opened.size if opened else 0,
        bytes=opened.bytes_read if opened else 0,
        learned=current_time(),
        **facts,
    )


def _format_row(row: WheelRow) -> str:
    """Return a one-line description of the GPU code in a wheel."""
    code = " ".join(row.architectures) or "GPU architectures not listed"
    name = f"{row.package} {row.version}"
    if row.package == "torch":
        name = f"{name} {row.backend}"
    elif row.toolkit:
        name = f"{name}, CUDA {row.toolkit[0]}"
    part = "" if row.is_whole else " in the inspected part"
    return f"{name}: {code}{part} ({format_size(row.bytes)})"


def _may_have_code(package: str, metadata: Message) -> bool:
    """Return whether a package's name or METADATA indicates GPU code."""
    members = load_members()
    if members.has_library(package) or members.named_for_gpus.fullmatch(package):
        return True
    if package in members.stated:
        return False
    texts = [metadata.get(key, "") for key in ("Summary", "Keywords")]
    texts += metadata.get_all("Classifier", ())
    if any(_FOR_GPUS.search(str(text)) for text in texts):
        return True
    # Parsing the requirements of a large program takes a tenth of a second.
    required = map(_REQUIRED.match, metadata.get_all("Requires-Dist", ()))
    names = {normalize_name(name[0]) for name in required if name}
    return any(map(members.compiled_with.fullmatch, names))


def _is_described_with_cuda(metadata: Message) -> bool:
    """Return whether the description mentions CUDA, as in mitsuba 3.9.1."""
    text = f"{metadata.get('Description', '')}\n{metadata.get_payload()}"
    return bool(re.search(r"\bCUDA\b", text))


def _determine_backend(wheel: Wheel, code: TorchCode) -> Backend:
    """Return the backend of a torch wheel from its file name or its code.

    Raises:
        WheelError: The file name and the code specify different backends.
    """
    made_for = code.toolkit or CPU
    named = known_backend(wheel.version.local) or known_backend(wheel.backend)
    inner, _, label = code.version.partition("+")
    is_of_name = named is None or label in {"", named.tag}
    if inner != wheel.version.public or not is_of_name:
        message = (
            f"{wheel.filename} contains a different torch version than its file name"
        )
        raise WheelError("wheel-malformed", message)
    if named is None:
        return made_for
    # A build without a toolkit in version.py looks like a CPU build.
    if made_for.kind != (named.kind if named.kind in TOOLKITS.values() else "cpu"):
        message = f"{wheel.filename} is built for {made_for}, but its file name specifies {named}"
        raise WheelError("wheel-malformed", message)
    return named


def _canonical_version(version: Version | str) -> str:
    return canonicalize_version(version, strip_trailing_zero=False)
