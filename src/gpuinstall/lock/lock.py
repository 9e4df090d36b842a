"""A lock as it lies on a disk, read by the standard's own reader, checked before anything trusts it, and compared."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from operator import itemgetter
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import tomli_w
from packaging.utils import canonicalize_name

from gpuinstall.errors import LockError
from gpuinstall.files import parse_toml, read_document
from gpuinstall.lock.declaration import digest, is_requirement, plain
from gpuinstall.plan.requirement import requirement_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from packaging.pylock import Package, PackageWheel, Pylock

LOCK_IN_CONFLICT = "lock-in-conflict"
_SEAL = "contents-digest"


@dataclass(frozen=True)
class LockedFile:
    """One file that a lock names, by its address; ``sha256`` is None while it is not known."""

    package: str
    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


@dataclass(frozen=True)
class Lock:
    """A PEP 751 lock: its file's name, its text, and what the standard's reader makes of it."""

    name: str
    text: str
    pylock: Pylock

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def target(self) -> str:
        """The target that its file is named after."""
        return self.name.removeprefix("pylock.").removesuffix(".toml")

    @property
    def python(self) -> str | None:
        """The one Python minor that it is for, ``X.Y``, where it says so."""
        one_minor = re.fullmatch(r"==(\d\.\d{1,2})\.\*", str(self.pylock.requires_python or ""))
        return one_minor[1] if one_minor else None

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return {
            package.name: version
            for package in self.pylock.packages
            if (version := _version(package))
        }

    def versions_of(self, names: Collection[str]) -> dict[str, str]:
        """The versions of those of ``names``, canonical ones, that it holds, in order."""
        return {
            name: version
            for name, version in sorted(self.versions.items())
            if canonicalize_name(name) in names
        }

    @property
    def held(self) -> dict[str, str]:
        """The version of each package; empty for one out of a folder."""
        return {name: self.versions.get(name, "") for name in sorted(self.names)}

    @property
    def names(self) -> frozenset[str]:
        """The name of every package; those from folders have no version."""
        return frozenset(package.name for package in self.pylock.packages)

    @property
    def indexes(self) -> dict[str, str]:
        """The index of each package that comes from one which only the configuration of its maker named."""
        return {package.name: package.index for package in self.pylock.packages if package.index}

    @property
    def addresses(self) -> dict[str, str]:
        """The packages that come from folders or repositories, which no hash can pin, as requirements by name."""
        return {
            package.name: _by_address(package)
            for package in self.pylock.packages
            if _is_unhashed(package)
        }

    @property
    def unhashed(self) -> tuple[str, ...]:
        """What those come from, for people."""
        return tuple(
            _unhashed(package) for package in self.pylock.packages if _is_unhashed(package)
        )

    @property
    def pinned_by(self) -> str:
        """How far its packages are pinned, for people."""
        return f"no hash pins {', '.join(self.unhashed)}" if self.unhashed else "every file hashed"

    @property
    def unserved(self) -> tuple[str, ...]:
        """The packages that no server has, so that only this machine can install them from the lock."""
        served = {file.package for file in self.files if file.url.startswith(("https:", "http:"))}
        return tuple(package.name for package in self.pylock.packages if package.name not in served)

    def hashes(self, name: str) -> frozenset[str]:
        """The sha256 of every file of one package."""
        return self.hashes_by_package.get(name, frozenset())

    @cached_property
    def hashes_by_package(self) -> dict[str, frozenset[str]]:
        """The sha256 of every file of each package."""
        found: dict[str, frozenset[str]] = {name: frozenset() for name in self.names}
        for name, file in self._files:
            found[name] |= {file.hashes.get("sha256", "")}
        return found

    @property
    def files(self) -> tuple[LockedFile, ...]:
        """Every file that has an address."""
        return tuple(
            LockedFile(name, file.url, file.hashes.get("sha256"))
            for name, file in self._files
            if file.url
        )

    @cached_property
    def _files(self) -> list[tuple[str, Any]]:
        return [
            (package.name, file)
            for package in self.pylock.packages
            for file in (*(package.wheels or ()), package.sdist, package.archive)
            if file
        ]

    @property
    def evidence(self) -> Mapping[str, Any]:
        """What ``[tool.gpuinstall]`` says of its making: never a reason to install it."""
        own = (self.pylock.tool or {}).get("gpuinstall", {})
        return own if isinstance(own, dict) else {}

    @property
    def is_sealed(self) -> bool:
        """Say whether it is as it was made."""
        return self.evidence.get(_SEAL) == _contents_digest(parse_toml(self.text))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The requirements that it was made from, where it says so."""
        return tuple(filter(is_requirement, self._said("inputs")))

    @property
    def asked(self) -> frozenset[str]:
        """The names of what it was made from."""
        return requirement_names(self.inputs)

    @property
    def asked_backend(self) -> str | None:
        """The backend that was asked for by name, where one was."""
        backend = self.evidence.get("asked")
        return backend if isinstance(backend, str) else None

    @property
    def meant_unhashed(self) -> frozenset[str]:
        """The packages that it was made to take from folders and repositories."""
        return frozenset(map(str, self._said("unhashed")))

    @property
    def apart(self) -> frozenset[str]:
        """The packages that could not have the version that the other locks of the folder have."""
        return frozenset(map(str, self._said("apart")))

    @property
    def constraints(self) -> tuple[str, ...]:
        """The constraints that it was made within, where it says so."""
        return tuple(filter(is_requirement, self._said("constraints")))

    @property
    def sources(self) -> tuple[str, ...]:
        """What the files that it was made from said of sources."""
        return tuple(map(str, self._said("sources")))

    @property
    def code_check(self) -> bool:
        """Whether each of its packages needed code for the GPUs."""
        return self.evidence.get("code-check") is not False

    def _said(self, key: str) -> list[Any]:
        """A list of its evidence; nothing where somebody wrote something else there."""
        values = self.evidence.get(key)
        return values if isinstance(values, list) else []

    @property
    def requirements_files(self) -> dict[str, tuple[str, ...]]:
        """What each file that it was made from asked for then, by the file's path from its folder."""
        files = self.evidence.get("requirements-files")
        items = files.items() if isinstance(files, dict) else ()
        return {name: tuple(map(str, lines)) for name, lines in items if isinstance(lines, list)}

    @property
    def revision(self) -> int:
        """How often the request of its folder had changed when it was made."""
        revision = self.evidence.get("request-revision")
        return revision if isinstance(revision, int) else 0

    def entry(self, path: Path, status: str) -> dict[str, Any]:
        """Write what the documents of ``lock`` say of a lock that lies at ``path``."""
        place = {"target": self.target, "path": str(path), "status": status}
        return place | {"sha256": self.sha256, "torch": self.versions.get("torch")}

    def completed(self, hashes: Mapping[str, str]) -> Lock:
        """The same with the ``hashes``, by address, that were not known when it was made."""
        text = self.text
        for url, sha256 in hashes.items():
            text = text.replace(unknown_hash(url), sha256)
        return self if text == self.text else parse(self.name, render(sealed(parse_toml(text))))

    def made_from(self, files: Mapping[str, tuple[str, ...]]) -> Lock:
        """The same, said to be made from other requirements files; a broken seal stays broken."""
        if not self.inputs or self.requirements_files == files:
            return self
        document = parse_toml(self.text)
        seal = sealed if self.is_sealed else dict
        own = {key: value for key, value in self.evidence.items() if key != "requirements-files"}
        document["tool"]["gpuinstall"] = own | (
            {"requirements-files": dict(files)} if files else {}
        )
        return parse(self.name, render(seal(document)))


def read_lock(path: Path) -> Lock:
    """Read a lock; raise LockError where it is missing, unreadable, malformed or of another version."""
    return parse(path.name, read_lock_text(path))


def read_lock_text(path: Path) -> str:
    """Read the text of a lock; raise LockError if it is missing or unreadable."""
    try:
        return read_document(path, path.parent)
    except FileNotFoundError:
        raise LockError("lock-missing", f"there is no {path}", hint="gpuinstall lock") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise LockError(
            "lock-unreadable", f"{path} cannot be read: {reason}", hint=_RESTORE
        ) from None


# One run reads the lock of the folder, and the environment's copy, a dozen times.
@cache
def parse(name: str, text: str) -> Lock:
    """Read the text of a lock; raise LockError where it is malformed or of another version."""
    from packaging.pylock import Pylock, PylockValidationError

    try:
        document = parse_toml(text)
        if (version := document.get("lock-version", "1.0")) != "1.0":
            message = f"{name} is a lock of version {version}; this release supports 1.0"
            raise LockError("lock-version", message, hint="Use a newer gpuinstall")
        pylock = Pylock.from_dict(document)
    except PylockValidationError as error:
        raise LockError(
            "lock-malformed", f"{name} is not a PEP 751 lock: {error}", hint=_RESTORE
        ) from None
    except ValueError as error:
        if len(sides(text)) > 1:
            # Other locks of the folder are written anew too, and may be in conflict as well.
            hint = "gpuinstall lock && git add -u 'pylock*.toml'   # both requests together"
            raise LockError(
                LOCK_IN_CONFLICT, f"{name} has a conflict that git could not merge", hint=hint
            ) from None
        raise LockError(
            "lock-malformed", f"{name} is not valid TOML: {error}", hint=_RESTORE
        ) from None
    for package in pylock.packages:
        _check_package(name, package)
    return Lock(name, text, pylock)


def sides(text: str) -> tuple[str, ...]:
    """Both texts of a file that git could not merge; the text itself where it has no conflict."""
    if not _CONFLICT.search(text):
        return (text,)
    return _CONFLICT.sub(itemgetter(1), text), _CONFLICT.sub(itemgetter(2), text)


def both_asked(ours: Lock, theirs: Lock) -> Lock:
    """The first with what both were asked for: it does not hold that yet, so that the next command makes it anew."""
    document, inputs = parse_toml(ours.text), list(dict.fromkeys((*ours.inputs, *theirs.inputs)))
    document["tool"]["gpuinstall"] = {
        **ours.evidence,
        "inputs": inputs,
        "inputs-digest": digest(inputs),
        "constraints": sorted({*ours.constraints, *theirs.constraints}),
        "requirements-files": {**theirs.requirements_files, **ours.requirements_files},
        "request-revision": max(ours.revision, theirs.revision) + 1,
    }
    return parse(ours.name, render(sealed(document)))


DifferenceKind = Literal["added", "removed", "changed", "other-file"]


class VersionChange(NamedTuple):
    """What became of one package; ``old`` and ``new`` are versions."""

    package: str
    kind: DifferenceKind
    old: str | None = None
    new: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case "added":
                return f"+ {self.package} {self.new}".rstrip()
            case "removed":
                return f"- {self.package} {self.old}".rstrip()
            case "other-file":
                return f"! {self.package} {self.new}: a different file of the same version"
        return f"~ {self.package} {self.old} -> {self.new}"


def compare_locks(old: Lock, new: Lock) -> tuple[VersionChange, ...]:
    """Compare two locks package by package."""
    same = [name for name, version in old.versions.items() if new.versions.get(name) == version]
    others = [name for name in same if old.hashes(name) != new.hashes(name)]
    changes = [
        VersionChange(name, "other-file", old.versions[name], new.versions[name]) for name in others
    ]
    return tuple(
        sorted((*compare_versions(old.held, new.held), *changes), key=lambda change: change.package)
    )


def compare_versions(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[VersionChange, ...]:
    """Compare versions by package; that of a package out of a folder is empty."""
    changes = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before is None:
            changes.append(VersionChange(name, "added", new=after))
        elif after is None:
            changes.append(VersionChange(name, "removed", old=before))
        elif before and after and before != after:
            changes.append(VersionChange(name, "changed", before, after))
    return tuple(changes)


def split_packages(locks: Iterable[Lock]) -> dict[str, dict[str, str]]:
    """Return the packages that locks hold in different versions, each with its version by target.

    A backend in a version does not count.
    """
    held: dict[str, dict[str, str]] = {}
    for lock in locks:
        for name, version in lock.versions.items():
            held.setdefault(name, {})[lock.target] = version.partition("+")[0]
    return {name: held[name] for name in sorted(held) if len(set(held[name].values())) > 1}


def version_conflicts(locks: Sequence[Lock]) -> dict[str, list[str]]:
    """Return the packages that locks hold in different versions without need, each with ``version for target``."""
    known = frozenset[str]().union(*(lock.apart for lock in locks))
    return {
        name: [f"{version} for {target}" for target, version in versions.items()]
        for name, versions in split_packages(locks).items()
        if name not in known
    }


def left_behind(lock: Lock, others: Iterable[Lock]) -> list[str]:
    """The names of locks of ours that were made for another request than ``lock``, or hold other versions than it."""

    def request_of(lock: Lock) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return plain(lock.inputs), plain(lock.constraints)

    ours = [other for other in others if other.evidence]
    return [
        other.name
        for other in ours
        if request_of(other) != request_of(lock) or version_conflicts([lock, other])
    ]


def render(document: Mapping[str, Any]) -> str:
    """The text of a lock: the same document is always the same bytes."""
    return tomli_w.dumps(document)


def unknown_hash(url: str) -> str:
    """What stands for a hash that the index does not give: with it uv resolves without fetching the wheel.

    It is each file's own: uv takes files of one hash for one file, and would read the metadata of only one of them.
    """
    return _UNKNOWN + hashlib.sha256(url.encode()).hexdigest()[len(_UNKNOWN) :]


def is_unknown(sha256: str) -> bool:
    """Say whether this only stands for a hash."""
    return sha256.startswith(_UNKNOWN)


def without_unknown(page: str) -> str:
    """The text of a page without what only stands for a hash: what a build demands is really fetched."""
    return re.sub(rf"#sha256={_UNKNOWN}\w+", "", page)


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document of a lock with its seal."""
    own = document["tool"]["gpuinstall"] | {_SEAL: _contents_digest(document)}
    return {**document, "tool": document["tool"] | {"gpuinstall": own}}


def _contents_digest(document: Mapping[str, Any]) -> str:
    own = {
        key: value
        for key, value in document.get("tool", {}).get("gpuinstall", {}).items()
        if key != _SEAL
    }
    unsealed = {**document, "tool": {**document.get("tool", {}), "gpuinstall": own}}
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True, default=str).encode()).hexdigest()


def _is_unhashed(package: Package) -> bool:
    return bool(package.directory or package.vcs)


_CONFLICT = re.compile(
    r"^<{7} .*?\n(.*?)(?:^\|{7}.*?)?^={7}\n(.*?)^>{7} [^\n]*\n", re.MULTILINE | re.DOTALL
)
"""A part that git could not merge: ours, with diff3 what was before, theirs."""


_SHA256 = re.compile(r"[0-9a-f]{64}")


_UNKNOWN = "0" * 32
"""Begins what stands for a hash."""


_RESTORE = "gpuinstall lock --upgrade   # makes it again; or restore the file from version control"


def _version(package: Package) -> str | None:
    """The version of a package; pip names that of a wheel by address in the wheel's name alone."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    if package.version or not package.archive:
        return str(package.version) if package.version else None
    with suppress(InvalidWheelFilename):
        return str(
            parse_wheel_filename(LockedFile(package.name, package.archive.url or "").name)[1]
        )
    return None


def _by_address(package: Package) -> str:
    """Write a requirement that brings the very same again."""
    if folder := package.directory:
        begins = folder.path.startswith(("/", ".")) or re.match(r"[A-Za-z]:", folder.path)
        return f"{'-e ' if folder.editable else ''}{package.name} @ {'' if begins else './'}{folder.path}"
    vcs = package.vcs
    if vcs is None or not vcs.url:
        return package.name
    inside = f"#subdirectory={vcs.subdirectory}" if vcs.subdirectory else ""
    return f"{package.name} @ {vcs.type}+{vcs.url}@{vcs.commit_id}{inside}"


def _unhashed(package: Package) -> str:
    if folder := package.directory:
        return f"{package.name} (the folder {folder.path}{', editable' if folder.editable else ''})"
    vcs = package.vcs
    return (
        f"{package.name} (commit {vcs.commit_id[:12]} of {vcs.url or vcs.path})"
        if vcs
        else package.name
    )


def _check_package(name: str, package: Package) -> None:
    entries: list[PackageWheel | Any] = [
        *(package.wheels or ()),
        *filter(None, (package.sdist, package.archive)),
    ]
    for entry in entries:
        for path in filter(None, (entry.path, getattr(entry, "name", None))):
            if {"..", "/"} & {*PurePosixPath(path.replace("\\", "/")).parts} or PureWindowsPath(
                path
            ).drive:
                raise _traversal(name, package.name, path)
        if "@" in urlsplit(entry.url or "").netloc:
            message = f"{name}: the address of {package.name} holds a user name or password"
            raise LockError(
                "lock-credentials", message, hint="gpuinstall lock --upgrade makes it without"
            )
        if not _SHA256.fullmatch(entry.hashes.get("sha256", "0" * 64)):
            message = f"{name} is not a PEP 751 lock: the sha256 of {package.name} is not valid"
            raise LockError("lock-malformed", message, hint=_RESTORE)
        for filename in (
            getattr(entry, "filename", ""),
            LockedFile(package.name, entry.url or "").name,
        ):
            if "/" in filename or "\\" in filename or filename == "..":
                raise _traversal(name, package.name, filename)


def _traversal(name: str, package: str, path: str) -> LockError:
    return LockError(
        "lock-traversal", f"{name}: {path!r} of {package} is outside its folder", hint=_RESTORE
    )
