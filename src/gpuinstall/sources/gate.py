"""Check that a folder's files and locks select only permitted sources.

Every direct reference, every source in a setting, and every lock entry is checked before
gpuinstall contacts a server, builds a package, or runs code.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from gpuinstall.base.advice import Advice, Hint, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import leads_outside
from gpuinstall.base.finding import Reason
from gpuinstall.base.location import Location, PackageSource, SourceKind, SourceOrigin
from gpuinstall.base.values import Value

LIST = "Add the source to trusted-sources in ~/.config/gpuinstall/config.toml"
TRUST = LIST, Advice("export", ("GPUINSTALL_TRUST_FOLDER=1",), note="trust this folder")
"""The hint for an untrusted source."""
FIND_LINKS = "For a wheel, use sync --wheels with its folder, or lock with PIP_FIND_LINKS set to it"
"""The hint for a locked wheel in a folder that is not configured."""
_REQUIRE = "For a project, add its path to requirements.txt or to the dependencies in pyproject.toml"


class Entry(Value):
    """Source of one package, with the facts that its check needs."""

    source: PackageSource
    shown: str
    """The text in messages, such as ``uv.toml: index-url``."""
    is_reachable: bool = False
    """Whether the path is in the repository or in a requirement."""
    is_family: bool = False
    """Whether the package belongs to the torch family."""


class Policy(Value):
    """Sources and builds that the user permits for a folder."""

    trusts_folder: bool = True
    why: str = "GPUINSTALL_TRUST_FOLDER=0 or your trust-folder = false rejects sources that a folder selects"
    """The reason why the folder is not trusted."""
    trusts_other_users: bool = False
    """Whether files of another user are trusted, too."""
    trusted_sources: tuple[Location, ...] = ()
    pass_build_variables: tuple[str, ...] = ()
    """The environment variables to pass to every build."""
    requested: frozenset[str] = frozenset()
    """The packages that the user requests on the command line."""

    def trusts(self, location: Location) -> bool:
        """Return whether the user's ``trusted-sources`` list a location."""
        return any(location.is_below(source) for source in self.trusted_sources)

    def check(self, entries: Iterable[Entry]) -> None:
        """Raise UsageError if a source is rejected."""
        reasons = (find_rejection(entry, self) for entry in entries)
        rejected = list(dict.fromkeys(filter(None, reasons)))
        if rejected:
            code = rejected[0].code
            message = "; ".join(reason.message for reason in rejected)
            # Trust permits no path outside a source tree.
            if code != "folder-not-trusted":
                raise UsageError(code, message)
            raise UsageError(code, message, why=self.why, hint=TRUST)

    def runs(self, folder: Path) -> bool:
        """Return whether gpuinstall may run packages installed in a folder."""
        return self.trusts_folder or self.trusts(Location.parse(str(folder)))


def find_rejection(entry: Entry, policy: Policy) -> Reason | None:
    """Return the first reason to reject a package source, or None."""
    reasons = (rule(entry, policy) for rule in _RULES)
    return next(filter(None, reasons), None)


def list_source_fixes(
    codes: Collection[str], wheels: Path | None = None
) -> tuple[Hint, ...]:
    """Return the fixes for rejected package sources in lock files.

    Args:
        codes: The codes of the reasons.
        wheels: The folder that the user gives instead of downloads.
    """
    if "folder-not-trusted" in codes:
        return TRUST
    if "lock-traversal" not in codes:
        return ()
    wheel: Hint = FIND_LINKS
    if wheels:
        note = "on the machine that wrote the lock"
        wheel = make_command("lock", "download", str(wheels), note=note)
    return wheel, _REQUIRE, LIST


def _check_subdirectory(entry: Entry, _: Policy) -> Reason | None:
    """Reject a subdirectory outside its repository, folder, or archive."""
    if leads_outside(entry.source.subdirectory):
        message = f"{entry.shown} has a subdirectory outside its source tree"
        return Reason("lock-traversal", message)
    return None


def _check_commit(entry: Entry, _: Policy) -> Reason | None:
    """Reject a repository in a lock without a full commit ID."""
    source = entry.source
    is_locked = (
        source.kind is SourceKind.REPOSITORY and source.origin is SourceOrigin.LOCK
    )
    if is_locked and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", source.reference):
        message = f"{entry.shown} has no full commit ID"
        return Reason("unpinned", message)
    return None


def _check_locked_path(entry: Entry, policy: Policy) -> Reason | None:
    """Reject a path in a lock that is outside the lock's repository.

    The path of a torch family package must be in find-links or in a requirement.
    """
    location = entry.source.location
    is_locked = location.is_local and entry.source.origin is SourceOrigin.LOCK
    if not is_locked or entry.is_reachable or policy.trusts(location):
        return None
    fault = "outside its repository"
    if entry.is_family:
        fault = "in no find-links folder or requirement"
    return Reason("lock-traversal", f"{entry.shown} is {fault}")


def _check_trust(entry: Entry, policy: Policy) -> Reason | None:
    """Reject a source that an untrusted folder selects."""
    source = entry.source
    is_own = source.origin is SourceOrigin.USER
    if policy.trusts_folder or is_own or policy.trusts(source.location):
        return None
    is_served_wheel = source.kind is SourceKind.WHEEL and not source.location.is_local
    # ``check_hosts`` compares the hosts of locked wheels with the configured sources.
    if is_served_wheel and source.origin is not SourceOrigin.FOLDER:
        return None
    return Reason("folder-not-trusted", f"{entry.shown} is not trusted")


_RULES = (_check_subdirectory, _check_commit, _check_locked_path, _check_trust)
