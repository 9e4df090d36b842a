"""Parse PEP 751 lock files with packaging, and validate and compare them."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from os.path import isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from gpuinstall.base.advice import Advice, Hint, make_command, make_shell_line
from gpuinstall.base.codec import MalformedError, read, read_object, write_object
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import (
    find_link_hints,
    leads_outside,
    parse_toml,
    read_document,
    real_path,
)
from gpuinstall.base.location import (
    Location,
    PackageSource,
    SourceKind,
    SourceOrigin,
    parse_source,
)
from gpuinstall.base.machine import Glibc
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import (
    TextOrigin,
    check_marker,
    is_http_url,
    parse_constraint,
    parse_line,
    parse_requirement,
    quote_path,
    remove_duplicates,
    requirement_names,
)
from gpuinstall.base.text import MAX_NAMES, has_login, shorten
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import version_key
from gpuinstall.sources.provenance import RECORDED_HASHES
from gpuinstall.sources.uv_settings import LIMITS

if TYPE_CHECKING:
    from packaging.pylock import Package, Pylock

    from gpuinstall.environments.packages import InstalledPackage

    _Versions = Mapping[str, str]

LockEntry = tuple["Package", Any]
Packages = Sequence["Package"]
"""A locked package, with its file, folder, or repository."""

BUILD_FILES = "an archive or a folder's build file (pyproject.toml, setup.py, setup.cfg, or a file that they include)"
"""The files of ``build_files_digest``, for messages."""

_LONGEST_PATH = 4096
"""The maximum length of a path, in characters: Linux's PATH_MAX."""
_SEAL = "contents-digest"

_RESTORE = make_command(
    "lock",
    "--upgrade",
    note="rebuilds it from the requirements that can be read; or restore it from version control",
)

_KEEP_OURS = make_shell_line(
    "git checkout --ours pylock.*.toml && gpuinstall lock",
    note="keeps this branch's versions; requirements that only the other lock file has must be added again",
)

PLACEHOLDER = "0" * 32
"""The prefix of placeholder hashes."""


def _normalize_requirement(text: str) -> str:
    return parse_requirement(text).text


_Requirements = tuple[Annotated[str, _normalize_requirement], ...]


class Record(Value):
    """The ``[tool.gpuinstall]`` table in a lock file."""

    inputs: _Requirements = ()
    """The requirements; empty in a lock file by another tool."""

    torch: str = ""
    backend: str = ""
    catalogue: str = ""  # prose: a key of the file
    """The date of the catalog that was used for the resolution."""

    constraints: _Requirements = ()
    sources: tuple[str, ...] = ()
    """The index options of the requirements files."""

    preferred_digest: str = ""
    """The digest of the versions in the project's own lock."""

    build_files_digest: str = ""
    asked: str | None = None
    """The name of the backend that the user requested."""

    architectures: tuple[str, ...] = ()
    floors: Mapping[str, str] = {}
    """The minimum versions of the driver and other components."""

    glibc: Glibc | None = None
    """The glibc version for which the packages were selected."""

    apart: tuple[str, ...] = ()
    """The packages whose versions differ between targets."""

    relaxed: Mapping[str, str] = {}
    """The requirements that ``--relax`` replaced, by package."""

    request_revision: int = 0
    """The revision number of the request, incremented by each change."""

    requirements_files: Mapping[str, tuple[str, ...]] = {}
    """The lines of each requirements file, by relative path."""

    selected_extras: Mapping[str, tuple[str, ...]] = {}
    """The requirements in each selected extra or group."""

    no_groups: tuple[str, ...] = ()
    """The default groups that the user omits, or ``:all:``."""

    contents_digest: str = ""
    """The digest of the other lock file contents, to detect manual edits."""

    @classmethod
    def from_request(cls, request: Request) -> Record:
        """Create the lock file record of a request.

        Raises:
            UsageError: A requirement is malformed.
        """
        selected = {*chain.from_iterable(request.selected.values())}
        own = (one for one in request.requirements if one not in selected)
        constraints = {
            one.text for one in request.constraints if one.origin.key not in LIMITS
        }
        return cls(
            inputs=tuple(map(str, remove_duplicates(own))),
            constraints=tuple(sorted(constraints)),
            sources=request.sources,
            preferred_digest=hash_texts(map(str, request.preferred))
            if request.preferred
            else "",
            build_files_digest=request.build_files_digest,
            asked=request.backend,
            request_revision=request.revision,
            requirements_files={
                file: tuple(one.line for one in lines)
                for file, lines in request.files.items()
            },
            selected_extras={
                name: tuple(one.line for one in lines)
                for name, lines in request.selected.items()
            },
            no_groups=request.no_groups,
        )

    def to_table(self) -> dict[str, Any]:
        """Return the ``[tool.gpuinstall]`` table without empty fields."""
        fields = write_object(self, optional=self.__struct_fields__)
        return {name.replace("_", "-"): value for name, value in fields.items()}

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """The recorded requirements, including those in selected extras."""
        return (*self.inputs, *chain.from_iterable(self.selected_extras.values()))

    @property
    def limits(self) -> tuple[str, ...]:
        """The recorded constraints and sources, as text."""
        return (*(f"-c {text}" for text in self.constraints), *self.sources)

    def to_request(self, name: str) -> Request:
        """Return the request that the lock file records.

        Args:
            name: The lock file, as the origin of requirements without a file.
        """
        origin = TextOrigin(name)
        files = {
            file: tuple(parse_line(line, TextOrigin(str(file))) for line in lines)
            for file, lines in self.requirements_files.items()
        }
        return Request(
            tuple(parse_requirement(text, origin) for text in self.inputs),
            constraints=tuple(
                parse_constraint(text, origin) for text in self.constraints
            ),
            sources=self.sources,
            files=files,
            revision=self.request_revision,
            no_groups=self.no_groups,
        )


class RequestChanges(Value):
    """The differences between a recorded request and another one."""

    requirements: tuple[str, ...] = ()
    """The added (``+``) and removed (``-``) requirements."""

    all_requirements: tuple[str, ...] = ()
    """The same, including the requirements of selected extras."""

    limits: tuple[str, ...] = ()
    """The added and removed constraints and sources, also with hashes."""

    files: tuple[str, ...] = ()
    """The requirements files with other lines, and ``BUILD_FILES``."""

    has_other_versions: bool = False
    """Whether the project's own lock has other versions."""

    @property
    def texts(self) -> list[str]:
        """The changes that a lock must record, as text."""
        changes = [*self.all_requirements, *self.limits]
        shown = [line for line in changes if not line[2:].startswith(RECORDED_HASHES)]
        shown += [name for name in self.files if name == BUILD_FILES]
        if self.has_other_versions:
            shown.append("different versions in the project's own lock")
        # Changed versions imply changed hashes.
        return shown or ["different file hashes"][: len(changes)]


def compare_requests(before: Record, now: Record) -> RequestChanges:
    """Return the differences between a recorded request and another one."""
    # A lock by another tool does not record its requirements.
    if not before.inputs:
        return RequestChanges()
    names = {*before.requirements_files, *now.requirements_files}
    files = [
        name
        for name in sorted(names)
        if {*before.requirements_files.get(name, ())}
        != {*now.requirements_files.get(name, ())}
    ]
    # Without the project's files or archives, there is no digest to compare.
    digests = {before.build_files_digest, now.build_files_digest}
    if len(digests - {""}) > 1:
        files.append(BUILD_FILES)
    return RequestChanges(
        _compare_lines(before.inputs, now.inputs),
        _compare_lines(before.all_inputs, now.all_inputs),
        _compare_lines(before.limits, now.limits),
        tuple(files),
        has_other_versions=before.preferred_digest != now.preferred_digest,
    )


def _compare_lines(before: Iterable[str], now: Iterable[str]) -> tuple[str, ...]:
    """Return the added and removed lines, each with its sign."""
    old, new = {*before}, {*now}
    added = [f"+ {line}" for line in sorted(new - old)]
    return (*added, *(f"- {line}" for line in sorted(old - new)))


def hash_texts(texts: Iterable[str]) -> str:
    """Return a digest of texts that does not depend on their order."""
    text = json.dumps(sorted(texts))
    return hashlib.sha256(text.encode()).hexdigest()


class LockedFile(Value):
    """A locked file that has a URL."""

    package: str
    url: str
    sha256: str | None = None
    size: int = 0
    """The size in bytes; 0 if unknown."""

    @cached_property
    def location(self) -> Location:
        """The location without a login."""
        return Location.parse(self.url)

    @property
    def name(self) -> str:
        """The file name in the URL."""
        path = urlsplit(self.url).path
        return unquote(path.rpartition("/")[2])


def find_given_file(name: str, sha256: str | None, wheels: Path) -> Path | None:
    """Return a file of a folder that ``download`` created, if it is there."""
    paths = (folder / name for folder in (wheels / (sha256 or ""), wheels))
    return next(filter(isfile, paths), None)


class Lock(Value):
    """A PEP 751 lock file, as text and parsed."""

    name: str
    text: str
    pylock: Pylock
    record: Record
    is_from_gpuinstall: bool
    """Whether gpuinstall created the lock file."""

    @property
    def sha256(self) -> str:
        """The SHA-256 digest of the lock file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def target(self) -> str:
        """The target in the name of the lock file."""
        return parse_lock_filename(self.name)

    @property
    def python(self) -> str | None:
        """The Python version that the lock file supports, as ``X.Y``."""
        # A lock by another tool may support several minor versions.
        specifiers = str(self.pylock.requires_python)
        one_minor = re.fullmatch(r"==(\d\.\d{1,2})\.\*", specifiers)
        return one_minor[1] if one_minor else None

    @cached_property
    def all_versions(self) -> dict[str, str]:
        """The version of each locked package; empty for a local folder."""
        return list_versions(self.pylock.packages)

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each locked package that has a version."""
        return {name: version for name, version in self.all_versions.items() if version}

    @property
    def requested(self) -> frozenset[str]:
        """The names of the packages that the user requested."""
        return requirement_names(map(parse_requirement, self.record.all_inputs))

    @property
    def names(self) -> frozenset[str]:
        """The names of all locked packages."""
        return frozenset(self.all_versions)

    @property
    def indexes(self) -> dict[str, str]:
        """Indexes that only the lock's author has configured, by package."""
        return {
            package.name: package.index
            for package in self.pylock.packages
            if package.index
        }

    @property
    def is_sealed(self) -> bool:
        """Whether the lock file is unchanged since gpuinstall wrote it."""
        return self.record.contents_digest == _compute_contents_digest(
            parse_toml(self.text)
        )

    @property
    def addresses(self) -> dict[str, str]:
        """The requirement of each package from a folder or repository."""
        packages = [one for one in self.pylock.packages if one.directory or one.vcs]
        return {package.name: _format_url_requirement(package) for package in packages}

    def find_projects(self, folder: Path) -> dict[str, tuple[Path, bool]]:
        """Return the folder of each local project, and whether it is editable.

        Args:
            folder: The folder of the lock file.
        """
        projects = dict[str, tuple[Path, bool]]()
        for package in self.pylock.packages:
            project = package.directory
            if project:
                path = real_path(folder / project.path)
                projects[package.name] = path, bool(project.editable)
        return projects

    @property
    def packages_without_url(self) -> list[str]:
        """The locked packages that have no file on a server."""
        served = {file.package for file in self.files if is_http_url(file.url)}
        return [name for name in self.all_versions if name not in served]

    @property
    def local_only_packages(self) -> list[str]:
        """The locked packages that exist only on this machine.

        A folder next to the lock is part of the repository.
        """
        is_elsewhere = re.compile(r" @ (\.|\w+\+(https?|ssh):)").search
        addresses = self.addresses.items()
        elsewhere = {name for name, address in addresses if is_elsewhere(address)}
        return [name for name in self.packages_without_url if name not in elsewhere]

    @cached_property
    def package_sources(self) -> list[LockEntry]:
        """All locked files, folders, and repositories."""
        return list_package_sources(self.pylock.packages)

    def find_hashes(self, package: str) -> set[str]:
        """Return the sha256 of every file of a package, for all platforms."""
        return {
            source.hashes.get("sha256", "")
            for owner, source in self.package_sources
            if owner.name == package and hasattr(source, "hashes")
        }

    @cached_property
    def files(self) -> tuple[LockedFile, ...]:
        """All locked files that have a URL."""
        return list_files_with_url(self.package_sources)

    @property
    def find_unhashed_packages(self) -> set[str]:
        """Return the packages whose files have placeholder hashes."""
        return {
            file.package for file in self.files if is_placeholder(file.sha256 or "")
        }

    @property
    def glibc(self) -> str:
        """The glibc version for which the packages were selected."""
        from gpuinstall.lock.file.target import find_required_glibc

        required = find_required_glibc((file.package, file.name) for file in self.files)
        return max(required, self.record.glibc or required, key=version_key)

    def to_entry(self, path: Path, status: str) -> dict[str, Any]:
        """Return the entry of a lock file in the JSON output of a command."""
        return {
            "target": self.target,
            "path": str(path),
            "status": status,
            "sha256": self.sha256,
            "torch": self.versions.get("torch"),
        }

    def with_hashes(self, hashes: Mapping[str, str]) -> Lock:
        """Replace placeholders with ``hashes``, which are keyed by URL."""
        import tomli_w  # slow to import

        text = self.text
        for url, sha256 in hashes.items():
            text = text.replace(placeholder_hash(url), sha256)
        if text == self.text:
            return self
        document = add_seal(parse_toml(text))
        return parse(self.name, tomli_w.dumps(document))


def select_versions(lock: Lock, names: Collection[str]) -> dict[str, str]:
    """Return the locked versions of some packages, sorted by name."""
    return {name: lock.versions[name] for name in sorted(lock.versions.keys() & names)}


def find_misplaced_projects(
    lock: Lock, folder: Path, packages: Iterable[InstalledPackage]
) -> set[str]:
    """Return local projects that are missing or installed from elsewhere.

    A copied environment contains projects from the folder of the original
    environment.
    """
    projects = lock.find_projects(folder)
    installed = {
        (one.name, one.read_source()) for one in packages if one.name in projects
    }
    return set(dict(projects.items() - installed))


def format_pinning(lock: Lock) -> str:
    """Return how the packages of a lock are pinned, for messages."""
    addresses = ", ".join(lock.addresses.values())
    return f"every file hashed except {addresses}" if addresses else "every file hashed"


def list_package_sources(packages: Packages) -> list[LockEntry]:
    """Return all files, folders, and repositories of packages."""
    sources: list[LockEntry] = []
    for package in packages:
        files = (*(package.wheels or ()), package.sdist, package.archive)
        places = (*files, package.directory, package.vcs)
        sources += [(package, one) for one in places if one]
    return sources


def parse_package_source(
    package: Package,
    entry: Any,
    folder: Path | None = None,
) -> list[PackageSource]:
    """Parse the path and the URL of a file, folder, or repository in a lock.

    Args:
        package: The package.
        entry: The file, folder, or repository.
        folder: The folder of the lock file.
    """
    kinds = {
        "vcs": SourceKind.REPOSITORY,
        "directory": SourceKind.DIRECTORY,
        "sdist": SourceKind.SDIST,
        # The URL determines whether an archive is a wheel.
        "archive": None,
    }
    keys = (key for key in kinds if getattr(package, key) is entry)
    kind = kinds.get(next(keys, ""), SourceKind.WHEEL)
    sources = [
        parse_source(
            address,
            folder,
            kind=kind,
            origin=SourceOrigin.LOCK,
            subdirectory=getattr(entry, "subdirectory", None) or "",
        )
        for address in (
            entry.path and quote_path(entry.path),
            getattr(entry, "url", None),
        )
        if address
    ]
    commit = getattr(entry, "commit_id", "")
    return [replace(source, reference=commit) for source in sources]


def list_built_sources(
    packages: Packages,
) -> list[tuple[Package, PackageSource]]:
    """Return the sources that uv builds for packages without a wheel."""
    without_wheels = [package for package in packages if not package.wheels]
    built = []
    for package, entry in list_package_sources(without_wheels):
        sources = parse_package_source(package, entry)
        built += [(package, one) for one in sources if one.is_built][:1]
    return built


def list_locked_files(packages: Packages) -> tuple[LockedFile, ...]:
    """Return the wheels, or sdists of packages without wheels."""
    files = []
    for package in packages:
        others = filter(None, (package.sdist, package.archive))
        sources: Iterable[Any] = package.wheels or others
        for source in sources:
            sha256 = source.hashes["sha256"]
            known = None if is_placeholder(sha256) else sha256
            size = source.size or 0
            files.append(LockedFile(package.name, find_file_url(source), known, size))
    return tuple(files)


def find_file_url(source: Any) -> str:
    """Return the URL of a file, also for a local path."""
    return source.url or Path(source.path).as_uri()


def list_versions(packages: Packages) -> dict[str, str]:
    """Return the version of each package; empty for a local folder."""
    return {package.name: str(package.version or "") for package in packages}


def list_files_with_url(sources: Iterable[LockEntry]) -> tuple[LockedFile, ...]:
    """Return the files with a URL."""
    return tuple(
        LockedFile(package.name, source.url, source.hashes.get("sha256"))
        for package, source in sources
        # A repository also has a URL, but no hash.
        if hasattr(source, "hashes") and source.url
    )


def parse_lock_filename(name: str) -> str:
    """Return the target in the name of a lock file."""
    return name.removeprefix("pylock.").removesuffix(".toml")


def _format_url_requirement(package: Package) -> str:
    """Return a locked package's requirement for its folder or commit."""
    if package.directory:
        path = package.directory.path
        # A path without a separator would be parsed as a package name.
        if not re.match(r"[/.]|[A-Za-z]:", path):
            path = f"./{path}"
        editable = "-e " if package.directory.editable else ""
        return f"{editable}{package.name} @ {path}"
    vcs: Any = package.vcs
    inside = f"#subdirectory={vcs.subdirectory}" if vcs.subdirectory else ""
    return f"{package.name} @ {vcs.type}+{vcs.url or vcs.path}@{vcs.commit_id}{inside}"


def read_lock_text(path: Path) -> str:
    """Read the text of a lock file. Raise LockError if it is unreadable."""
    try:
        return read_document(path, path.parent)
    except FileNotFoundError:
        raise LockError(
            "lock-missing", f"{path} does not exist", hint="Check the path"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "it is not a text file")
        message = f"{path} cannot be read: {reason}"
        hint: Hint | tuple[Hint, ...] = find_link_hints(error) or _RESTORE
        if isdir(path):
            hint = Advice("mv", (str(path), f"{path}.d"), note="then run it again")
        raise LockError("lock-unreadable", message, hint=hint) from None


# Cached: one run parses the folder's lock and the environment's copy often.
@cache
def parse(name: str, text: str) -> Lock:
    """Parse the text of a lock file.

    Raises:
        LockError: The text is malformed or of another lock version.
    """
    from packaging.pylock import Pylock, PylockValidationError

    try:
        document = parse_toml(text)
        version = document.get("lock-version", "1.0")
        if not re.fullmatch(r"1\.\d{1,9}", str(version)):
            message = f"{name} has lock-version {version}; this release supports 1"
            raise LockError("lock-version", message, hint="Upgrade gpuinstall")
        # The reader of the folder's locks reports a later minor version.
        logging.getLogger("packaging.pylock").disabled = True
        pylock = Pylock.from_dict(document)
        tables = document.get("tool", {})
        own = read(dict, tables.get("gpuinstall", {}), "tool.gpuinstall")
        fields = {key.replace("-", "_"): value for key, value in own.items()}
        record = read_object(Record, fields)
    except (PylockValidationError, MalformedError, UsageError) as error:
        raise _malformed_error(name, f"is not a PEP 751 lock: {error}") from None
    except ValueError as error:
        if re.search(r"(?m)^<<<<<<< ", text):
            message = f"{name} has merge conflicts"
            raise LockError("lock-malformed", message, hint=_KEEP_OURS) from None
        raise _malformed_error(name, f"is not valid TOML: {error}") from None
    lock = Lock(name, text, pylock, record, is_from_gpuinstall=bool(own))
    _check_markers(lock)
    _check_sources(lock)
    return lock


def _check_markers(lock: Lock) -> None:
    """Raise LockError for a marker that cannot be evaluated."""
    try:
        for marker in lock.pylock.environments or ():
            check_marker(marker)
        for package in lock.pylock.packages:
            check_marker(package.marker)
    except ValueError as error:
        raise _malformed_error(lock.name, f"has a malformed marker: {error}") from None


def _check_sources(lock: Lock) -> None:
    """Raise LockError for a source that is not allowed in a lock."""
    for package, source in lock.package_sources:
        name = package.name
        if len(source.path or "") > _LONGEST_PATH:
            raise _malformed_error(lock.name, f"has a path for {name} that is too long")
        try:
            parse_package_source(package, source)
        except UsageError as error:
            raise _malformed_error(
                lock.name, f"has a malformed URL for {name}: {error.message}"
            ) from None
        if source is package.directory:
            continue
        if has_login(source.url or ""):
            raise _login_error(lock.name, name)
        check = _check_repository if source is package.vcs else _check_file
        check(lock.name, name, source)


def _check_repository(lock: str, package: str, source: Any) -> None:
    """Raise LockError for a URL with a query, or a type other than git."""
    if source.type != "git":
        kind = shorten(source.type)
        raise _malformed_error(
            lock, f"has an unsupported repository type for {package}: {kind!r}"
        )
    # uv ignores the query and fragment, and the subdirectory has its own key.
    if re.search(r"[?#]", source.url or ""):
        raise _malformed_error(lock, f"has a query or fragment in the URL of {package}")


def _login_error(lock: str, package: str) -> LockError:
    message = f"{lock}: the URL of {package} contains a user name or password"
    note = "rebuilds it without the credentials"
    hint = make_command("lock", "--upgrade", note=note)
    return LockError("lock-credentials", message, hint=hint)


def _malformed_error(name: str, fault: str) -> LockError:
    return LockError("lock-malformed", f"{name} {fault}", hint=_RESTORE)


def _check_file(lock: str, package: str, file: Any) -> None:
    """Raise LockError for an unsafe URL or a malformed hash."""
    names = (getattr(file, "filename", ""), LockedFile(package, file.url or "").name)
    outside = [one for one in names if leads_outside(one) or re.search(r"[/\\]", one)]
    if outside:
        message = f"{lock}: {package} has an unsafe file name: {outside[0]!r}"
        raise LockError("lock-traversal", message, hint=_RESTORE)
    sha256 = file.hashes.get("sha256")
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        fault = f"is not a PEP 751 lock: invalid sha256 for {package}"
        raise _malformed_error(lock, fault)


class VersionChange(Value):
    """The change of one package from a version to another."""

    package: str
    kind: Literal["added", "removed", "changed"]
    old: str | None = None
    new: str | None = None

    def __str__(self) -> str:
        if self.kind == "changed":
            return f"~ {self.package} {self.old} -> {self.new}"
        sign = "+" if self.kind == "added" else "-"
        return f"{sign} {self.package} {self.new or self.old or ''}".rstrip()


def format_changes(changes: Collection[VersionChange]) -> list[str]:
    """Return a line for each change, but at most ten for added packages."""
    # A first installation adds many packages. Removals and changes matter more.
    most = max(10, MAX_NAMES.get())
    added = [change for change in changes if change.kind == "added"]
    hidden = added[most:]
    lines = [str(change) for change in changes if change not in hidden]
    if hidden:
        lines.append(f"+ {len(hidden)} more; --verbose lists them")
    return lines


def compare_versions(old: _Versions, new: _Versions) -> tuple[VersionChange, ...]:
    """Return added, removed, and changed package versions, torch first.

    Args:
        old: The previous version of each package; empty for a package from a folder,
            which never counts as changed.
        new: The new versions.
    """
    changes = []
    for name in sorted({*old, *new}, key=lambda name: (name != "torch", name)):
        before = old.get(name)
        after = new.get(name)
        if before is None:
            changes.append(VersionChange(name, "added", new=after))
        elif after is None:
            changes.append(VersionChange(name, "removed", old=before))
        elif before and after and before != after:
            changes.append(VersionChange(name, "changed", before, after))
    return tuple(changes)


def find_different_versions(locks: Iterable[Lock]) -> dict[str, dict[str, str]]:
    """Return the versions of packages that differ by target.

    Local version labels (``+cu126``) are ignored.
    """
    packages = defaultdict[str, dict[str, str]](dict)
    for lock in locks:
        for name, version in lock.versions.items():
            packages[name][lock.target] = version.partition("+")[0]
    return {
        name: versions
        for name, versions in sorted(packages.items())
        if len({*versions.values()}) > 1
    }


def format_versions(versions: _Versions) -> str:
    """Format versions by target as ``1.0 for cpu, 2.0 for cu126``."""
    return ", ".join(f"{version} for {target}" for target, version in versions.items())


def find_version_conflicts(locks: Sequence[Lock]) -> dict[str, str]:
    """Return the conflicting versions of packages in locks, formatted."""
    known = {name for lock in locks for name in lock.record.apart}
    return {
        name: format_versions(versions)
        for name, versions in find_different_versions(locks).items()
        if name not in known
    }


def is_outdated(lock: Lock, new: Lock) -> bool:
    """Return whether an old lock has a different request."""
    # Each target may select its own extras.
    changes = compare_requests(lock.record, new.record)
    return bool(changes.requirements or changes.limits)


def add_seal(document: dict[str, Any]) -> dict[str, Any]:
    """Return a lock document with its contents digest added."""
    document["tool"]["gpuinstall"][_SEAL] = _compute_contents_digest(document)
    return document


def _compute_contents_digest(document: Mapping[str, Any]) -> str:
    """Remove the contents digest from a lock document, and recompute it."""
    document.get("tool", {}).get("gpuinstall", {}).pop(_SEAL, None)
    # An edited lock may have a TOML date, which JSON does not support.
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def placeholder_hash(url: str) -> str:
    """Return a placeholder for a hash that the index lacks.

    With a hash, uv resolves without downloading the wheel. Each file needs its own
    placeholder, because uv treats files with the same hash as identical, and reads the
    metadata of only one of them.
    """
    own = hashlib.sha256(url.encode()).hexdigest()
    return PLACEHOLDER + own[len(PLACEHOLDER) :]


def is_placeholder(sha256: str) -> bool:
    """Return whether a hash is a placeholder."""
    return sha256.startswith(PLACEHOLDER)
