"""Which environments were made here: a small file for each in the user's state folder, so that no other passes for one.

A marker says that an environment is ours, and may have come with somebody's repository; a record is the user's own.
What ``--into`` may undo in an environment of others is vouched for in the same way.
"""

from __future__ import annotations

import os
from contextlib import suppress
from os.path import exists
from pathlib import Path

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    Layout,
    interpreter,
    packages_folders,
    venv_option,
)
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import read_document, write_atomically
from gpuinstall.base.removal import remove_file, remove_path
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.environments.environment import read_marker

MOST_IDENTITIES = 64
"""How many identities of one path are known: each proof of an environment gives it another, and the previous one,
which may have been replaced many proofs ago, has to be among them."""
_ANOTHER_HOME = 'export XDG_STATE_HOME="$PWD/.state"   # or another folder of yours alone: what was made here is remembered there'


def remember(venv: Path, identity: str) -> None:
    """Record that the environment ``identity`` was made for ``venv``; a folder that cannot be written is no fault."""
    with suppress(InstallationError):
        vouch(venv, identity)


def vouch(path: Path, identity: str) -> None:
    """Record that this user has made something.

    Args:
        path: The environment, or the folder of its journals.
        identity: What nobody else can know of it before: a random number, or a digest of every byte.

    Raises:
        InstallationError: it cannot be written.
    """
    earlier = _identities(path)
    # The newest come last: the oldest are the first to be forgotten.
    if identity not in earlier:
        fields = [str(path), *earlier[1 - MOST_IDENTITIES :], identity]
        write_atomically(_record(path), "\0".join(fields))


def check_records() -> None:
    """Check that what this user makes can be recorded.

    Raises:
        InstallationError: the state folder is full, or cannot be written.
    """
    trial = _folder() / f".trial-{os.getpid()}"
    try:
        write_atomically(trial, " " * 4096)
    except InstallationError as error:
        error.hint = f"{_ANOTHER_HOME}\n{error.hint}"
        raise
    remove_file(trial)


def is_vouched(path: Path, identity: str) -> bool:
    """Whether this user has made ``identity`` at ``path``."""
    return identity in _identities(path)


def was_made_here(venv: Path) -> bool:
    """Whether an environment was made by this user, where it lies."""
    marker = read_marker(venv)
    return marker is not None and is_vouched(venv, marker.id)


def place_of(identity: str) -> Path | None:
    """Return where this user has made an environment; None if it is unknown."""
    for record in _folder().glob("*.path"):
        path, *identities = _read(record)
        if identity in identities:
            return Path(path)
    return None


def say_unfinished(venv: Path, reporter: Reporter) -> None:
    """Warn of a change of an environment that is under way, or was killed."""
    text = unfinished_change(venv)
    if text:
        reporter.warn(text)


def unfinished_change(venv: Path) -> str:
    """Return that a change of an environment is under way, or was killed, and what ends it; empty if none is."""
    places = [EnvironmentPaths(venv)]
    places += [_place_of_others(venv, folder) for folder in packages_folders(venv)]
    for place in places:
        if place.is_unfinished:
            return f"a change of {venv} is not finished; {undo_command(place)} finishes it, or puts it back"
    return ""


def _place_of_others(root: Path, packages: Path) -> EnvironmentPaths:
    layout = Layout(root, interpreter(root), "", (packages,), (), {})
    return EnvironmentPaths(root, layout)


def undo_command(place: EnvironmentPaths) -> str:
    """Return the command that takes the last change of an environment back, or ends one that was killed."""
    if place.is_ours:
        return f"gpuinstall env rollback{venv_option(place.venv)}"
    return f"gpuinstall env rollback --into --python {quoted(place.python)}"


def admit_start(venv: Path, reporter: Reporter, *, if_others: bool) -> bool:
    """Whether the Python of an environment may be started; one that was not made here is named.

    A marker is no evidence: it may have come with the folder.

    Args:
        venv: Its folder.
        reporter: What is told.
        if_others: Whether it may be if somebody else has made the environment, and the user has not activated it.
    """
    python = interpreter(venv)
    if not exists(python) or was_made_here(venv):
        return True
    # Who has activated an environment, or had it changed, starts its Python anyway.
    is_requested = if_others or venv in {other.venv for other in changed_by_into()}
    if not is_requested and os.environ.get("VIRTUAL_ENV") != str(venv):
        return False
    reporter.notice("Runs", f"{python}, in an environment that others made")
    return True


def check_start(venv: Path, reporter: Reporter, *, if_others: bool) -> None:
    """Check that the Python of an environment may be started; arguments as ``admit_start`` has them.

    Raises:
        UsageError: It may not.
    """
    if not admit_start(venv, reporter, if_others=if_others):
        raise UsageError(
            "folder-not-trusted",
            f"{venv} was not made by you on this machine, and your settings (trust-folder) refuse such environments",
            hint=f"Run it again with --venv {quoted(venv)}: starts it all the same",
        )


def forget(venv: Path) -> None:
    """Forget an environment, and the journals of its changes."""
    for path in (venv, EnvironmentPaths(venv).work):
        remove_file(_record(path))


def remembered() -> list[Path]:
    """Return the environments that are still where they were made."""
    records = map(_read, _folder().glob("*.path"))
    paths = {Path(venv) for venv, *_ in records}
    return sorted(filter(read_marker, paths))


def changed_by_into() -> list[EnvironmentPaths]:
    """Return the environments of others whose last change can be taken back."""
    changed = []
    for record in sorted(_folder().glob("*.path")):
        work = Path(_read(record)[0])
        if work.name == ".gpuinstall" and exists(work / "last"):
            # lib/pythonX.Y/site-packages; on Windows, Lib/site-packages.
            root = work.parents[2 if work.parents[1].name == "Lib" else 3]
            changed.append(_place_of_others(root, work.parent))
    return changed


def forget_all() -> Path | None:
    """Remove what is recorded; return where it stays, as an environment that can still be changed is recorded there."""
    if remembered() or changed_by_into():
        return _folder()
    remove_path(_folder())
    with suppress(OSError):
        _folder().parent.rmdir()
    return None


def _identities(venv: Path) -> list[str]:
    path, *identities = _read(_record(venv))
    # The file's name is a digest; its text says for which path it is.
    return identities if path == str(venv) else []


def _read(record: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return read_document(record).split("\0")
    return [""]


def _record(venv: Path) -> Path:
    from hashlib import sha256  # loads OpenSSL, which a plan does without

    return _folder() / f"{sha256(bytes(venv)).hexdigest()[:32]}.path"


def _folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("gpuinstall", appauthor=False) / "environments"
