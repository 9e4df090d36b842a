"""A lock as it lies on a disk, read by the standard's own reader, checked before anything trusts it, and compared."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import tomli_w
from packaging.utils import canonicalize_name

from gpuinstall.base.errors import LockError
from gpuinstall.base.files import parse_toml, read_document
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.values import dataclass
from gpuinstall.lock.declaration import are_same, digest, is_requirement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from packaging.pylock import Package, Pylock

    _Document = Mapping[str, Any]
    Strings = tuple[str, ...]
    _Versions = Mapping[str, str]

LOCK_IN_CONFLICT = "lock-in-conflict"
_SEAL = "contents-digest"
_RESTORE = "gpuinstall lock --upgrade   # makes it again; or restore the file from version control"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNKNOWN = "0" * 32
"""Begins what stands for a hash."""

_CONFLICT = re.compile(
    r"^<{7} .*?\n(.*?)(?:^\|{7}.*?)?^={7}\n(.*?)^>{7} [^\n]*\n",
    re.MULTILINE | re.DOTALL,
)
"""A part that git could not merge: ours, with diff3 what was before, theirs."""


@dataclass(frozen=True)
class LockedFile:
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
        """The one Python minor that it is for, ``X.Y``, if it says so."""
        specifiers = str(self.pylock.requires_python or "")
        one_minor = re.fullmatch(r"==(\d\.\d{1,2})\.\*", specifiers)
        return one_minor[1] if one_minor else None

    @cached_property
    def versions(self) -> dict[str, str]:
        """The version of each package; one from a folder has none."""
        versions = dict[str, str]()
        for package in self.pylock.packages:
            version = _version(package)
            if version:
                versions[package.name] = version
        return versions

    def versions_of(self, names: Collection[str]) -> dict[str, str]:
        """Return the versions of those of ``names``, canonical ones, that it has, in order."""
        return {
            name: version
            for name, version in sorted(self.versions.items())
            if canonicalize_name(name) in names
        }

    @property
    def held(self) -> dict[str, str]:
        """The version of each package; empty for one from a folder."""
        return {name: self.versions.get(name, "") for name in sorted(self.names)}

    @property
    def names(self) -> frozenset[str]:
        """The name of every package."""
        return frozenset(package.name for package in self.pylock.packages)

    @property
    def indexes(self) -> dict[str, str]:
        """The index of each package that comes from one which only the configuration of its maker named."""
        indexes = dict[str, str]()
        for package in self.pylock.packages:
            if package.index:
                indexes[package.name] = package.index
        return indexes

    @property
    def _unhashed_packages(self) -> list[Package]:
        """The packages from folders or repositories, which no hash can pin."""
        packages = self.pylock.packages
        return [package for package in packages if package.directory or package.vcs]

    @property
    def addresses(self) -> dict[str, str]:
        """The packages that no hash can pin, as requirements by name."""
        return {package.name: _by_address(package) for package in self._unhashed_packages}

    @property
    def unhashed(self) -> Strings:
        """The packages that no hash can pin, with the place that they come from, for people."""
        return tuple(map(_with_place, self._unhashed_packages))

    @property
    def pinned_by(self) -> str:
        """How far its packages are pinned, for people."""
        return f"no hash pins {', '.join(self.unhashed)}" if self.unhashed else "every file hashed"

    @property
    def unserved(self) -> Strings:
        """The packages that no server has, so that only this machine can install them from the lock."""
        served = set()
        for file in self.files:
            if file.url.startswith(("https:", "http:")):
                served.add(file.package)
        names = [package.name for package in self.pylock.packages]
        return tuple(name for name in names if name not in served)

    @cached_property
    def hashes_by_package(self) -> dict[str, frozenset[str]]:
        """The sha256 of every file of each package."""
        hashes: dict[str, frozenset[str]] = {}
        for package in self.pylock.packages:
            files = files_of_package(package)
            sha256 = {file.hashes.get("sha256", "") for file in files}
            # A lock for several platforms may have a package twice.
            hashes[package.name] = hashes.get(package.name, frozenset()) | sha256
        return hashes

    @property
    def files(self) -> tuple[LockedFile, ...]:
        """Every file that has an address."""
        files = []
        for package in self.pylock.packages:
            for file in files_of_package(package):
                if file.url:
                    sha256 = file.hashes.get("sha256")
                    files.append(LockedFile(package.name, file.url, sha256))
        return tuple(files)

    @property
    def evidence(self) -> Mapping[str, Any]:
        """What ``[tool.gpuinstall]`` says of its making: never a reason to install it."""
        tool = self.pylock.tool or {}
        own = tool.get("gpuinstall")
        return own if isinstance(own, dict) else {}

    @property
    def is_sealed(self) -> bool:
        """Whether it is as it was made."""
        document = parse_toml(self.text)
        return self.evidence.get(_SEAL) == _contents_digest(document)

    @property
    def inputs(self) -> Strings:
        """The requirements that it was made from, if it says so."""
        values = self.evidence_list("inputs")
        return tuple(filter(is_requirement, values))

    @property
    def constraints(self) -> Strings:
        """The constraints that it was made within, if it says so."""
        values = self.evidence_list("constraints")
        return tuple(filter(is_requirement, values))

    @property
    def requested_names(self) -> frozenset[str]:
        """The names of what it was made from."""
        return requirement_names(self.inputs)

    @property
    def requested_backend(self) -> str | None:
        """The backend that was requested by name, if one was."""
        backend = self.evidence.get("asked")
        return backend if isinstance(backend, str) else None

    @property
    def sources(self) -> Strings:
        """What the files that it was made from said of sources."""
        values = self.evidence_list("sources")
        return tuple(map(str, values))

    def evidence_list(self, key: str) -> list[Any]:
        """Return a list of its evidence; nothing if it was edited to something else."""
        values = self.evidence.get(key)
        return values if isinstance(values, list) else []

    @property
    def relaxed(self) -> dict[str, str]:
        """The requirements that it was asked not to hold to, by package."""
        values = self.evidence.get("relaxed")
        if not isinstance(values, dict):
            return {}
        return {name: text for name, text in values.items() if isinstance(text, str)}

    @property
    def cuda_compat(self) -> dict[str, str]:
        """The archive of the forward-compatibility libraries that it was made with: ``driver``, ``sha256``, ``url``."""
        values = self.evidence.get("cuda-compat")
        if not isinstance(values, dict):
            return {}
        return {name: text for name, text in values.items() if isinstance(text, str)}

    @property
    def requirements_files(self) -> dict[str, Strings]:
        """What each file that it was made from asked for then, by the file's path from its folder."""
        recorded = self.evidence.get("requirements-files")
        if not isinstance(recorded, dict):
            return {}
        files = {}
        for name, lines in recorded.items():
            if isinstance(lines, list):
                files[name] = tuple(map(str, lines))
        return files

    @property
    def revision(self) -> int:
        """How often the request of its folder had changed when it was made."""
        revision = self.evidence.get("request-revision")
        return revision if isinstance(revision, int) else 0

    def entry(
        self,
        path: Path,
        status: str,
    ) -> dict[str, Any]:
        """Return what the documents of ``lock`` say of a lock that lies at ``path``."""
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
        for url, sha256 in hashes.items():
            text = text.replace(unknown_hash(url), sha256)
        if text == self.text:
            return self
        document = sealed(parse_toml(text))
        return parse(self.name, render(document))

    def with_requirements_files(self, files: Mapping[str, Strings]) -> Lock:
        """Return the same, said to be made from other requirements files; a broken seal stays broken."""
        if not self.inputs or self.requirements_files == files:
            return self
        document = parse_toml(self.text)
        own = document["tool"]["gpuinstall"]
        own.pop("requirements-files", None)
        if files:
            own["requirements-files"] = dict(files)
        if self.is_sealed:
            document = sealed(document)
        return parse(self.name, render(document))


def files_of_package(package: Package) -> list[Any]:
    """Return the wheels, the sdist and the archive of a package, as far as it has them."""
    files: list[Any] = list(package.wheels or ())
    if package.sdist:
        files.append(package.sdist)
    if package.archive:
        files.append(package.archive)
    return files


def _version(package: Package) -> str | None:
    """Return the version of a package; pip names that of a wheel by address in the wheel's name alone."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    if package.version:
        return str(package.version)
    if package.archive:
        file = LockedFile(package.name, package.archive.url or "")
        with suppress(InvalidWheelFilename):
            _, version, _, _ = parse_wheel_filename(file.name)
            return str(version)
    return None


def _by_address(package: Package) -> str:
    """Write a requirement that gives the very same again."""
    if package.directory:
        path = package.directory.path
        if not re.match(r"[/.]|[A-Za-z]:", path):
            path = f"./{path}"
        editable = "-e " if package.directory.editable else ""
        return f"{editable}{package.name} @ {path}"
    vcs = package.vcs
    if vcs is None or not vcs.url:
        return package.name
    inside = f"#subdirectory={vcs.subdirectory}" if vcs.subdirectory else ""
    return f"{package.name} @ {vcs.type}+{vcs.url}@{vcs.commit_id}{inside}"


def _with_place(package: Package) -> str:
    """Write a package with its folder or its commit."""
    if package.directory:
        editable = ", editable" if package.directory.editable else ""
        return f"{package.name} (the folder {package.directory.path}{editable})"
    vcs = package.vcs
    if vcs is None:
        return package.name
    return f"{package.name} (commit {vcs.commit_id[:12]} of {vcs.url or vcs.path})"


def read_lock(path: Path) -> Lock:
    """Return a lock.

    Raises:
        LockError: if it is missing, unreadable, malformed or of another version.
    """
    return parse(path.name, read_lock_text(path))


def read_lock_text(path: Path) -> str:
    """Return the text of a lock.

    Raises:
        LockError: if it is missing or unreadable.
    """
    try:
        return read_document(path, path.parent)
    except FileNotFoundError:
        raise LockError("lock-missing", f"there is no {path}", hint="gpuinstall lock") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        message = f"{path} cannot be read: {reason}"
        raise LockError("lock-unreadable", message, hint=_RESTORE) from None


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
            message = f"{name} is a lock of version {version}; this release supports 1.0"
            raise LockError("lock-version", message, hint="Use a newer gpuinstall")
        pylock = Pylock.from_dict(document)
    except PylockValidationError as error:
        message = f"{name} is not a PEP 751 lock: {error}"
        raise LockError("lock-malformed", message, hint=_RESTORE) from None
    except ValueError as error:
        if len(sides(text)) > 1:
            # Other locks of the folder are written anew too, and may be in conflict as well.
            hint = "gpuinstall lock && git add -u 'pylock*.toml'   # both requests together"
            message = f"{name} has a conflict that git could not merge"
            raise LockError(LOCK_IN_CONFLICT, message, hint=hint) from None
        message = f"{name} is not valid TOML: {error}"
        raise LockError("lock-malformed", message, hint=_RESTORE) from None
    for package in pylock.packages:
        for file in files_of_package(package):
            _check_file(name, package.name, file)
    return Lock(name, text, pylock)


def _check_file(lock: str, package: str, file: Any) -> None:
    """Raise LockError if a file has an address or a hash that no lock may have."""
    for path in (file.path, getattr(file, "name", None)):
        if path and _leads_out(path):
            raise _traversal(lock, package, path)
    if "@" in urlsplit(file.url or "").netloc:
        message = f"{lock}: the address of {package} holds a user name or password"
        hint = "gpuinstall lock --upgrade makes it without"
        raise LockError("lock-credentials", message, hint=hint)
    sha256 = file.hashes.get("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        message = f"{lock} is not a PEP 751 lock: the sha256 of {package} is not valid"
        raise LockError("lock-malformed", message, hint=_RESTORE)
    served = LockedFile(package, file.url or "")
    for filename in (getattr(file, "filename", ""), served.name):
        if re.search(r"[/\\]", filename) or filename == "..":
            raise _traversal(lock, package, filename)


def _leads_out(path: str) -> bool:
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if ".." in parts or "/" in parts:
        return True
    return bool(PureWindowsPath(path).drive)


def _traversal(lock: str, package: str, path: str) -> LockError:
    message = f"{lock}: {path!r} of {package} is outside its folder"
    return LockError("lock-traversal", message, hint=_RESTORE)


def sides(text: str) -> Strings:
    """Return both texts of a file that git could not merge; the text itself if it has no conflict."""
    if not _CONFLICT.search(text):
        return (text,)
    return _CONFLICT.sub(r"\g<1>", text), _CONFLICT.sub(r"\g<2>", text)


def merge_requests(ours: Lock, theirs: Lock) -> Lock:
    """Return the first with the requests of both, which it does not meet: the next command makes it anew."""
    document = parse_toml(ours.text)
    both = (*ours.inputs, *theirs.inputs)
    inputs = list(dict.fromkeys(both))
    constraints = {*ours.constraints, *theirs.constraints}
    revision = max(ours.revision, theirs.revision) + 1
    document["tool"]["gpuinstall"] = {
        **ours.evidence,
        "inputs": inputs,
        "inputs-digest": digest(inputs),
        "constraints": sorted(constraints),
        "requirements-files": {
            **theirs.requirements_files,
            **ours.requirements_files,
        },
        "request-revision": revision,
    }
    return parse(ours.name, render(sealed(document)))


class VersionChange(NamedTuple):
    """What became of one package."""

    package: str
    kind: Literal["added", "removed", "changed"]
    old: str | None = None
    """Its version before."""
    new: str | None = None

    def __str__(self) -> str:
        match self.kind:
            case "added":
                return f"+ {self.package} {self.new}".rstrip()
            case "removed":
                return f"- {self.package} {self.old}".rstrip()
        return f"~ {self.package} {self.old} -> {self.new}"


def compare_versions(
    old: _Versions,
    new: _Versions,
) -> tuple[VersionChange, ...]:
    """Compare versions by package; that of a package from a folder is empty."""
    changes = []
    for name in sorted({*old, *new}):
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
    packages: dict[str, dict[str, str]] = {}
    for lock in locks:
        for name, version in lock.versions.items():
            public, _, _ = version.partition("+")
            versions = packages.setdefault(name, {})
            versions[lock.target] = public
    by_name = sorted(packages.items())
    return {name: versions for name, versions in by_name if len(set(versions.values())) > 1}


def version_conflicts(locks: Sequence[Lock]) -> dict[str, list[str]]:
    """Return the packages whose version differs without need, each with ``version for target``."""
    known = []
    for lock in locks:
        known += lock.evidence_list("apart")
    conflicts = {}
    for name, versions in split_packages(locks).items():
        if name not in known:
            conflicts[name] = [f"{version} for {target}" for target, version in versions.items()]
    return conflicts


def outdated_locks(
    lock: Lock,
    others: Iterable[Lock],
) -> list[str]:
    """Return the names of locks of ours that were made for another request than ``lock``, or have other versions."""
    names = []
    for other in others:
        if not other.evidence:
            continue
        has_same_inputs = are_same(other.inputs, lock.inputs)
        has_same_constraints = are_same(other.constraints, lock.constraints)
        is_same_request = has_same_inputs and has_same_constraints
        if not is_same_request or version_conflicts([lock, other]):
            names.append(other.name)
    return names


def render(document: _Document) -> str:
    """Return the text of a lock: the same document is always the same bytes."""
    return tomli_w.dumps(document)


def sealed(document: _Document) -> dict[str, Any]:
    """Return the same document of a lock with its seal."""
    evidence = {
        **document["tool"]["gpuinstall"],
        _SEAL: _contents_digest(document),
    }
    return _with_evidence(document, evidence)


def _contents_digest(document: _Document) -> str:
    tool = document.get("tool", {})
    evidence = dict(tool.get("gpuinstall", {}))
    evidence.pop(_SEAL, None)
    unsealed = _with_evidence(document, evidence)
    text = json.dumps(
        unsealed,
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _with_evidence(
    document: _Document,
    evidence: _Document,
) -> dict[str, Any]:
    tool = document.get("tool", {})
    return {
        **document,
        "tool": {**tool, "gpuinstall": evidence},
    }


def unknown_hash(url: str) -> str:
    """Return what stands for a hash that the index does not give: with it uv resolves without fetching the wheel.

    It is each file's own: uv takes files of one hash for one file, and would read the metadata of only one of them.
    """
    own = hashlib.sha256(url.encode()).hexdigest()
    return _UNKNOWN + own[len(_UNKNOWN) :]


def is_unknown(sha256: str) -> bool:
    """Whether this only stands for a hash."""
    return sha256.startswith(_UNKNOWN)


def without_unknown(page: str) -> str:
    """Return a page without what only stands for a hash: what a build demands is really fetched."""
    return re.sub(rf"#sha256={_UNKNOWN}\w+", "", page)
