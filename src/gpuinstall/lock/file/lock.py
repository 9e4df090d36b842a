"""A lock as it lies on a disk, read by the standard's own reader, checked before anything trusts it, and compared."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from os.path import isdir
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import tomli_w

from gpuinstall.base.codec import MalformedError, read, read_object, write_object
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import parse_toml, read_document, real_path
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import (
    TextOrigin,
    fault_in,
    names_of,
    once,
    parse_constraint,
    parse_line,
    parse_requirement,
)
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import MOST_NAMES, has_login, shorten
from gpuinstall.base.values import Value
from gpuinstall.sources.provenance import RECORDED_HASHES

if TYPE_CHECKING:
    from packaging.pylock import Package, Pylock

    from gpuinstall.environments.packages import InstalledPackage

    _Versions = Mapping[str, str]

BUILD_FILES = "an archive, or a folder's pyproject.toml, setup.py, setup.cfg or a list that they name,"
"""What the files behind ``build_files_digest`` are called in messages."""

LOCK_IN_CONFLICT = "lock-in-conflict"

_SEAL = "contents-digest"

_RESTORE = "gpuinstall lock --upgrade   # makes it again; or restore the file from version control"


_UNKNOWN = "0" * 32
"""Begins what stands for a hash."""

_CONFLICT = re.compile(
    r"^<{7} .*?\n(.*?)(?:^\|{7}.*?)?^={7}\n(.*?)^>{7} [^\n]*\n",
    re.MULTILINE | re.DOTALL,
)
"""A part that git could not merge: ours, with diff3 what was before, theirs."""


def _spelling(text: str) -> str:
    return parse_requirement(text).text


_Requirements = tuple[Annotated[str, _spelling], ...]


class Record(Value):
    """What a lock says of its making."""

    inputs: _Requirements = ()
    """The requirements; empty if another program made it."""

    torch: str = ""
    backend: str = ""
    catalogue: str = ""
    """The date of the catalogue."""

    constraints: _Requirements = ()
    sources: tuple[str, ...] = ()
    """What the files that it was made from said of sources."""

    unhashed: tuple[str, ...] = ()
    """The packages that no hash pins, because the user requested them so."""

    preferred_digest: str = ""
    """Of the versions of the project's own lock."""

    build_files_digest: str = ""
    asked: str | None = None
    """The backend that was requested by name."""

    architectures: tuple[str, ...] = ()
    floors: Mapping[str, str] = {}
    """The least driver, glibc and so on."""

    apart: tuple[str, ...] = ()
    """The packages that could not have the version of the other targets."""

    relaxed: Mapping[str, str] = {}
    """The requirements that it was asked not to hold to, by package."""

    request_revision: int = 0
    """How often the request of its folder had changed."""

    requirements_files: Mapping[str, tuple[str, ...]] = {}
    """The lines of each file that it was made from, by the file's path from its folder."""

    selected_extras: Mapping[str, tuple[str, ...]] = {}
    """The requirements of each selected extra or group."""

    contents_digest: str = ""
    """The seal: of the whole lock without it."""

    @classmethod
    def of(cls, request: Request) -> Record:
        """Return what a lock records of its request.

        Raises:
            UsageError: A requirement is malformed.
        """
        selected = {*chain.from_iterable(request.selected.values())}
        own = (one for one in request.requirements if one not in selected)
        return cls(
            inputs=tuple(map(str, once(own))),
            constraints=tuple(sorted({one.text for one in request.constraints})),
            sources=request.sources,
            preferred_digest=digest(request.preferred) if request.preferred else "",
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
        )

    def to_table(self) -> dict[str, Any]:
        """Return the table, without what is empty."""
        fields = write_object(self, optional=self.__struct_fields__)
        return {name.replace("_", "-"): value for name, value in fields.items()}

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """The requirements, with the requirements of selected extras."""
        return (*self.inputs, *chain.from_iterable(self.selected_extras.values()))

    @property
    def lines(self) -> set[str]:
        """Its requirements, constraints, and sources as text."""
        constraints = [f"-c {text}" for text in self.constraints]
        return {*self.inputs, *constraints, *self.sources}

    def request(self, name: str) -> Request:
        """Return the recorded request.

        Args:
            name: The name of the lock file, the origin of what no file has.
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
        )

    def changes(self, other: Record) -> list[str]:
        """Return what has changed of a request, in words; empty: nothing.

        Args:
            other: The request as it is now: what it has more is marked with +, what it lacks with -.
        """
        # Another program made the lock, and does not say of what.
        if not self.inputs:
            return []
        before = self.lines.union(self.all_inputs)
        now = other.lines.union(other.all_inputs)
        changes = [f"+ {line}" for line in sorted(now - before)]
        changes += [f"- {line}" for line in sorted(before - now)]
        shown = [
            change for change in changes if not change[2:].startswith(RECORDED_HASHES)
        ]
        # What an installation from elsewhere has no files of is not compared.
        if self.build_files_digest not in {"", other.build_files_digest}:
            shown.append(f"{BUILD_FILES} has changed")
        if self.preferred_digest != other.preferred_digest:
            shown.append("other versions in the project's own lock")
        # With the versions their hashes change.
        if changes and not shown:
            return ["other hashes of files"]
        return shown


def digest(texts: Iterable[str]) -> str:
    """Return the digest of texts, in any order."""
    text = json.dumps(sorted(texts))
    return hashlib.sha256(text.encode()).hexdigest()


class LockedFile(Value):
    """One file that a lock names, by its address."""

    package: str
    url: str
    sha256: str | None = None
    """None while it is not known."""

    @property
    def name(self) -> str:
        """The name of the file."""
        path = urlsplit(self.url).path
        return unquote(path.rpartition("/")[2])


class Lock(Value):
    """A PEP 751 lock: its file's name, its text, and what the standard's reader makes of it."""

    name: str
    text: str
    pylock: Pylock
    record: Record
    is_ours: bool
    """Whether it has a record."""

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def target(self) -> str:
        """The target that its file is named after."""
        return target_in(self.name)

    @property
    def python(self) -> str | None:
        """The one Python minor that it is for, ``X.Y``, if it says so."""
        # As ours write it; a lock of another program may serve a range of them.
        specifiers = str(self.pylock.requires_python)
        one_minor = re.fullmatch(r"==(\d\.\d{1,2})\.\*", specifiers)
        return one_minor[1] if one_minor else None

    @cached_property
    def all_versions(self) -> dict[str, str]:
        """The version of each package; empty for one from a folder."""
        return {
            package.name: str(package.version or "") for package in self.pylock.packages
        }

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each package that has one."""
        return {name: version for name, version in self.all_versions.items() if version}

    @property
    def requested(self) -> frozenset[str]:
        """The names of the packages that it was made for."""
        return names_of(map(parse_requirement, self.record.all_inputs))

    def versions_of(self, names: Collection[str]) -> dict[str, str]:
        """Return the versions of those of ``names``, canonical ones, that it has, in order."""
        return {
            name: self.versions[name] for name in sorted(self.versions) if name in names
        }

    @property
    def names(self) -> frozenset[str]:
        """The name of every package."""
        return frozenset(self.all_versions)

    @property
    def indexes(self) -> dict[str, str]:
        """The index of each package that comes from one which only the configuration of its maker named."""
        return {
            package.name: package.index
            for package in self.pylock.packages
            if package.index
        }

    @property
    def is_sealed(self) -> bool:
        """Whether it is as it was made."""
        return self.record.contents_digest == _contents_digest(parse_toml(self.text))

    @property
    def addresses(self) -> dict[str, str]:
        """The packages from folders or repositories, which no hash can pin, as requirements by name."""
        packages = [one for one in self.pylock.packages if one.directory or one.vcs]
        return {package.name: _by_address(package) for package in packages}

    def projects_in(self, folder: Path) -> dict[str, tuple[Path, bool]]:
        """Return the folder of each project that it has by one, and whether it is editable, by name; it lies in ``folder``."""
        projects = dict[str, tuple[Path, bool]]()
        for package in self.pylock.packages:
            project = package.directory
            if project:
                path = real_path(folder / project.path)
                projects[package.name] = path, bool(project.editable)
        return projects

    def misplaced_projects(
        self, folder: Path, packages: Iterable[InstalledPackage]
    ) -> set[str]:
        """Return the projects that are not among ``packages`` as it has them: a copied environment has its original's."""
        projects = self.projects_in(folder)
        there = {(one.name, one.source) for one in packages if one.name in projects}
        return set(dict(projects.items() - there))

    @property
    def pinned_by(self) -> str:
        """How far its packages are pinned, for people."""
        pinned_by = "every file hashed"
        addresses = ", ".join(self.addresses.values())
        if addresses:
            pinned_by += f" but those of {addresses}"
        return pinned_by

    @property
    def unserved(self) -> list[str]:
        """The packages that no server has as a file."""
        is_served = re.compile("https?:").match
        served = {file.package for file in self.files if is_served(file.url)}
        return [name for name in self.all_versions if name not in served]

    @property
    def only_here(self) -> list[str]:
        """Those of them that only this machine has: what lies beside the lock is in the same clone."""
        is_elsewhere = re.compile(r" @ (\.|\w+\+(https?|ssh):)").search
        addresses = self.addresses.items()
        elsewhere = {name for name, address in addresses if is_elsewhere(address)}
        return [name for name in self.unserved if name not in elsewhere]

    @cached_property
    def entries(self) -> list[tuple[str, Any]]:
        """Every file, with its package."""
        entries = list[tuple[str, Any]]()
        for package in self.pylock.packages:
            wheels = package.wheels or ()
            for file in (*wheels, package.sdist, package.archive):
                if file:
                    entries.append((package.name, file))
        return entries

    def hashes_of(self, package: str) -> set[str]:
        """Return the sha256 of every file of a package; a lock for several platforms may have it twice."""
        return {
            file.hashes.get("sha256", "")
            for name, file in self.entries
            if name == package
        }

    @cached_property
    def files(self) -> tuple[LockedFile, ...]:
        """Every file that has an address."""
        return tuple(
            LockedFile(package, file.url, file.hashes.get("sha256"))
            for package, file in self.entries
            if file.url
        )

    @property
    def incomplete(self) -> set[str]:
        """The packages of which a file gets its hash while it is fetched."""
        return {file.package for file in self.files if is_unknown(file.sha256 or "")}

    @property
    def glibc(self) -> str:
        """The oldest glibc that it can be installed with."""
        from gpuinstall.lock.file.target import glibc_needed

        return glibc_needed((file.package, file.name) for file in self.files)

    def entry(self, path: Path, status: str) -> dict[str, Any]:
        """Return what the documents of ``lock`` say of a lock.

        Args:
            path: Where it lies.
            status: What became of it, or whether it is fresh.
        """
        return {
            "target": self.target,
            "path": str(path),
            "status": status,
            "sha256": self.sha256,
            "torch": self.versions.get("torch"),
        }

    def completed(self, hashes: Mapping[str, str]) -> Lock:
        """Return the same with the ``hashes``, by address, that were not known when it was made."""
        text = self.text
        # What stands for a hash is of one file alone, and occurs nowhere else.
        for url, sha256 in hashes.items():
            text = text.replace(unknown_hash(url), sha256)
        if text == self.text:
            return self
        document = sealed(parse_toml(text))
        return parse(self.name, tomli_w.dumps(document))


def target_in(name: str) -> str:
    """Return the target that the file of a lock is named after."""
    return name.removeprefix("pylock.").removesuffix(".toml")


def _by_address(package: Package) -> str:
    """Write a requirement that gives the very same again."""
    if package.directory:
        path = package.directory.path
        # A bare word would be the name of a package.
        if not re.match(r"[/.]|[A-Za-z]:", path):
            path = f"./{path}"
        editable = "-e " if package.directory.editable else ""
        return f"{editable}{package.name} @ {path}"
    vcs: Any = package.vcs
    inside = f"#subdirectory={vcs.subdirectory}" if vcs.subdirectory else ""
    return f"{package.name} @ {vcs.type}+{vcs.url or vcs.path}@{vcs.commit_id}{inside}"


def read_lock(path: Path) -> Lock:
    """Return a lock.

    Raises:
        LockError: if it is missing, unreadable, malformed or of another version.
    """
    try:
        text = read_document(path, path.parent)
    except FileNotFoundError:
        raise LockError(
            "lock-missing", f"there is no {path}", hint="gpuinstall lock"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "it is not a text file")
        message = f"{path} cannot be read: {reason}"
        hint = _RESTORE
        if isdir(path):
            hint = f"mv {quoted(path)} {quoted(f'{path}.d')}   # then run it again"
        raise LockError("lock-unreadable", message, hint=hint) from None
    return parse(path.name, text)


# One run reads the lock of the folder, and the environment's copy, a dozen times.
@cache
def parse(name: str, text: str) -> Lock:
    """Return a lock from its text.

    Raises:
        LockError: if it is malformed or of another version.
    """
    from packaging.pylock import Pylock, PylockValidationError

    try:
        document = parse_toml(text)
        version = document.get("lock-version", "1.0")
        if version != "1.0":
            message = (
                f"{name} is a lock of version {version}; this release supports 1.0"
            )
            raise LockError("lock-version", message, hint="Use a newer gpuinstall")
        pylock = Pylock.from_dict(document)
        tables = document.get("tool", {})
        own = read(dict, tables.get("gpuinstall", {}), "tool.gpuinstall")
        fields = {key.replace("-", "_"): value for key, value in own.items()}
        record = read_object(Record, fields)
    except (PylockValidationError, MalformedError, UsageError) as error:
        raise _malformed(name, f"is not a PEP 751 lock: {error}") from None
    except ValueError as error:
        if len(sides(text)) > 1:
            # Other locks of the folder are written anew too, and may be in conflict as well.
            hint = "gpuinstall lock && git add -u 'pylock*.toml'   # both requests together"
            message = f"{name} has a conflict that git could not merge"
            raise LockError(LOCK_IN_CONFLICT, message, hint=hint) from None
        raise _malformed(name, f"is not valid TOML: {error}") from None
    lock = Lock(name, text, pylock, record, is_ours=bool(own))
    sources = [(one.name, one.vcs) for one in pylock.packages if one.vcs]
    for package, source in sources + lock.entries:
        fault = fault_in(source.url or "") or _fault_of(source.url or "")
        if fault:
            raise _malformed(name, f"has a malformed address of {package}: {fault}")
    for package, source in sources:
        _check_repository(name, package, source)
    for package, file in lock.entries:
        _check_file(name, package, file)
    return lock


def _check_repository(lock: str, package: str, source: Any) -> None:
    """Raise LockError for a login, or for a repository that is not Git's."""
    if source.type != "git":
        kind = shorten(source.type)
        raise _malformed(lock, f"has a repository of {package} of type {kind!r}")
    if has_login(source.url or ""):
        raise _with_login(lock, package)


def _with_login(lock: str, package: str) -> LockError:
    """Return the error of an address with a login."""
    message = f"{lock}: the address of {package} holds a user name or password"
    hint = "gpuinstall lock --upgrade   # makes it without"
    return LockError("lock-credentials", message, hint=hint)


def _fault_of(url: str) -> str:
    """Return why a URL cannot be parsed; empty if it can be."""
    try:
        _ = urlsplit(url).port
    except ValueError as error:
        return str(error)
    return ""


def _malformed(name: str, what: str) -> LockError:
    return LockError("lock-malformed", f"{name} {what}", hint=_RESTORE)


def _check_file(
    lock: str,
    package: str,
    file: Any,
) -> None:
    """Raise LockError if a file has an address or a hash that no lock may have."""
    names = (getattr(file, "filename", ""), LockedFile(package, file.url or "").name)
    outside = [one for one in names if leads_out(one) or re.search(r"[/\\]", one)]
    if outside:
        message = f"{lock}: {outside[0]!r} of {package} is outside its folder"
        raise LockError("lock-traversal", message, hint=_RESTORE)
    if "@" in urlsplit(file.url or "").netloc:
        raise _with_login(lock, package)
    sha256 = file.hashes.get("sha256")
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        what = f"is not a PEP 751 lock: the sha256 of {package} is not valid"
        raise _malformed(lock, what)


def leads_out(path: str) -> bool:
    """Whether a path of a lock is outside the lock's folder."""
    # By the rules of Windows, which has every separator: a lock that is read elsewhere may be installed there.
    place = PureWindowsPath(path)
    return ".." in place.parts or bool(place.anchor)


def sides(text: str) -> tuple[str, ...]:
    """Return both texts of a file that git could not merge; the text itself if it has no conflict."""
    # Git for Windows writes the line ends of Windows.
    text = text.replace("\r\n", "\n")
    if not _CONFLICT.search(text):
        return (text,)
    return _CONFLICT.sub(r"\g<1>", text), _CONFLICT.sub(r"\g<2>", text)


class VersionChange(NamedTuple):
    """What became of one package."""

    package: str
    kind: Literal["added", "removed", "changed"]
    old: str | None = None
    """Its version before."""
    new: str | None = None

    def __str__(self) -> str:
        if self.kind == "changed":
            return f"~ {self.package} {self.old} -> {self.new}"
        sign = "+" if self.kind == "added" else "-"
        return f"{sign} {self.package} {self.new or self.old or ''}".rstrip()


def change_lines(changes: Collection[VersionChange]) -> list[str]:
    """Return a line for each change; of the packages that come the first ten, and how many more."""
    # A first environment has fifty that come, and they say little: what goes and moves is always named.
    most = max(10, MOST_NAMES.get())
    added = [change for change in changes if change.kind == "added"]
    hidden = added[most:]
    lines = [str(change) for change in changes if change not in hidden]
    if hidden:
        lines.append(f"+ {len(hidden)} more; --verbose names them")
    return lines


def compare_versions(
    old: _Versions,
    new: _Versions,
) -> tuple[VersionChange, ...]:
    """Return what became of every package whose version differs, torch first.

    Args:
        old: The versions before, by package; that of a package from a folder is empty, and tells no change.
        new: Those after.
    """
    changes = []
    # torch is what people look for.
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


def split_packages(locks: Iterable[Lock]) -> dict[str, dict[str, str]]:
    """Return the packages whose version differs by target, each with its version by target.

    A backend in a version does not count.
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


def versions_in_words(versions: _Versions) -> str:
    """Return the versions of one package by target, as ``1.0 for cpu, 2.0 for cu126``."""
    return ", ".join(f"{version} for {target}" for target, version in versions.items())


def version_conflicts(locks: Sequence[Lock]) -> dict[str, str]:
    """Return the packages whose version differs without need, each with its versions in words."""
    known = {name for lock in locks for name in lock.record.apart}
    return {
        name: versions_in_words(versions)
        for name, versions in split_packages(locks).items()
        if name not in known
    }


def is_outdated(lock: Lock, new: Lock) -> bool:
    """Whether a lock does not go with a new one beside it: it was made for another request, or has other versions."""
    has_conflicts = bool(version_conflicts([new, lock]))
    return has_conflicts or lock.record.lines != new.record.lines


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """Put the seal into the document of a lock, and return it."""
    document["tool"]["gpuinstall"][_SEAL] = _contents_digest(document)
    return document


def _contents_digest(document: Mapping[str, Any]) -> str:
    """Return the digest of all that a lock says, but for its seal, which is taken out of the document."""
    document.get("tool", {}).get("gpuinstall", {}).pop(_SEAL, None)
    # TOML has dates, which JSON has not: a lock that somebody edited may hold one.
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def unknown_hash(url: str) -> str:
    """Return what stands for a hash that the index does not give: with it uv resolves without fetching the wheel.

    It is each file's own: uv takes files of one hash for one file, and would read the metadata of only one of them.
    """
    own = hashlib.sha256(url.encode()).hexdigest()
    return _UNKNOWN + own[len(_UNKNOWN) :]


def is_unknown(sha256: str) -> bool:
    """Whether this only stands for a hash."""
    return sha256.startswith(_UNKNOWN)
