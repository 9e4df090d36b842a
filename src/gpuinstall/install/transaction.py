"""Change an environment in place, and roll back if the change fails.

uv writes only into a staging folder (``unpack.py``). Each removed file is unlinked, and
each new file is renamed to its path (``file_change.py`` plans the paths). No file is ever
incomplete, and all other files are unchanged. ``journal.py`` describes the journal.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from os.path import exists, isdir, islink
from pathlib import Path

from gpuinstall.base.advice import Advice, Hint, make_shell_line
from gpuinstall.base.environment_paths import (
    JOURNAL,
    KEPT,
    EnvironmentPaths,
    relative_prefix,
)
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    check_output,
    convert_write_errors,
    display_path,
    has_text,
    link_or_copy,
    move_file,
    read_document,
    real_path,
    retry,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.owners import is_foreign, owner_of
from gpuinstall.base.removal import (
    find_mounts,
    is_folder,
    iter_files,
    move_contents,
    remove_file,
    remove_path,
    tree_size,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.text import (
    format_count,
    format_duration,
    format_size,
    join_names,
    split_names,
)
from gpuinstall.base.values import replace
from gpuinstall.environments.discarding import (
    discard,
    discard_folder,
)
from gpuinstall.environments.environment import NAME, package_versions, read_marker
from gpuinstall.environments.ownership import find_own_files, find_user_paths
from gpuinstall.environments.packages import (
    InstalledPackage,
    find_written_files,
    read_packages,
)
from gpuinstall.environments.records import (
    create_pointer_error,
    find_changed_environment,
    make_undo_command,
)
from gpuinstall.environments.running import Owner, read_restart_time
from gpuinstall.environments.stamp import read_file_stamp
from gpuinstall.install.file_change import (
    Change,
    check_inside,
    create_path_error,
    is_same_file,
    plan_change,
    read_size_and_mtime,
)
from gpuinstall.install.journal import (
    Journal,
    has_same_origin,
    is_damaged,
    is_journal,
    is_recorded_journal,
    previous_files,
    read_commit_origin,
    read_folder_identity,
    read_journal,
    replaced_environment,
    replaced_journal,
    sync_file_system,
    sync_folder,
    write_commit_origin,
    write_journal,
)
from gpuinstall.sources.configuration import read_policy

_GITIGNORE = "# Written by gpuinstall\n*\n"


@contextmanager
def apply_change(change: Change, reporter: Reporter) -> Iterator[None]:
    """Replace an environment's files, and restore them if the block fails.

    Args:
        change: The files.
        reporter: Reports modified files, and files kept by a rollback.

    Raises:
        InstallationError: A file cannot be read, linked, or moved.
    """
    place = change.place
    try:
        _write_journal(change)
        with _convert_file_errors(place):
            saved = _apply(change)
        yield
        _commit(place, change.journal, reporter, saved)
    except BaseException:
        # The next command completes the rollback.
        with defer_interrupts(), suppress(InstallationError, UsageError, OSError):
            recover(place, reporter, is_own=True)
        raise


@contextmanager
def _convert_file_errors(place: EnvironmentPaths) -> Iterator[None]:
    """Convert an OSError to an InstallationError with the path of the file."""
    try:
        yield
    except OSError as error:
        # filename2 is the destination of a link or move.
        named = error.filename2 or error.filename
        with convert_write_errors(
            Path(named) if isinstance(named, str | Path) else place.root
        ):
            raise


def _write_journal(change: Change) -> None:
    """Write the journal, which is needed to recover from a crash."""
    place = change.place
    journal = change.journal
    with convert_write_errors(place.work):
        remove_path(place.scratch)
        previous_files(place.scratch).mkdir(parents=True)
        for name in sorted({*change.names, *journal.own}):
            _link(place.root / name, previous_files(place.scratch) / name)
        write_journal(journal, place, place.scratch)
        _begin(place)


def _begin(place: EnvironmentPaths) -> None:
    """Make the written journal the current one, and point to it."""
    retry(place.scratch.rename, place.current_change)
    sync_folder(place.work)
    _point_to_journal(place)


def _point_to_journal(place: EnvironmentPaths) -> None:
    """Write the path of the current journal into the environment."""
    if is_folder(place.venv) and place.work.parent == place.venv.parent:
        place.pointer.write_text(f"{place.current_change}\n", "utf-8")


def _end(place: EnvironmentPaths, folder: Path) -> None:
    """Rename the journal of a change that is completed or rolled back."""
    remove_file(place.pointer)
    retry(place.current_change.rename, folder)


def _link(source: Path, destination: Path) -> None:
    """Create a hard link to a file if the file exists."""
    if os.path.lexists(source) and not is_folder(source):
        destination.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source, destination)


def _apply(change: Change) -> list[str]:
    """Remove old files, and move new files to their paths.

    Returns:
        The files that another program wrote after they were inspected. They are kept.
    """
    place = change.place
    own = set(change.journal.own) - {NAME}
    # A lock file that differs from the marker shows an interruption, even without a journal.
    first = sorted(change.names & own)
    saved = []
    for name in (*first, *_order(change.removed - own, change.added.keys() - own)):
        if _is_saved(place, name, change.inspected.get(name)):
            saved.append(name)
        elif name in change.added:
            _clear_path(place, name, change.removed)
            move_file(change.added[name], place.root / name)
        else:
            retry((place.root / name).unlink, missing_ok=True)
    _remove_leftovers(place, change.names)
    return saved


def _is_saved(
    place: EnvironmentPaths, name: str, inspected: tuple[int, ...] | None
) -> bool:
    """Return whether another program saved a file after it was inspected.

    Args:
        place: The environment.
        name: The file, relative to the environment's root.
        inspected: The file's size and modification time; None: it was missing.
    """
    path = place.root / name
    if not os.path.lexists(path) or is_folder(path):
        return False
    copy = previous_files(place.current_change) / name
    is_same = islink(path) or is_same_file(copy, path)
    return read_size_and_mtime(path) != inspected or not is_same


def _order(removed: Iterable[str], added: Iterable[str]) -> list[str]:
    """Return files in an order in which each package always has metadata."""
    records = {*filter(_is_record, removed)}
    return [
        *sorted({*removed} - records),
        *sorted(added, key=_record_sort_key),
        *sorted(records),
    ]


def _is_record(name: str) -> bool:
    # ``.egg-info`` may be a file.
    return ".dist-info/" in name or ".egg-info" in name


def _record_sort_key(name: str) -> tuple[bool, bool, bool, bool, str]:
    # A folder without METADATA is not recognized as an unfinished package.
    is_first = name.endswith("/METADATA")
    is_last = name.endswith("/RECORD")
    return (name == NAME, _is_record(name), not is_first, is_last, name)


def _clear_path(place: EnvironmentPaths, name: str, removed: Iterable[str]) -> None:
    """Create the parent of a new file, and remove an empty folder at its path.

    Args:
        place: The environment.
        name: The new file, relative to the environment's root.
        removed: The removed files.

    """
    path = place.root / name
    if is_folder(path):
        inside = (one for one in removed if one.startswith(f"{name}/"))
        _remove_leftovers(place, inside)
        for folder, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
    with suppress(FileExistsError, NotADirectoryError):
        path.parent.mkdir(parents=True, exist_ok=True)


_ATTEMPTS = 3
_COMPILED = re.compile(r"([^.]+)\.(?:cpython|pypy|graalpy)[\d-]+(?:\.opt-\w+)?\.pyc")
"""The name of a compiled module: ``module.cpython-312.opt-1.pyc``."""


def _remove_leftovers(place: EnvironmentPaths, names: Iterable[str]) -> None:
    """Remove compiled modules and empty folders of removed packages.

    Args:
        place: The environment. Its standard folders are kept.
        names: The removed and replaced files.
    """
    mounts = find_mounts(place.root)
    modules: dict[str, set[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        modules.setdefault(folder, set()).add(file.removesuffix(".py"))
    lasting = {place.root, *place.find_packages_folders()}
    for folder, stems in modules.items():
        path = place.root / folder
        cache = path / "__pycache__"
        if is_folder(cache) and str(cache) not in mounts:
            for compiled in list(cache.glob("*.pyc")):
                module = _COMPILED.fullmatch(compiled.name)
                if module and module[1] in stems:
                    remove_file(compiled)
            _remove_if_empty(cache)
        while path not in lasting and _remove_if_empty(path):
            path = path.parent


def _remove_if_empty(folder: Path) -> bool:
    """Remove a folder if it is empty, and return whether it was removed."""
    # A metadata folder that remains is a package without a name.
    for _ in range(_ATTEMPTS):
        try:
            retry(folder.rmdir)
        except OSError as error:  # noqa: PERF203  a network file system may be slow
            if error.errno not in {errno.EBUSY, errno.EIO, errno.ESTALE, errno.EACCES}:
                return False
        else:
            return True
    return False


def _commit(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter, saved: Sequence[str]
) -> None:
    """Flush a verified change to disk, and mark its journal as complete.

    Args:
        place: The environment.
        journal: The journal of the change.
        reporter: Reports the user's files.
        saved: The files that the user saved during the change. They were kept.
    """
    modified = tuple(name for name in journal.modified if name not in {*saved})
    verified = replace(journal, is_verified=True, modified=modified)
    with _convert_file_errors(place), ExitStack() as prepared:
        prepared.enter_context(
            replaced_journal(verified, place, place.current_change, is_cached=True)
        )
        sync_file_system(place.root)
        with defer_interrupts():
            prepared.close()
            for names in split_names(saved):
                reporter.notice("Kept", f"{names} (saved during the change)")
            _publish_change(place, verified, reporter)


def _publish_change(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter
) -> None:
    """Write the new lock files of the project, and report modified files.

    Raises:
        InstallationError: A lock file cannot be written. The next command rolls the change back.
    """
    try:
        publish_locks(place, journal.locks, reporter)
    except (InstallationError, UsageError):
        failed = replace(journal, is_verified=False)
        write_journal(failed, place, place.current_change)
        raise
    # If this command is killed now, the next one prints the report again.
    if journal.modified:
        count = format_count(len(journal.modified), "modified file")
        names = ", ".join(journal.modified[:3])
        more = ", …" if len(journal.modified) > 3 else ""
        undo = f"{make_undo_command(place)} restores the previous content until the next change"
        reporter.notice("Replaced", f"{count}: {names}{more}; {undo}")
    _keep_journal(place, journal)


def _keep_journal(place: EnvironmentPaths, journal: Journal) -> None:
    """Keep the current journal for rollback, and remove the previous one.

    If no package changed, the previous one is kept instead.
    """
    if not (journal.packages or journal.is_rebuild):
        _discard_current(place)
        return
    if is_journal(place.last_change):
        _discard_last(place)
    write_commit_origin(place, place.current_change)
    _end(place, place.last_change)
    sync_folder(place.last_change)


def _discard_current(place: EnvironmentPaths) -> None:
    """Remove the current journal. The next command completes the removal."""
    remove_path(place.scratch)
    _end(place, place.scratch)
    remove_path(place.scratch)


def _discard_last(place: EnvironmentPaths) -> None:
    """Remove the last journal. The next command completes the removal."""
    remove_path(place.scratch)
    discard(place.last_change, place.scratch)


def _set_aside(place: EnvironmentPaths) -> Path:
    """Keep the current journal in another folder, and return the folder."""
    aside = place.work / f"kept-{os.urandom(4).hex()}"
    _end(place, aside)
    return aside


def publish_locks(
    place: EnvironmentPaths, locks: Mapping[str, Sequence[str]], reporter: Reporter
) -> None:
    """Write, replace, and remove lock files of the project.

    Args:
        place: The environment.
        locks: The previous and the new text by file name, empty if missing. A file that was saved since is kept.
        reporter: Reports a kept lock file.

    Raises:
        UsageError: A lock file is a link out of the repository.
        InstallationError: A lock file cannot be written.
    """
    for name, (old, new) in locks.items():
        link = place.folder / name
        lock = real_path(link)
        text = ""
        with suppress(OSError, ValueError):
            text = read_document(lock, lock.parent)
        if text == new:
            continue
        if text and text.splitlines() != old.splitlines():
            reporter.notice("Kept", f"{lock} (modified since)")
            continue
        check_output(link, place.folder)
        if new:
            write_atomically(lock, new, place.work if exists(place.work) else None)
        else:
            with convert_write_errors(lock):
                retry(lock.unlink, missing_ok=True)
        sync_folder(lock.parent)


def recover(
    place: EnvironmentPaths,
    reporter: Reporter,
    *,
    is_own: bool = False,
    is_replaced: bool = False,
) -> None:
    """Complete an interrupted change if it was verified, or roll it back.

    Args:
        place: The environment, which this command has locked.
        reporter: Reports the result.
        is_own: Whether this process started the change.
        is_replaced: Whether the environment is removed or rebuilt, so that a missing journal is not necessary.

    Raises:
        UsageError: Another user started the change.
        InstallationError: A file cannot be restored, or the journal is in a folder that this container does not see.
    """
    if not place.has_unfinished_change():
        return
    if not os.path.lexists(place.current_change):
        if not is_replaced:
            raise create_pointer_error(place)
        return
    with _convert_file_errors(place):
        if is_damaged(place.current_change):
            text = "an interrupted change with a damaged journal"
            reporter.notice("Kept", f"{_set_aside(place)} ({text})")
            return
        journal = _read_recoverable(place)
        if not (is_own or is_recorded_journal(place.current_change)):
            _announce(place, journal, reporter)
        if _finish_change(place, journal, reporter) and not is_own:
            reporter.step("Rolled back", "an interrupted change")


def _announce(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> None:
    """Report a journal of another container, or one in a clone."""
    _, written_ns, _ = read_file_stamp(str(place.current_change / JOURNAL))
    age = format_duration(max(time.time() - written_ns / 10**9, 0))
    count = format_count(len({*journal.added, *journal.own}), "file")
    text = f"an interrupted change of {count} by {journal.owner.host}, {age} ago"
    reporter.notice("Recovers", f"{text}, which this user has not recorded")


def _finish_change(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter
) -> bool:
    """Complete a change, or roll it back.

    Returns:
        Whether it was rolled back.
    """
    has_copy = os.path.lexists(previous_files(place.current_change) / NAME)
    if journal.is_rebuild:
        return not _finish_rebuild(place, journal, reporter)
    if has_copy and not os.path.lexists(place.root / NAME):
        reason = f"another tool has recreated {place.venv}"
        if journal.modified:
            text = f"{_set_aside(place)} (an interrupted change: {reason})"
            reporter.notice("Kept", text)
        else:
            _discard_current(place)
            reporter.notice("Discarded", f"an interrupted change: {reason}")
        return False
    if journal.is_verified:
        _publish_change(place, journal, reporter)
        return False
    _restore(place, journal, reporter)
    return True


def _read_recoverable(place: EnvironmentPaths) -> Journal:
    """Read the journal of a change that this command may recover."""
    folder = place.current_change
    is_trusted = _is_trusted(folder, place)
    journal = read_journal(folder, is_trusted=is_trusted)
    if journal is None:
        hint = make_shell_line(
            f"GPUINSTALL_TRUST_FOLDER=1 {make_undo_command(place)}",
            "completes it or rolls it back",
        )
        if is_trusted:
            aside = folder.with_name("changing.others")
            note = "keeps its files; then run it again"
            hint = Advice("mv", (str(folder), str(aside)), note=note)
        raise UsageError(
            "others-change",
            f"{folder} is an interrupted change by {owner_of(folder)}",
            why="its journal could list any file of the environment for removal",
            hint=hint,
        )
    return journal


def _is_trusted(journal: Path, place: EnvironmentPaths) -> bool:
    """Return whether this user trusts the journal of an unrecorded change."""
    policy = read_policy(place.folder)
    is_own = policy.trusts_other_users or not is_foreign(journal, place.folder)
    return is_own and policy.runs(place.venv)


def _read_copied(place: EnvironmentPaths, folder: Path) -> tuple[InstalledPackage, ...]:
    """Read the packages in a copy of some files of an environment."""
    return read_packages(
        folder / relative_prefix(one, place.root)
        for one in place.find_packages_folders()
    )


def _select(
    names: Iterable[str], packages: Iterable[InstalledPackage]
) -> list[InstalledPackage]:
    """Return the packages with these names."""
    return [package for package in packages if package.name in names]


def _is_new_file(path: Path, name: str, journal: Journal) -> bool:
    """Return whether a file is as the change wrote it, or incomplete.

    A file counts as incomplete if it was last modified before the change moved it here,
    and it is empty or the host has restarted since.

    Args:
        path: The file.
        name: Its path relative to the environment's root.
        journal: The change.
    """
    expected = journal.added.get(name)
    if expected is None:
        return False
    status = path.lstat()
    if read_size_and_mtime(path) == expected:
        return True
    _, written_ns = expected
    is_incomplete = status.st_mtime_ns <= written_ns and (
        not status.st_size or status.st_ctime_ns < read_restart_time(journal.owner.boot)
    )
    return stat.S_ISREG(status.st_mode) and is_incomplete


@defer_interrupts()
def _restore(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> None:
    """Remove the new files of a change, and restore the previous files.

    If the rollback is killed, the next command repeats it.

    Args:
        place: The environment.
        journal: The current change.
        reporter: Reports files that are not restored.

    Raises:
        UsageError: A file is behind a link or a mount.
    """
    _point_to_journal(place)
    copies = previous_files(place.current_change)
    previous = {copy.relative_to(copies).as_posix() for copy in iter_files(copies)}
    new = {*journal.added, *journal.own} - previous
    check_inside(place, previous | new)
    written = [
        name
        for name in _order(new, previous)
        if not _restore_file(place, journal, name, new)
    ]
    _remove_leftovers(place, journal.added)
    text = f"{join_names(written)} in {place.venv} (written since"
    if previous.intersection(written) - find_own_files(copies):
        text += f"; the previous content is in {_set_aside(place)}"
    else:
        _discard_current(place)
    if written:
        reporter.notice("Kept", f"{text})")


def _restore_file(
    place: EnvironmentPaths, journal: Journal, name: str, new: Iterable[str]
) -> bool:
    """Restore a previous file, or remove a new one.

    Args:
        place: The environment.
        journal: The current change.
        name: The file, relative to the environment's root.
        new: The files to remove.

    Returns:
        Whether the file has its previous state. The user's files are kept.
    """
    path = place.root / name
    copy = previous_files(place.current_change) / name
    if name not in new and is_same_file(copy, path):
        return True
    is_present = os.path.lexists(path) and not is_folder(path)
    is_own = name in journal.own and name not in journal.added
    if is_present and not is_own and not _is_new_file(path, name, journal):
        return False
    if name in new:
        if is_present:
            retry(path.unlink)
        return True
    _clear_path(place, name, new)
    if is_folder(path) or not isdir(path.parent):
        return False
    part = place.work / f".back.{os.urandom(4).hex()}"
    link_or_copy(copy, part)
    move_file(part, path)
    return True


def check_last_change(place: EnvironmentPaths) -> bool:
    """Compare the files of the last change once after a restart.

    A package with an incomplete file loses its RECORD, so that it is reinstalled. A copy of the
    environment loses the journal.

    Returns:
        Whether a package is incomplete.
    """
    last = place.last_change
    if not is_journal(last) or has_same_origin(place):
        return False
    _, inode = read_commit_origin(last)
    if inode not in {"", str(read_file_stamp(str(place.root))[2])}:
        # roll_back reports an environment that another tool has recreated.
        if not place.is_managed or read_marker(place.venv):
            _discard_last(place)
        return False
    incomplete = _find_incomplete(place, read_journal(last))
    for package in incomplete:
        remove_file(package.record / "RECORD")
    write_commit_origin(place, last)
    return bool(incomplete)


def _find_incomplete(
    place: EnvironmentPaths, journal: Journal | None
) -> list[InstalledPackage]:
    """Return the packages of the last change with missing or shorter files."""
    # An installer cannot remove a package without RECORD from an unmanaged environment.
    if journal is None or not place.is_managed:
        return []
    found = []
    packages = read_packages(place.find_packages_folders())
    for package in _select(journal.packages, packages):
        names = find_written_files(package, place.root).keys() & journal.added.keys()
        if any(_is_cut(place.root / name, journal.added[name]) for name in names):
            found.append(package)
    return found


def _is_cut(path: Path, written: tuple[int, ...]) -> bool:
    """Return whether a file is missing, or shorter than it was written."""
    size, written_ns = written
    now, changed_ns, _ = read_file_stamp(str(path))
    return now < size and changed_ns <= written_ns


def _finish_rebuild(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter
) -> bool:
    """Finish replacing an environment, or restore the previous environment.

    Returns:
        Whether the new environment is in use. Both environments are complete, and the new one is verified.
    """
    replaced = replaced_environment(place.current_change)
    leaving = _leaving_files(place.current_change)
    is_restored = is_folder(leaving)
    if not (is_restored or is_folder(replaced)):
        _keep_journal(place, journal)
        return True
    source = leaving if is_restored else _find_new_files(place, journal)
    if is_folder(source):
        if os.path.lexists(source / _FIRST) and os.path.lexists(place.root / _FIRST):
            # Another tool created this environment in the meantime.
            if is_restored:
                retry(leaving.rename, replaced)
            elif not journal.is_from_previous:
                remove_path(source)
            _keep_and_report(place, journal, reporter)
            return False
        place.root.mkdir(parents=True, exist_ok=True)
        move_contents(source, place.root, last=_FIRST)
        retry(source.rmdir)
    if not is_restored:
        _publish_or_warn(place, journal, reporter)
        if any(replaced.iterdir()):
            _keep_and_report(place, journal, reporter)
            return True
        if is_journal(place.last_change):
            # It belongs to an environment that no longer exists.
            _discard_last(place)
    _discard_current(place)
    return not is_restored


_FIRST = "pyvenv.cfg"
"""The first file to move out of an environment, and the last to move in."""


def _leaving_files(folder: Path) -> Path:
    """Return the path at which a journal collects the replaced files."""
    return folder / "leaving"


def _find_new_files(place: EnvironmentPaths, journal: Journal) -> Path:
    """Return the folder from which a new environment is moved to its path."""
    if journal.is_from_previous:
        return place.previous
    return place.current_change / "new"


def _publish_or_warn(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter
) -> None:
    """Write the lock files of a rebuilt environment to its folder, or warn."""
    try:
        publish_locks(place, journal.locks, reporter)
    except (InstallationError, UsageError) as error:
        reporter.warn(f"{error.message}; {place.root} has the same lock file")


def _keep_and_report(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter
) -> None:
    """Move the previous environment from the journal, and report it.

    Raises:
        UsageError: A user's file or folder is at its path.
    """
    replaced = replaced_environment(place.current_change)
    # If this command is killed now, the next one prints the report again.
    size = format_size(tree_size(replaced))
    text = f"{display_path(place.previous)}, {size}, the previous environment"
    files = find_user_paths(replaced)
    if files:
        text += f", including {join_names(files)} (created or modified by you)"
    reporter.notice("Kept", text)
    if os.path.lexists(place.previous):
        reason = (
            "is not from the last rebuild, and the previous files would be kept there"
        )
        raise create_path_error({place.previous: f"{place.previous} {reason}"})
    if not os.path.lexists(replaced / ".gitignore"):
        (replaced / ".gitignore").write_text(_GITIGNORE)
    retry(replaced.rename, place.previous)
    _keep_journal(place, journal)


def replace_environment(
    place: EnvironmentPaths,
    new: Path,
    locks: Mapping[str, tuple[str, ...]],
    reporter: Reporter,
) -> None:
    """Replace an environment with a verified one, and keep the previous one.

    Args:
        place: The environment.
        new: The new environment, on the same file system.
        locks: The previous and the new text of each lock file, empty if missing.
        reporter: Reports the previous environment.

    Raises:
        InstallationError: The new environment cannot be moved. The previous environment is unchanged.
    """
    if new != place.previous:
        # The user confirmed the removal of the older environment.
        discard_folder(place.previous, place.work, reporter)
    with convert_write_errors(place.root):
        sync_file_system(new)
        ignored = new / ".gitignore"
        if has_text(ignored, _GITIGNORE):
            remove_file(ignored)
        journal = Journal(
            Owner.here(),
            is_rebuild=True,
            is_from_previous=new == place.previous,
            locks=locks,
            identity=read_folder_identity(new),
        )
        remove_path(place.scratch)
        _leaving_files(place.scratch).mkdir(parents=True)
        write_journal(journal, place, place.scratch)
        try:
            with defer_interrupts():
                _exchange(place, new, journal)
                _finish_rebuild(place, journal, reporter)
        except OSError as error:
            with suppress(OSError, InstallationError):
                recover(place, reporter, is_own=True)
            if read_folder_identity(place.root) != journal.identity:
                raise
            # The new environment is complete.
            if place.has_unfinished_change():
                replaced = replaced_environment(place.current_change)
                reporter.warn(
                    f"the previous environment is still in {replaced}: {error}"
                )


def _exchange(place: EnvironmentPaths, new: Path, journal: Journal) -> None:
    """Move the files of an environment into the journal of a rebuild."""
    import shutil  # slow to import

    _begin(place)
    leaving = _leaving_files(place.current_change)
    if is_folder(place.root):
        shutil.copystat(place.root, leaving)
        configuration = place.root / _FIRST
        if os.path.lexists(configuration):
            retry(configuration.rename, leaving / _FIRST)
        move_contents(place.root, leaving, kept=KEPT)
    if not journal.is_from_previous:
        retry(new.rename, _find_new_files(place, journal))
    # From now on, a killed change is completed.
    retry(leaving.rename, replaced_environment(place.current_change))


def roll_back(place: EnvironmentPaths, reporter: Reporter) -> None:
    """Undo the last change of an environment. A second rollback redoes it.

    Args:
        place: The environment, which this command has locked.
        reporter: Reports files and packages that are not restored.

    Raises:
        UsageError: There is no trusted journal, another tool recreated the environment, or a file is behind a link.
        InstallationError: A file cannot be written.
    """
    last = place.last_change
    is_trusted = is_journal(last) and _is_trusted(last, place)
    journal = read_journal(last, is_trusted=is_trusted)
    if journal is None or not (journal.is_rebuild or is_folder(place.root)):
        changed = find_changed_environment() if place.is_managed else None
        hint = make_undo_command(changed) if changed else None
        reason = f"gpuinstall recorded none by this user in {place.venv}"
        raise _nothing_to_undo(reason, hint)
    if os.path.lexists(place.root) and not _is_same_environment(place, journal):
        raise _nothing_to_undo(f"another tool has recreated {place.venv}")
    if not journal.is_rebuild:
        with apply_change(_reverse_change(place, journal), reporter):
            pass
        return
    previous = place.previous
    if not is_folder(previous):
        raise _nothing_to_undo(f"{previous}, the previous environment, is missing")
    replace_environment(place, previous, _reverse_locks(journal), reporter)


def _reverse_locks(journal: Journal) -> dict[str, tuple[str, ...]]:
    return {name: texts[::-1] for name, texts in journal.locks.items()}


def _nothing_to_undo(reason: str, hint: Hint | None = None) -> UsageError:
    message = f"there is no change to undo: {reason}"
    return UsageError("no-previous", message, hint=hint)


def _is_same_environment(place: EnvironmentPaths, journal: Journal) -> bool:
    """Return whether an environment was not recreated since the change."""
    if read_marker(place.venv):
        return True
    if journal.is_rebuild:
        return read_folder_identity(place.root) == journal.identity
    # An unmanaged environment has no marker.
    return not os.path.lexists(previous_files(place.last_change) / NAME)


def _reverse_change(place: EnvironmentPaths, journal: Journal) -> Change:
    """Return the file change that undoes the last change of an environment.

    Args:
        place: The environment.
        journal: The last change.
    """
    staging = place.staging
    files = {}
    copies = previous_files(place.last_change)
    for copy in iter_files(copies):
        name = copy.relative_to(copies).as_posix()
        files[name] = staging / name
        _link(copy, files[name])
    return plan_change(
        place,
        added=files,
        after=package_versions(_select(journal.packages, _read_copied(place, staging))),
        old_packages=_select(
            journal.packages, read_packages(place.find_packages_folders())
        ),
        own=journal.own,
        locks=_reverse_locks(journal),
        is_rollback=not journal.is_rollback,
    )
