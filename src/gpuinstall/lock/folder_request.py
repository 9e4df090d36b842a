"""What a folder is asked to hold: what its project says, and what was added by hand since, as its locks record it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuinstall.environments.environment import read_marker
from gpuinstall.errors import LockError, UsageError
from gpuinstall.files import read_document
from gpuinstall.lock.declaration import (
    DECLARING,
    PROJECT_FILES,
    Declaration,
    is_requirement,
    locks_in,
    plain,
    spelled,
)
from gpuinstall.plan.requirement import normalised, parse_requirement, requirement_names
from gpuinstall.requirements_file import RequirementsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpuinstall.lock.lock import Lock

_INPUTS = re.compile(r"^inputs = \[(.*?)\]$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class FolderRequest:
    """The requirements in the order of naming, and the constraints.

    ``files`` say what each file among them asked for when it was read, ``-c`` before a constraint, the project's own
    settings among them. ``revision`` counts the changes: of locks that disagree, the one that has seen the most knows.
    ``sources`` is what the files said of sources when the locks were made, ``code_check`` whether each package needed
    code for the GPUs.
    """

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    revision: int = 0
    sources: tuple[str, ...] = ()
    code_check: bool = True

    @property
    def listed(self) -> RequirementsFile:
        """What is asked for, and what is allowed of the rest."""
        return RequirementsFile(self.requirements, self.constraints)

    def declaring(self, declared: Declaration, *, forget: bool = False) -> FolderRequest:
        """What the folder says today in place of what it said; beside it stays what was added by hand.

        A line that is new there stands for what was added of the same name. With ``forget`` nothing of what any file of
        the folder said is left.
        """
        replaced = {*PROJECT_FILES, declared.file, *(DECLARING if forget else ())}
        before = {line for name in replaced for line in self.files.get(name, ())}
        listed = spelled(declared.whole.requirements)
        fresh = requirement_names(set(listed) - before)
        by_hand = [
            text
            for text in self.requirements
            if text not in before and not requirement_names([text]) & fresh
        ]
        kept = [
            text for text in listed if not requirement_names([text]) & requirement_names(by_hand)
        ]
        limits = [text for text in self.constraints if f"-c {text}" not in before]
        files = {name: lines for name, lines in self.files.items() if name not in replaced}
        return replace(
            self,
            requirements=(*kept, *by_hand),
            constraints=tuple(dict.fromkeys((*limits, *spelled(declared.whole.constraints)))),
            files=files | declared.files,
        )

    def adding(
        self, by_hand: RequirementsFile, files: Mapping[str, tuple[str, ...]]
    ) -> FolderRequest:
        """The same with requirements by hand and of ``files``: each in the place of what was asked of the same name.

        What one of the files asked for before and does not any more leaves.
        """
        read = [line for lines in files.values() for line in lines]
        added = spelled(
            (*by_hand.requirements, *(line for line in read if not line.startswith("-c ")))
        )
        before = {line for name in files for line in self.files.get(name, ())}
        names, places = (
            requirement_names(added),
            [parse_requirement(one).name for one in (*self.requirements, *added)],
        )
        kept = [
            one
            for one in self.requirements
            if one not in before and parse_requirement(one).name not in names
        ]
        constraints = [one for one in self.constraints if f"-c {one}" not in before]
        constraints += spelled(by_hand.constraints)
        constraints += [line.removeprefix("-c ") for line in read if line.startswith("-c ")]
        return replace(
            self,
            requirements=tuple(
                sorted((*kept, *added), key=lambda one: places.index(parse_requirement(one).name))
            ),
            constraints=tuple(dict.fromkeys(constraints)),
            files={**self.files, **files},
        )

    def without(self, names: Iterable[str]) -> FolderRequest:
        """The same without packages; raise UsageError for one that is not asked for, or not by hand."""
        gone = {normalised(name) for name in names}
        for name in sorted(gone):
            self._check_removable(name)
        kept = tuple(one for one in self.requirements if parse_requirement(one).name not in gone)
        return replace(self, requirements=kept or ("torch",))

    def following(self, recorded: FolderRequest) -> FolderRequest:
        """The same as the successor of what was recorded, in whose order the same requirements stay."""
        same = plain(self.requirements) == plain(recorded.requirements)
        order = recorded.requirements if same else self.requirements
        same = same and plain(self.constraints) == plain(recorded.constraints)
        revision = recorded.revision + (bool(recorded.requirements) and not same)
        return replace(self, requirements=order, revision=revision)

    def unlike(self, lock: Lock) -> str | None:
        """Say that a lock was made for something else than this, where it was."""
        if not lock.inputs or plain(lock.inputs) == plain(self.requirements):
            return None
        return f"{lock.name} was made for {' '.join(lock.inputs)}, but the request is now {' '.join(self.requirements)}"

    def _check_removable(self, name: str) -> None:
        if name == "torch":
            hint = "gpuinstall env remove   # removes the environment"
            raise UsageError(
                "torch-stays", "torch cannot be removed from its environment", hint=hint
            )
        for file, lines in self.files.items():
            if name in requirement_names(line for line in lines if not line.startswith("-c ")):
                again = "" if file in {*PROJECT_FILES, *DECLARING} else f" with -r {file}"
                hint = f"Remove it from {file}, then install again{again}"
                raise UsageError("requested-elsewhere", f"{file} requires {name}", hint=hint)
        if name not in requirement_names(self.requirements):
            message = f"{name} was not requested here; the request is: {' '.join(self.requirements) or 'torch'}"
            raise UsageError(
                "not-requested", message, why="dependencies go with the packages that require them"
            )


def recorded_request(folder: Path, own: Lock | None = None) -> FolderRequest:
    """What the locks of a folder were made for, or where it has none the copy in its environment, ``own``.

    Where they disagree, those that have seen the last change say it, together.
    """
    recorded = [request for path in locks_in(folder) if (request := _recorded(path)).requirements]
    recorded = recorded or ([_of(own)] if own else [])
    revision = max((request.revision for request in recorded), default=0)
    newest = [request for request in recorded if request.revision == revision]
    return FolderRequest(
        tuple(dict.fromkeys(text for request in newest for text in request.requirements)),
        tuple(dict.fromkeys(text for request in newest for text in request.constraints)),
        {name: lines for request in newest for name, lines in request.files.items()},
        revision,
        tuple(dict.fromkeys(line for request in newest for line in request.sources)),
        all(request.code_check for request in newest),
    )


def read_own_lock(venv: Path) -> Lock | None:
    """Read the copy of its lock that an environment of ours holds; None if that is gone or another."""
    marker = read_marker(venv)
    if marker is None:
        return None
    from gpuinstall.lock.lock import read_lock

    with suppress(LockError):
        lock = read_lock(venv / marker.lock)
        if lock.sha256 == marker.lock_sha256:
            return lock
    return None


def _recorded(path: Path) -> FolderRequest:
    """What one lock was made for, of one in conflict both sides; of a damaged one, what its text still says."""
    from gpuinstall.lock.lock import both_asked, parse, sides

    try:
        text = read_document(path, path.parent)
        ours, *theirs = (parse(path.name, side) for side in sides(text))
        return _of(both_asked(ours, theirs[0]) if theirs else ours)
    except (OSError, UnicodeDecodeError):
        return FolderRequest()
    except LockError:
        words = (
            word for inputs in _INPUTS.findall(text) for word in re.findall(r'"([^"\n]+)"', inputs)
        )
        return FolderRequest(spelled(filter(is_requirement, words)))


def _of(lock: Lock) -> FolderRequest:
    asked, limits = spelled(lock.inputs), spelled(lock.constraints)
    return FolderRequest(
        asked, limits, lock.requirements_files, lock.revision, lock.sources, lock.code_check
    )
