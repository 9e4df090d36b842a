"""What a folder is asked to hold: what its project says, and what was added by hand since, as its locks record it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import field, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import read_document
from gpuinstall.base.requirement import normalised, parse_requirement, requirement_names
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import read_marker
from gpuinstall.lock.declaration import (
    DECLARING,
    PROJECT_FILES,
    Declaration,
    are_same,
    canonical,
    is_requirement,
    locks_in,
    parse_lines,
)
from gpuinstall.sources.requirements_file import RequirementsFile, joined_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from gpuinstall.lock.lock import Lock, Strings

    LinesByFile = Mapping[str, Strings]

_INPUTS = re.compile(r"^inputs = \[(.*?)\]$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class FolderRequest:
    """What a folder is asked to hold."""

    requirements: Strings = ()
    """In the order in which they were added."""

    constraints: Strings = ()

    files: LinesByFile = field(default_factory=dict)
    """What each file asked for when it was read, ``-c`` before a constraint, the project's own settings among them."""

    revision: int = 0
    """How often it has changed: of locks that disagree, the one with the highest counts."""

    sources: Strings = ()
    """The settings of sources in the files when the locks were made."""

    @property
    def listed(self) -> RequirementsFile:
        """What is asked for, and what is allowed of the rest."""
        return RequirementsFile(self.requirements, self.constraints)

    def declaring(self, declared: Declaration) -> FolderRequest:
        """Return what the folder says today in place of what it said; beside it stays what was added by hand.

        A line that is new there stands for what was added of the same name.
        """
        return self._with_files(declared.files, {*PROJECT_FILES, declared.file})

    def adding(self, by_hand: RequirementsFile, files: LinesByFile) -> FolderRequest:
        """Return the same with requirements by hand and of ``files``: each in the place of that of the same name.

        What one of the files asked for before and does not any more leaves.
        """
        return self._with_files(files, files, by_hand)

    def _with_files(
        self,
        files: LinesByFile,
        replaced: Collection[str],
        by_hand: RequirementsFile | None = None,
    ) -> FolderRequest:
        """Return the same with ``files`` in place of those that are replaced."""
        before = set(chain.from_iterable(self.files.get(name, ()) for name in replaced))
        listed = joined_files([by_hand or RequirementsFile(), *map(parse_lines, files.values())])
        today = canonical(listed.requirements)
        # What a project says as before gives way to what was added by hand.
        new = today if by_hand else [text for text in today if text not in before]
        rest = [text for text in self.requirements if text not in before]
        rest = _others(rest, requirement_names(new))
        requirements = [*_others(today, requirement_names(rest)), *rest]
        order = [_name(text) for text in (*self.requirements, *today)]
        requirements.sort(key=lambda text: order.index(_name(text)))
        constraints = [text for text in self.constraints if f"-c {text}" not in before]
        others = {name: lines for name, lines in self.files.items() if name not in replaced}
        return replace(
            self,
            requirements=tuple(requirements),
            constraints=_together(constraints, canonical(listed.constraints)),
            files={**others, **files},
        )

    def without(self, names: Iterable[str]) -> FolderRequest:
        """Return the same without packages.

        Raises:
            UsageError: if one is not requested, or not by hand.
        """
        removed = {normalised(name) for name in names}
        for name in sorted(removed):
            self._check_removable(name)
        requirements = tuple(_others(self.requirements, removed))
        return replace(self, requirements=requirements or ("torch",))

    def _check_removable(self, name: str) -> None:
        if name == "torch":
            message = "torch cannot be removed from its environment"
            hint = "gpuinstall env remove   # removes the environment"
            raise UsageError("torch-stays", message, hint=hint)
        for file, lines in self.files.items():
            if name in requirement_names(parse_lines(lines).requirements):
                is_read_always = file in {*PROJECT_FILES, *DECLARING}
                again = "" if is_read_always else f" with -r {file}"
                hint = f"Remove it from {file}, then install again{again}"
                raise UsageError("requested-elsewhere", f"{file} requires {name}", hint=hint)
        if name not in requirement_names(self.requirements):
            request = " ".join(self.requirements) or "torch"
            message = f"{name} was not requested here; the request is: {request}"
            why = "dependencies go with the packages that require them"
            raise UsageError("not-requested", message, why=why)

    def following(self, recorded: FolderRequest) -> FolderRequest:
        """Return the same as the successor of what was recorded, in whose order the same requirements stay."""
        has_same_requirements = are_same(self.requirements, recorded.requirements)
        is_same = has_same_requirements and are_same(self.constraints, recorded.constraints)
        # The first request of a folder changes nothing.
        is_new = bool(recorded.requirements) and not is_same
        requirements = recorded.requirements if has_same_requirements else self.requirements
        return replace(self, requirements=requirements, revision=recorded.revision + is_new)

    def unlike(self, lock: Lock) -> str | None:
        """Return that a lock was made for something else than this, if it was."""
        if not lock.inputs or are_same(lock.inputs, self.requirements):
            return None
        before = " ".join(lock.inputs)
        return f"{lock.name} was made for {before}, but the request is now {' '.join(self.requirements)}"


def _name(requirement: str) -> str:
    return parse_requirement(requirement).name


def _others(
    requirements: Iterable[str],
    names: Collection[str],
) -> list[str]:
    """Return the requirements of other packages than ``names``."""
    return [text for text in requirements if _name(text) not in names]


def _together(*texts: Iterable[str]) -> Strings:
    """Return several lists as one, each text once."""
    return tuple(dict.fromkeys(chain.from_iterable(texts)))


def recorded_request(folder: Path, own: Lock | None = None) -> FolderRequest:
    """Return what the locks of a folder were made for, or if it has none the copy in its environment, ``own``.

    If they disagree, those that have seen the last change say it, together.
    """
    requests = [_recorded(path) for path in locks_in(folder)]
    requests = [request for request in requests if request.requirements]
    if own and not requests:
        requests = [_request_of(own)]
    revisions = [request.revision for request in requests]
    revision = max(revisions, default=0)
    newest = [request for request in requests if request.revision == revision]
    files: dict[str, Strings] = {}
    for request in newest:
        files |= request.files
    return FolderRequest(
        requirements=_together(*(request.requirements for request in newest)),
        constraints=_together(*(request.constraints for request in newest)),
        files=files,
        revision=revision,
        sources=_together(*(request.sources for request in newest)),
    )


def _recorded(path: Path) -> FolderRequest:
    """Return what one lock was made for, of one in conflict both sides; of a damaged one, what its text still says."""
    from gpuinstall.lock.lock import merge_requests, parse, sides

    try:
        text = read_document(path, path.parent)
        locks = [parse(path.name, side) for side in sides(text)]
        return _request_of(reduce(merge_requests, locks))
    except (OSError, UnicodeDecodeError):
        return FolderRequest()
    except LockError:
        words = []
        for inputs in _INPUTS.findall(text):
            words += re.findall(r'"([^"\n]+)"', inputs)
        return FolderRequest(canonical(filter(is_requirement, words)))


def _request_of(lock: Lock) -> FolderRequest:
    return FolderRequest(
        requirements=canonical(lock.inputs),
        constraints=canonical(lock.constraints),
        files=lock.requirements_files,
        revision=lock.revision,
        sources=lock.sources,
    )


def read_own_lock(venv: Path) -> Lock | None:
    """Return the copy of its lock that an environment of ours holds; None if that is gone or another."""
    marker = read_marker(venv)
    if marker is None:
        return None
    from gpuinstall.lock.lock import read_lock

    with suppress(LockError):
        lock = read_lock(venv / marker.lock)
        if lock.sha256 == marker.lock_sha256:
            return lock
    return None
