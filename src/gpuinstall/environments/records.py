"""Record which environments this user created or adopted on this machine.

A marker in an environment cannot be trusted, because it may be part of a cloned
repository. A record is a file in the user's state folder. Without one, as in a fresh
container, an environment is adopted: used as it is, after one line. Changes by ``--into``
have records too, so that they can be rolled back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from os.path import exists
from pathlib import Path

from gpuinstall.base.advice import Advice, Hint, make_command, make_shell_line
from gpuinstall.base.environment_paths import (
    WORK,
    EnvironmentPaths,
    Layout,
    find_environment_of,
    interpreter,
    packages_folders,
    unused_venv_option,
    venv_option,
)
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    read_document,
    write_atomically,
    xdg_folder,
)
from gpuinstall.base.owners import is_foreign, owner_of
from gpuinstall.base.removal import remove_file, remove_path
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.trust import is_in_project, trusts_folders
from gpuinstall.environments.environment import is_vacant, read_marker
from gpuinstall.environments.running import find_foreign_change, try_lock_file

MAX_IDENTITIES = 64
"""The maximum number of identities that are recorded for a path.

Each verification assigns a new identity, and the previous environment, kept for
rollback, may be many verifications old.
"""
_ADOPTED = "adopted "


def record_environment(venv: Path, identity: str, *, is_created: bool) -> None:
    """Record an environment, if possible.

    Args:
        venv: The environment.
        identity: The ID in its marker.
        is_created: Whether this user created it on this machine; False: the user adopted it.
    """
    if not is_created:
        identity = _identify_adopted(venv, identity)
    record_identity(venv, identity)


def _identify_adopted(venv: Path, identity: str) -> str:
    """Return the recorded ID of an adopted environment.

    A clone at the same path has the same marker, but another inode or change time.
    """
    with suppress(OSError):
        status = (venv / "pyvenv.cfg").stat()
        identity += f" {status.st_ino} {status.st_ctime_ns}"
    return _ADOPTED + identity


def record_identity(path: Path, identity: str) -> None:
    """Record the ID of an environment or journal, if possible.

    Args:
        path: The environment, or the folder of its journals.
        identity: An unpredictable identifier: a random number or a digest of the content.
    """
    earlier = _read_identities(path)
    if identity not in earlier:
        fields = [str(path), *earlier[1 - MAX_IDENTITIES :], identity]
        # Without its record, an environment is adopted by the next command.
        with suppress(InstallationError):
            write_atomically(_record_path(path), "\0".join(fields), is_cached=True)


def was_created_here(venv: Path) -> bool:
    """Return whether this user created an environment, at any path."""
    marker = read_marker(venv)
    return marker is not None and find_recorded_path(marker.id) is not None


def is_recorded(venv: Path) -> bool:
    """Return whether this user created or adopted an environment here."""
    marker = read_marker(venv)
    identities = _read_identities(venv)
    return marker is not None and (
        marker.id in identities or _identify_adopted(venv, marker.id) in identities
    )


def find_recorded_project(venv: Path) -> Path | None:
    """Return the project of an environment that this user created, if any."""
    marker = read_marker(venv)
    # Another user's marker could name any folder.
    if marker and was_created_here(venv):
        return marker.find_project(venv)
    return None


def locate_environment(venv: Path) -> EnvironmentPaths:
    """Return the paths of an environment, with the project of its marker."""
    return EnvironmentPaths.find(venv, find_recorded_project(venv))


def find_recorded_path(identity: str) -> Path | None:
    """Return the recorded path of an environment of this user, if any."""
    for record in _records_folder().glob("*.path"):
        path, *identities = _read_record(record)
        if identity in identities:
            return Path(path)
    return None


def find_unfinished_change(venv: Path) -> InstallationError | None:
    """Return the error for a running or interrupted change, if any."""
    place = _find_unfinished_paths(venv)
    if place is None:
        return None
    if not os.path.lexists(place.current_change):
        return create_pointer_error(place)
    is_locked, has_locks = _probe_lock(place)
    change = find_foreign_change(place, has_locks=has_locks)
    if is_locked or (change and not change.is_elsewhere):
        message = f"another command is changing {venv}"
        hint: Hint = "Wait for it to end; then run this command again"
    else:
        owner, undo = "", make_undo_command(place, "completes it or rolls it back")
        if change:
            owner = f" by {change.host} at {change.time}"
        elif is_foreign(place.current_change, place.folder):
            owner = f" by {owner_of(place.current_change)}"
            line = f"GPUINSTALL_TRUST_FOLDER=1 {make_undo_command(place)}"
            undo = make_shell_line(line, undo.note)
        message, hint = f"a change to {place.venv}{owner} was interrupted", undo
    return InstallationError(
        "unfinished-change",
        message,
        why="some of its files are old, and some are new",
        hint=hint,
    )


def _find_unfinished_paths(venv: Path) -> EnvironmentPaths | None:
    places = [EnvironmentPaths.find(venv)]
    places += [_unmanaged_paths(venv, folder) for folder in packages_folders(venv)]
    return next((place for place in places if place.has_unfinished_change()), None)


def _probe_lock(place: EnvironmentPaths) -> tuple[bool, bool]:
    """Return whether a command holds the lock, and whether locks exist."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(place.lock_file, flags)
    except OSError:
        return False, True
    try:
        is_free, has_locks = try_lock_file(descriptor)
    except OSError:
        return False, True
    finally:
        os.close(descriptor)
    return not is_free, has_locks


def check_finished(venv: Path) -> None:
    """Check that no change of an environment is running or interrupted.

    Raises:
        InstallationError: A change is running or interrupted.
    """
    error = find_unfinished_change(venv)
    if error:
        raise error


def create_pointer_error(place: EnvironmentPaths) -> InstallationError:
    """Return the error for an interrupted change without its journal."""
    journal = ""
    with suppress(OSError, ValueError):
        journal = read_document(place.pointer, place.venv).strip()
    return InstallationError(
        "journal-elsewhere",
        f"a change to {place.venv} was interrupted, and its journal is in {journal}, which does not exist here",
        why="some of its files are old, and some are new",
        hint=(
            make_command(
                "sync", note="where that folder exists: completes it or rolls it back"
            ),
            _make_rebuild_command(place.venv, "rebuilds the environment"),
        ),
    )


def _unmanaged_paths(root: Path, packages: Path) -> EnvironmentPaths:
    layout = Layout(root, interpreter(root), "", (packages,), (), {})
    return EnvironmentPaths(root, layout)


def make_undo_command(place: EnvironmentPaths, note: str = "") -> Advice:
    """Return the command that rolls back an environment's last change."""
    if place.is_managed:
        return make_command("env", "rollback", *venv_option(place.venv), note=note)
    python = str(place.find_interpreter())
    return make_command("env", "rollback", "--into", "--python", python, note=note)


def is_start_allowed(venv: Path, reporter: Reporter, *, allow_unmanaged: bool) -> bool:
    """Return whether gpuinstall may start an environment's Python.

    Args:
        venv: The environment.
        reporter: Reports the start of an environment that is not recorded.
        allow_unmanaged: Whether to allow an environment that this user did not create and has not activated.
    """
    python = interpreter(venv)
    if not exists(python) or was_created_here(venv):
        return True
    # The user already runs an activated environment and one changed with --into.
    is_requested = allow_unmanaged or venv in {
        one.venv for one in find_undoable_environments()
    }
    is_activated = os.environ.get("VIRTUAL_ENV") == str(venv)
    is_activated &= trusts_folders() or not is_in_project(str(venv))
    if not (is_requested or is_activated):
        return False
    if not is_recorded(venv):
        text = f"{python}, in an environment that gpuinstall did not create"
        if read_marker(venv):
            text += " on this machine; its files were not compared with the wheels of its lock file"
            text += f" ({_make_rebuild_command(venv)} rebuilds it)"
        reporter.notice("Runs", text)
    return True


def _make_rebuild_command(venv: Path, note: str = "") -> Advice:
    return make_command("sync", "--replace", *venv_option(venv), note=note)


def check_start(venv: Path, reporter: Reporter, *, allow_unmanaged: bool) -> None:
    """Check that gpuinstall may start an environment's Python.

    Raises:
        UsageError: The interpreter may not be started.
    """
    if not is_start_allowed(venv, reporter, allow_unmanaged=allow_unmanaged):
        raise UsageError(
            "folder-not-trusted",
            f"you did not create {venv} on this machine, and your trust-folder setting refuses such environments",
            hint=(
                _make_rebuild_command(venv, "rebuilds it"),
                Advice(
                    "export", ("GPUINSTALL_TRUST_FOLDER=1",), note="trust this folder"
                ),
            ),
        )


def forget_environment(venv: Path) -> None:
    """Delete the records of an environment and its changes."""
    for path in (venv, EnvironmentPaths(venv).work, venv / WORK):
        remove_file(_record_path(path))


def find_recorded_environments() -> list[Path]:
    """Return this user's environments that exist at their recorded path."""
    records = map(_read_record, _records_folder().glob("*.path"))
    paths = {Path(venv) for venv, *_ in records}
    return sorted(filter(read_marker, paths))


def make_missing_error(
    venv: Path, arguments: Sequence[str] = (), *, creates: bool = True
) -> UsageError:
    """Return the error for a missing environment, with the user's others.

    Args:
        venv: The missing environment.
        arguments: The arguments of Python, which was to run in the environment.
        creates: Whether to suggest the command that creates it.
    """
    fixes = []
    if creates:
        changed = find_changed_environment()
        if changed:
            note = f"in {changed.venv.name}, which install --into changed"
            python = str(changed.find_interpreter())
            fixes.append(Advice(python, tuple(arguments), note=note))
        option, note = venv_option(venv), "creates it"
        if not is_vacant(venv):
            option, note = unused_venv_option(venv.parent), "creates another one"
        fixes.append(make_command("install", *option, note=note))
    if not creates or find_recorded_environments():
        fixes.append(make_command("env", "list", note="lists your environments"))
    message = f"there is no environment at {venv}"
    return UsageError("environment-missing", message, hint=tuple(fixes))


def find_changed_environment() -> EnvironmentPaths | None:
    """Return the nearest environment that ``--into`` changed, if any.

    It is in this folder or in a parent below the home folder.
    """
    here = Path.cwd()
    parents = takewhile(lambda one: not Path.home().is_relative_to(one), here.parents)
    folders = {here, *parents}
    places = [one for one in find_undoable_environments() if one.venv.parent in folders]
    return max(places, key=lambda one: len(one.venv.parts), default=None)


def find_undoable_environments() -> list[EnvironmentPaths]:
    """Return unmanaged environments in which this user can undo a change."""
    changed = []
    for record in sorted(_records_folder().glob("*.path")):
        work = Path(_read_record(record)[0])
        is_unmanaged = work.name == WORK and not exists(work.parent / "pyvenv.cfg")
        if is_unmanaged and exists(work / "last"):
            root = find_environment_of(work.parent)
            changed.append(_unmanaged_paths(root, work.parent))
    return changed


def forget_environments() -> Path | None:
    """Remove the records of all environments, unless one still needs them.

    Returns:
        The folder of the records if they are kept.
    """
    if find_recorded_environments() or find_undoable_environments():
        return _records_folder()
    remove_path(_records_folder())
    with suppress(OSError):
        _records_folder().parent.rmdir()
    return None


def _read_identities(venv: Path) -> list[str]:
    path, *identities = _read_record(_record_path(venv))
    # The file name is only a digest, so compare the path in the first line.
    return identities if path == str(venv) else []


def _read_record(record: Path) -> list[str]:
    with suppress(OSError, ValueError):
        return read_document(record, None).split("\0")
    return [""]


def _record_path(venv: Path) -> Path:
    from hashlib import sha256  # slow: loads OpenSSL

    return _records_folder() / f"{sha256(bytes(venv)).hexdigest()[:32]}.path"


def _records_folder() -> Path:
    if sys.platform == "linux":
        state = xdg_folder("XDG_STATE_HOME", ".local/state") / "gpuinstall"
    else:
        from platformdirs import user_state_path

        state = user_state_path("gpuinstall", appauthor=False)
    return state / "environments"
