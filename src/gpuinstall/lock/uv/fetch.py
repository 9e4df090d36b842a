"""Hash and download locked files, and install them with uv."""

from __future__ import annotations

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from os.path import isfile
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

import tomli_w

from gpuinstall.base import process, uv
from gpuinstall.base.advice import make_command, make_shell_line
from gpuinstall.base.errors import (
    InstallationError,
    InterruptedByUserError,
    LockError,
    UnreachableError,
)
from gpuinstall.base.files import (
    check_output,
    file_sha256,
    open_atomically,
    open_regular,
    parse_toml,
    write_atomically,
)
from gpuinstall.base.interruption import TransferInterrupted
from gpuinstall.base.location import SourceKind, file_path, parse_source
from gpuinstall.base.removal import scratch_folder, tree_size
from gpuinstall.base.requirement import is_file_url, is_http_url
from gpuinstall.base.shell import quote_word
from gpuinstall.base.text import join_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import data_files, load_catalog
from gpuinstall.environments.stamp import read_file_stamp
from gpuinstall.lock.file.lock import Lock, LockedFile, find_given_file
from gpuinstall.lock.request.project import read_archive, read_wheel
from gpuinstall.lock.uv.errors import DAMAGED_FILE, explain_installation
from gpuinstall.sources.provenance import is_on_pytorch_host
from gpuinstall.sources.web import FileHash, Head
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from gpuinstall.base.location import PackageSource
    from gpuinstall.base.reporter import Meter, Progress, Reporter
    from gpuinstall.lock.request.project import ArchiveTexts
    from gpuinstall.plan.values import Choice
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client

_Item = TypeVar("_Item")

FILES_AT_ONCE = 16
"""Number of concurrent downloads. A large lock has about 200 small files."""
GROWTH_S = 1.0
"""Seconds between two measurements of uv's cache."""
_PAUSE = 20
"""The least ratio of a pause to a measurement, which slows uv down."""
_KEPT_FILES = "complete files are in uv's cache and will not be downloaded again"
CHUNK = 1 << 20
"""Number of bytes per read of a local file."""


class Hashes(Value):
    """The known hashes of files, and the files without a known hash."""

    known: Mapping[str, str]
    """The SHA-256 hash of each file, by URL."""

    missing: Mapping[LockedFile, Head]
    """The files to download and hash, with their response headers."""


def find_known_hashes(files: Sequence[LockedFile], client: Client) -> Hashes:
    """Return the known hashes, and the files that must be downloaded."""
    known = {}
    missing = {}
    answers = map_concurrently(partial(_find_known_hash, client), files)
    for file, answer in zip(files, answers, strict=True):
        if isinstance(answer, Head):
            missing[file] = answer
        else:
            known[file.url] = answer
    return Hashes(known, missing)


def _find_known_hash(client: Client, file: LockedFile) -> str | Head:
    """Return the known hash of a file, or its response headers."""
    if file.sha256:
        return file.sha256
    is_official = is_on_pytorch_host(file.location)
    if is_official and file.name in _load_published_hashes():
        return _load_published_hashes()[file.name]
    known = client.hashes.get(file.url)
    path = parse_file_url(file.url)
    try:
        if path:
            head = Head(etag=str(read_file_stamp(str(path))))
        else:
            head = client.head(file.url)
    except UnreachableError:
        return known.sha256 if known else Head()
    if known and known.etag and known.etag == head.etag:
        return known.sha256
    if path is None:
        return head
    # Cache the hash: a command may resolve several times, and a torch wheel is about 1 GB.
    sha256 = file_sha256(path)
    client.hashes.put(file.url, FileHash(sha256, head.etag))
    return sha256


@cache
def _load_published_hashes() -> Mapping[str, str]:
    """Return the cataloged hashes of PyTorch's files, by file name."""
    rows = data_files.read_data("hashes.toml")["wheels"]
    return {row["file"]: row["sha256"] for row in rows}


def fetch_missing(
    heads: Mapping[LockedFile, Head],
    client: Client,
    reporter: Reporter,
    *,
    folder: Path | None = None,
) -> dict[str, str]:
    """Download files, and return their hashes by URL.

    Args:
        heads: The files with their response headers.
        client: The HTTP client.
        reporter: Reports the progress.
        folder: The folder for the files. None: they are not stored.
    """
    if not heads:
        return {}
    hashes = dict[str, str]()

    def fetch(progress: Progress, file: LockedFile) -> None:
        head = heads[file]
        meter = partial(progress, file.name)
        place = open_atomically(folder / _store_path(file)) if folder else nullcontext()
        with place as copy:
            sha256 = _fetch_file(file, head.size, meter, client, copy)
        client.hashes.put(file.url, FileHash(sha256, head.etag))
        hashes[file.url] = sha256

    sizes = {file.name: head.size for file, head in heads.items()}
    _transfer(fetch, heads, sizes, reporter)
    return hashes


def _store_path(file: LockedFile) -> str:
    """Return the relative path at which a file is stored.

    Two indexes may have different files with the same name.
    """
    name = re.sub(r"[/\\]", "-", file.name) or "-"
    return f"{hashlib.sha256(file.url.encode()).hexdigest()[:16]}/{name}"


def read_remote_archive(
    source: PackageSource,
    texts: dict[str, Sequence[tuple[str, str]]],
    client: Client,
    reporter: Reporter,
    folder: Path,
) -> ArchiveTexts:
    """Return the files of a remote archive from which uv reads requirements.

    Args:
        source: The archive.
        texts: The archives that this run has read, by URL.
        client: The HTTP client.
        reporter: Reports the progress.
        folder: The folder for sdists.

    Raises:
        UsageError: The archive has too many members to unpack.
        WheelError: A file in the wheel is too large or damaged.
    """
    url = source.address.partition("#")[0]
    if url not in texts:
        found: ArchiveTexts = ()
        # uv reports a file that its server does not send.
        with suppress(InstallationError):
            found = _open_remote_archive(source, url, client, reporter, folder)
        texts[url] = [*found]
    return texts[url]


def _open_remote_archive(
    source: PackageSource,
    url: str,
    client: Client,
    reporter: Reporter,
    folder: Path,
) -> ArchiveTexts:
    if source.kind is SourceKind.WHEEL:
        # Some servers do not support range requests.
        with suppress(WheelError):
            ranges = HttpRanges(
                client.request_range, url, hosts=None, timeouts=client.timeouts
            )
            return read_wheel(ranges)
    file = LockedFile("", url)
    fetch_missing({file: client.head(url)}, client, reporter, folder=folder)
    return read_archive(folder / _store_path(file))


def download(
    locks: Sequence[Lock],
    folder: Path,
    client: Client,
    reporter: Reporter,
) -> list[str]:
    """Download and verify every file of the locks, except existing files.

    Two indexes may have different files with the same name. The second is saved in a
    folder named after its hash.

    Returns:
        The paths relative to ``folder``, sorted.

    Raises:
        LockError: There is no lock, or a file has no sha256.
        InstallationError: A file differs from the locked one.
        UsageError: A link leads the folder outside the repository.
    """
    files = _collect_files(locks, reporter)
    for place in {(folder / name).parent for name in files}:
        check_output(place)

    def fetch(progress: Progress, name: str) -> None:
        file = files[name]
        path = folder / name
        if isfile(path) and file_sha256(path) == file.sha256:
            return
        with open_atomically(path) as copy:
            sha256 = _fetch_file(file, None, partial(progress, name), client, copy)
            if sha256 != file.sha256:
                raise InstallationError(
                    "hash-mismatch",
                    f"the hash of {file.url} does not match the lock",
                    why="the file changed on its server, or was damaged during the download",
                    evidence=f"expected sha256 {file.sha256}, got {sha256}",
                )

    _transfer(fetch, files, dict.fromkeys(files), reporter)
    return sorted(files)


def _collect_files(locks: Sequence[Lock], reporter: Reporter) -> dict[str, LockedFile]:
    """Return the files of locks by their paths in the folder."""
    if not locks:
        message = "no lock found, so there are no files to download"
        raise LockError("lock-missing", message, hint=make_command("lock"))
    files: dict[str, LockedFile] = {}
    for lock in locks:
        if lock.addresses:
            names = join_names([*lock.addresses])
            message = (
                f"skipped {names} in {lock.name}: installed from a folder or repository"
            )
            reporter.warn(message)
        for file in lock.files:
            if file.sha256 is None:
                message = f"{lock.name} has no sha256 for {file.name}"
                hint = make_command("lock", "--upgrade")
                raise LockError("lock-unhashed", message, hint=hint)
            if files.setdefault(file.name, file).sha256 != file.sha256:
                files[f"{file.sha256}/{file.name}"] = file
    return files


def _transfer(
    fetch: Callable[[Progress, _Item], None],
    items: Iterable[_Item],
    sizes: Mapping[str, int | None],
    reporter: Reporter,
) -> None:
    """Download files concurrently, and report the progress.

    If a download fails or the user interrupts it, the others stop at their next chunk.

    Args:
        fetch: Downloads one item, and reports its bytes.
        items: The items.
        sizes: The size of each file in bytes, by name; None if unknown.
        reporter: Reports the progress.
    """
    stopped = Event()

    def count(name: str, size: int) -> None:
        if stopped.is_set():
            raise InterruptedByUserError("interrupted", "the download was interrupted")
        progress(name, size)

    with (
        reporter.progress("Download", sizes) as progress,
        ThreadPoolExecutor(FILES_AT_ONCE) as pool,
    ):
        try:
            for _ in pool.map(partial(fetch, count), items):
                pass
        finally:
            stopped.set()


def parse_file_url(url: str) -> Path | None:
    """Return the path of a ``file:`` URL, or None for another URL."""
    return file_path(url) if is_file_url(url) else None


def find_local_file(file: LockedFile, wheels: Path | None) -> Path | None:
    """Return the local path of a file, or None if it must be downloaded.

    Args:
        file: The file.
        wheels: A folder created by ``download``, which is searched first.
    """
    given = wheels and find_given_file(file.name, file.sha256, wheels)
    return given or parse_file_url(file.url)


def _read_chunks(path: Path) -> Iterator[bytes]:
    try:
        with open_regular(path) as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise InstallationError("file-unreadable", message) from None


def _fetch_file(
    file: LockedFile,
    size: int | None,
    meter: Meter,
    client: Client,
    copy: IO[bytes] | None,
) -> str:
    """Read a file, and return its SHA-256.

    Args:
        file: The file, on this machine or on a server.
        size: Its size in bytes, if known.
        meter: Counts the bytes.
        client: The HTTP client.
        copy: The file to which to write the bytes.
    """
    local = parse_file_url(file.url)
    chunks = _read_chunks(local) if local else client.chunks(file.url, size)
    digest = hashlib.sha256()
    for chunk in chunks:
        if copy:
            copy.write(chunk)
        digest.update(chunk)
        meter(len(chunk))
    return digest.hexdigest()


@contextmanager
def _serve_folder(folder: Path) -> Iterator[str]:
    """Serve the files in a folder to uv, and yield the secret URL."""
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
    from secrets import token_hex

    key = f"/{token_hex(16)}"

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            prefix, _, name = unquote(path).rpartition("/")
            parent, _, place = prefix.rpartition("/")
            is_valid = parent == key and place.isalnum() and name
            return str(folder / place / name) if is_valid else os.devnull

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Print nothing if uv closes a connection."""

    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{key}"
        finally:
            server.shutdown()


class LockInstaller(Value):
    """An installer that installs locked files with uv."""

    lock: Lock
    folder: Path
    """The folder of the lock file."""
    packages: Collection[str]
    """The packages to install."""
    torch_index: str | None
    """The index of PyTorch packages, which is part of uv's cache key."""
    private_lock: Path
    """The path of the lock file that uv installs."""
    given: uv.BuildVariables = uv.BuildVariables()
    """The environment variables for builds."""
    built: Collection[str] = ()
    """The packages to build from source."""
    missing: Mapping[LockedFile, int] = {}
    """The files to download, with their sizes in bytes."""
    heads: Mapping[LockedFile, Head] = {}
    """The response headers of files without a known hash."""
    wheels: Path | None = None
    """A folder created by ``download``, which is searched first."""
    fetched: Path | None = None
    """A folder with the files that had no hash."""
    server: str = ""
    """The URL of this folder on this machine."""
    unpacked: float = 1.0
    """The ratio of unpacked and downloaded bytes."""

    def run(
        self, command: list[str], variables: Mapping[str, str], session: Session
    ) -> Lock:
        """Install with uv, and return the lock with all hashes.

        Args:
            command: The command line of uv.
            variables: Environment variables to add. Builds may run package code.
            session: The HTTP clients and caches.

        Raises:
            InstallationError: uv cannot download or install a file.
            TransferInterrupted: The user interrupted uv.
        """
        client = session.client
        environment = self.given.select_variables({**session.environment, **variables})
        unhashed = self.lock.find_unhashed_packages.intersection(self.packages)
        heads = {
            file: head for file, head in self.heads.items() if file.package in unhashed
        }
        sizes = {
            file.name: size or None
            for file, size in self.missing.items()
            if file.package in {*self.packages} - unhashed
        }
        # With several indexes, uv caches wheels by URL instead.
        is_only = not session.sources.addresses.has_further_indexes
        default = session.find_default_index() if is_only else None
        # uv downloads to the same disk.
        cache = session.find_uv_cache()
        cache.mkdir(parents=True, exist_ok=True)
        with scratch_folder(cache) as folder:
            # uv would download a file without a hash twice.
            fetched = fetch_missing(heads, client, session.reporter, folder=folder)
            lock = self.lock.with_hashes(fetched)
            if heads:
                environment = uv.bypass_proxy(environment)
            growth = report_growth(sizes, self.unpacked, cache, session.reporter)
            serve = _serve_folder(folder) if heads else nullcontext("")
            try:
                with serve as server, growth:
                    installer = replace(self, lock=lock, fetched=folder, server=server)
                    installer.write_private_lock(default)
                    run_uv(command, replace(session, environment=environment))
                client.received += sum(filter(None, sizes.values()))
            except KeyboardInterrupt:
                raise TransferInterrupted(_KEPT_FILES) from None
            except InstallationError as error:
                self._explain_local_files(error)
                raise
        return lock

    def _explain_local_files(self, error: InstallationError) -> None:
        """Add the missing files and the command that downloads them."""
        is_offline = error.code == "offline"
        if is_offline and self.missing:
            names = ", ".join(file.name for file in self.missing)
            error.evidence = f"not on this machine: {names}"
        if is_offline or (self.wheels and error.code in DAMAGED_FILE):
            folder = str(self.wheels or "wheels")
            note = "with a network"
            if not self.wheels:
                note += "; then add --wheels wheels"
            error.fixes = (make_command("lock", "download", folder, note=note),)
            if self.wheels and is_offline and not self.missing:
                # Lock files do not contain build requirements.
                line = f"pip download -d {quote_word(folder)} <the build requirements>"
                error.fixes = (make_shell_line(line, note),)

    def write_private_lock(self, default: str | None) -> None:
        """Write the lock file for uv."""
        private = self.create_private_lock(default)
        write_atomically(self.private_lock, private, is_cached=True)

    def create_private_lock(self, default: str | None) -> str:
        """Return the lock file for uv.

        Args:
            default: The index of other packages, which is part of uv's cache key. None
                if packages may be from several indexes.
        """
        document = parse_toml(self.lock.text)
        # uv would compare this value with a different interpreter.
        document.pop("requires-python", None)
        packages = [one for one in document["packages"] if one["name"] in self.packages]
        document["packages"] = packages
        family = load_catalog().family if self.torch_index else ()
        for package in packages:
            name = package["name"]
            # uv's cache key contains the index that uv itself would have used.
            package.pop("index", None)
            index = self.torch_index if name in family else default
            if is_http_url(index) and "version" in package:
                package["index"] = index
            others = map(package.get, ("sdist", "archive", "directory", "vcs"))
            for source in (*package.get("wheels", ()), *filter(None, others)):
                if "path" in source:
                    source["path"] = str(self.folder / source["path"])
            archive_url = package.get("archive", {}).get("url", "")
            is_wheel = parse_source(archive_url).kind is SourceKind.WHEEL
            if "+" in package.get("version", "") and is_wheel:
                # Only pip needs the archive. uv downloads a wheel only once.
                package["wheels"] = [package.pop("archive")]
            for entry in package.get("wheels", ()):
                self._replace_location(entry, name)
            if package.get("wheels") and name not in self.built:
                # Otherwise, uv could build the package without an announcement.
                package.pop("sdist", None)
            for kind in {"sdist", "archive"} & package.keys():
                self._replace_location(package[kind], name)
        return tomli_w.dumps(document)

    def _replace_location(self, entry: dict[str, Any], package: str) -> None:
        """Replace the URL of a local file with its path."""
        if "path" in entry:
            return
        file = LockedFile(package, entry["url"], entry["hashes"].get("sha256"))
        path = find_local_file(file, self.wheels)
        if self.fetched and isfile(self.fetched / _store_path(file)):
            # uv would not find a file from a path in its cache when it installs the lock again.
            entry["url"] = f"{self.server}/{quote(_store_path(file))}"
        elif path:
            # uv accepts a local archive only as a path.
            del entry["url"]
            entry["path"] = str(path)


@contextmanager
def report_growth(
    sizes: Mapping[str, int | None], ratio: float, cache: Path, reporter: Reporter
) -> Iterator[None]:
    """Report the growth of uv's cache as downloaded bytes about every second.

    Args:
        sizes: The size of each file in bytes, by name; None if unknown.
        ratio: The ratio of unpacked and downloaded bytes.
        cache: The folder of uv's cache.
        reporter: Reports the progress.
    """
    total = sum(filter(None, sizes.values()))
    # uv does not report which file grows.
    part = next(iter(sizes), "")
    initial = {*_list_archives(cache)}
    complete = dict[Path, int]()
    stopped = Event()
    reported = 0

    def watch() -> None:
        nonlocal reported
        pause = GROWTH_S
        while not stopped.wait(pause):
            start = monotonic()
            grown = 0
            for path in {*_list_archives(cache)} - initial:
                size = complete.get(path) or tree_size(path)
                if not path.name.startswith("."):
                    complete[path] = size
                grown += size
            now = max(reported, min(int(grown / ratio), total))
            if now > reported:
                progress(part, now - reported)
            reported = now
            pause = max(GROWTH_S, _PAUSE * (monotonic() - start))

    with reporter.progress("Download", sizes) as progress:
        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()
        if sizes:
            progress(part, total - reported)


def _list_archives(cache: Path) -> Iterator[Path]:
    """Yield the unpacked and the temporary folders in uv's cache."""
    with suppress(OSError):
        for folder in (cache, *cache.glob("archive-v*")):
            for path in folder.iterdir():
                if folder != cache or path.name.startswith(".tmp"):
                    yield path


def find_build_index(choice: Choice, torch_index: str) -> str | None:
    """Return the index or folder of a torch build for uv's cache key."""
    if is_http_url(choice.index):
        return f"{torch_index}/{choice.build.backend.tag}"
    return choice.index


def run_uv(command: list[str], session: Session) -> None:
    """Run uv, and report the packages that it builds.

    Raises:
        InstallationError: uv fails.
    """

    def show(line: str) -> None:
        if line.strip().startswith("Building"):
            session.reporter.wait(line.strip())

    run = process.run(
        command,
        each_error_line=show,
        env=session.environment,
        timeouts=session.client.timeouts,
    )
    if not run.ok:
        raise explain_installation(run.err)
