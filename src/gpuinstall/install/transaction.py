"""One transaction: an environment is changed where it lies, or it is as it was.

uv writes into a folder beside the environment (``unpack.py``), and nowhere else. The files that go are removed, and those
that come are moved from there to their places, one rename each (``file_change.py`` says which): no file is half there at
any time, and nothing else is touched. ``journal.py`` has what lies on the disk meanwhile.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from os.path import exists, isdir
from pathlib import Path

from gpuinstall.base.environment_paths import EnvironmentPaths, below
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    holds_text,
    link_or_copy,
    write_atomically,
    writing,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import (
    files_below,
    is_folder,
    remove_file,
    remove_path,
    size_of,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import readable, some
from gpuinstall.base.values import replace
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.kept_files import (
    dated_folder,
    kept_paths,
)
from gpuinstall.environments.packages import (
    read_packages,
    written_files,
)
from gpuinstall.environments.records import undo_command
from gpuinstall.install.file_change import (
    Change,
    is_same_file,
    plan_change,
    size_and_time,
)
from gpuinstall.install.journal import (
    Journal,
    Owner,
    before,
    read_journal,
    replaced_environment,
    sync_file_system,
    sync_folder,
    write_journal,
)
from gpuinstall.lock.request.history import read_own_lock


@contextmanager
def changing(change: Change, reporter: Reporter) -> Iterator[None]:
    """Change an environment, and keep the change; put back what was there if what is done meanwhile fails.

    Args:
        change: Which files come and go.
        reporter: Is told which files of the user are kept, and where; and what stays if it is put back.

    Raises:
        InstallationError: a file cannot be read, linked or moved.
    """
    place = change.place
    _begin(change)
    try:
        with writing(place.root):
            _apply(change)
        yield
        _commit(place, change.journal, reporter)
    except BaseException:
        # What cannot be put back right now is left to the next run.
        with defer_interrupts(), suppress(InstallationError, UsageError, OSError):
            heal(place, reporter, is_own=True)
        raise


def _begin(change: Change) -> None:
    """Write the journal of a change: from here on a run that dies is put back by the next."""
    place = change.place
    journal = change.journal
    # What a failure leaves there counts for nothing, and goes when the environment is let go.
    with writing(place.work):
        remove_path(place.scratch)
        before(place.scratch).mkdir(parents=True)
        for name in {*change.names, *journal.own}:
            _link(place.root / name, before(place.scratch) / name)
        write_journal(journal, place, place.scratch)
        place.scratch.rename(place.current_change)
        sync_folder(place.work)


def _link(source: Path, destination: Path) -> None:
    """Give a file a second name; nothing happens if there is none."""
    if os.path.lexists(source) and not is_folder(source):
        destination.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source, destination)


def _apply(change: Change) -> None:
    """Remove the files that go, and move those that come to their places: a folder may come where a file was.

    The record of a package comes after its files and goes after what comes, so that there is always one of them.
    """
    place = change.place
    records = set(filter(_is_record, change.goes))
    for name in sorted(change.goes - records):
        (place.root / name).unlink(missing_ok=True)
    for name in sorted(change.comes, key=_record_last):
        _make_way(place, name, change.goes)
        _move(change.comes[name], place.root / name)
    for name in sorted(records):
        (place.root / name).unlink(missing_ok=True)
    _remove_leftovers(place, change.names)


def _is_record(name: str) -> bool:
    # An ``.egg-info`` may be a single file.
    return ".dist-info/" in name or ".egg-info" in name


def _record_last(name: str) -> tuple[bool, str]:
    return (_is_record(name), name)


def _make_way(place: EnvironmentPaths, name: str, gone: Iterable[str]) -> None:
    """Make the folder of a file that comes, and remove one at its place that held what went alone; others' things stay.

    Args:
        place: The environment.
        name: The file, by its path below the root.
        gone: The files that went.
    """
    path = place.root / name
    if is_folder(path):
        _remove_leftovers(place, (one for one in gone if one.startswith(f"{name}/")))
    if not isdir(path.parent):
        with suppress(FileExistsError, NotADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)


def _move(source: Path, destination: Path) -> None:
    """Move a file to its place in one stroke, also to another file system.

    Args:
        source: The file, which is gone afterwards unless it lay on another file system.
        destination: Its place; what lies there is replaced.

    Raises:
        OSError: it cannot be moved; its place is as it was.
    """
    try:
        os.replace(source, destination)  # noqa: PTH105  of thousands of files
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        part = destination.with_name(f".{destination.name[:40]}.{os.urandom(4).hex()}")
        try:
            shutil.copy2(source, part, follow_symlinks=False)
            part.replace(destination)
        finally:
            remove_file(part)


def _remove_leftovers(place: EnvironmentPaths, names: Iterable[str]) -> None:
    """Remove what Python has compiled of modules that went or were replaced, and folders that are empty by now.

    Other files stay, and so do the folders of the environment itself.
    """
    modules: dict[str, set[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        modules.setdefault(folder, set()).add(file.removesuffix(".py"))
    lasting = {place.root, *place.packages_folders}
    for folder, stems in modules.items():
        path = place.root / folder
        cache = path / "__pycache__"
        if is_folder(cache):
            for compiled in list(cache.glob("*.pyc")):
                if compiled.name.partition(".")[0] in stems:
                    remove_file(compiled)
            with suppress(OSError):
                cache.rmdir()
        with suppress(OSError):
            while path not in lasting:
                path.rmdir()
                path = path.parent


def _commit(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> None:
    """Keep a change that is proven: on the disk first, then by name.

    Args:
        place: The environment.
        journal: The change.
        reporter: Is told which files of the user are kept, and where.
    """
    with writing(place.root):
        sync_file_system(place.root)
    proven = replace(journal, is_proven=True)
    with defer_interrupts():
        write_journal(proven, place, place.current_change)
        _finish(place, proven, reporter)


def _finish(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> None:
    """Publish the lock of a proven change, keep what was the user's, and end the change before."""
    publish_lock(place)
    if journal.users:
        folder = dated_folder(place.kept_files, journal.kept)
        for name in journal.users:
            _link(before(place.current_change) / name, folder / name)
        text = f"{some(list(journal.users))}, changed or written by you: in {folder}"
        reporter.notice("Kept", text)
    _retire(place, reporter)
    place.current_change.rename(place.last_change)
    sync_folder(place.work)


def _retire(place: EnvironmentPaths, reporter: Reporter) -> None:
    """End the last change: it cannot be taken back any more; an environment that it replaced is kept, and named."""
    if not os.path.lexists(place.last_change):
        return
    replaced = replaced_environment(place.last_change)
    if is_folder(place.last_change) and is_folder(replaced):
        kept = replaced.rename(dated_folder(place.kept_files) / place.venv.name)
        text = f"{kept}, {readable(size_of(kept))}, which was replaced before"
        reporter.notice("Kept", text)
    _discard(place.last_change, place)


def _discard(folder: Path, place: EnvironmentPaths) -> None:
    """Remove a journal, under a name that the next run clears away."""
    remove_path(place.scratch)
    folder.rename(place.scratch)
    remove_path(place.scratch)


def publish_lock(place: EnvironmentPaths) -> None:
    """Bring the lock in the folder to what the environment holds; if its copy is gone or another, there is none to bring."""
    own = read_own_lock(place.root)
    if own is None:
        return
    lock = place.root.parent / own.name
    if not holds_text(lock, own.text):
        write_atomically(lock, own.text, place.work if exists(place.work) else None)
        sync_folder(lock.parent)


def heal(
    place: EnvironmentPaths,
    reporter: Reporter,
    *,
    is_own: bool = False,
    takes_over: bool = False,
) -> None:
    """Finish the change of a run that was killed, or put back what was there; where another installer came between, neither.

    Args:
        place: The environment, which this run holds.
        reporter: Is told what became of the change.
        is_own: Whether this very run has begun it.
        takes_over: Whether one is put back that was begun on another host.

    Raises:
        UsageError: another user's run, or one on another host, has begun it.
        InstallationError: a file cannot be put back.
    """
    if not place.is_unfinished:
        return
    journal = read_journal(place.current_change, place)
    if journal is None:
        aside = place.current_change.with_name("changing.others")
        move = f"mv {quoted(place.current_change)} {quoted(aside)}"
        raise UsageError(
            "others-change",
            f"{place.current_change} holds a change that was not finished, which this user did not begin here",
            why="its record may name any file of the environment as one to remove",
            hint=f"{move}   # keeps the files that it holds; then run it again",
        )
    owner = journal.owner
    if not is_own and (owner.is_elsewhere and not takes_over):
        raise UsageError(
            "change-elsewhere",
            f"{place.venv} is being changed by {owner}",
            why="whether that run still lives cannot be seen from here",
            hint=f"{undo_command(place)} --replace   # if it does not",
        )
    if not is_own and owner.is_alive and owner.process != os.getpid():
        raise InstallationError("busy", f"{place.venv} is still in use by {owner}")
    with writing(place.root):
        if journal.is_rebuild:
            is_undone = not _finish_rebuild(place, journal, reporter)
        elif journal.is_proven:
            _finish(place, journal, reporter)
            is_undone = False
        else:
            is_undone = _put_back(place, journal, reporter)
    if is_undone and not is_own:
        reporter.step("Undone", "a change that a killed run had begun")


def _changed_since(
    place: EnvironmentPaths, journal: Journal, folder: Path
) -> list[str]:
    """Return the packages of a change that another installer has changed since it was begun.

    Args:
        place: The environment.
        journal: The change.
        folder: Where the journal lies, with the files of before.
    """
    installed = read_packages(place.packages_folders)
    moved = []
    for name, versions in journal.packages.items():
        records = [one.record / "RECORD" for one in installed if one.name == name]
        is_moved = not records and all(versions)
        # It comes and goes last of the files of a package.
        for record in filter(os.path.lexists, records):
            path = record.relative_to(place.root).as_posix()
            was_there = is_same_file(before(folder) / path, record)
            is_moved |= not (was_there or _is_what_came(record, path, journal))
        if is_moved:
            moved.append(name)
    return moved


def _is_what_came(path: Path, name: str, journal: Journal) -> bool:
    """Whether a file is what a change has brought, or is empty, as a power cut leaves it: then it holds nothing of the user's.

    Args:
        path: The file.
        name: Its path below the root of the environment.
        journal: The journal of the change.
    """
    came = journal.comes.get(name)
    if came is None:
        return False
    status = path.lstat()
    # A folder or a pipe may have no size either.
    is_empty = stat.S_ISREG(status.st_mode) and status.st_size == 0
    return is_empty or size_and_time(path) == came


@defer_interrupts()
def _put_back(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> bool:
    """Take away what a change has brought, and bring back what it has taken; a run that dies here is repeated.

    Args:
        place: The environment.
        journal: The journal of the change that is under way.
        reporter: Is told what stays, and what was kept aside.

    Returns:
        False if another installer has changed one of its packages since: what was there before is kept aside.
    """
    moved = _changed_since(place, journal, place.current_change)
    if moved:
        aside = dated_folder(place.kept_files, journal.kept)
        place.current_change.rename(aside / "change")
        text = f"what was there before a change that a killed run had begun: in {aside}"
        reporter.notice("Kept", f"{text}; {some(moved)} came or changed since")
        return False
    copies = before(place.current_change)
    went = {copy.relative_to(copies).as_posix() for copy in files_below(copies)}
    came = {*journal.comes, *journal.own} - went
    records = set(filter(_is_record, came))
    names = [*sorted(came - records), *sorted(went, key=_record_last), *sorted(records)]
    stays = []
    # As in ``_apply``: what may be in the way goes first, and of each package there is always a record.
    for name in names:
        path = place.root / name
        copy = copies / name
        if is_same_file(copy, path):
            continue
        is_written = name in journal.own and name not in journal.comes
        is_there = os.path.lexists(path) and not is_folder(path)
        if is_there and not is_written and not _is_what_came(path, name, journal):
            stays.append(name)
        elif name in came:
            if is_there:
                path.unlink()
        else:
            _make_way(place, name, came)
            if is_folder(path) or not isdir(path.parent):
                stays.append(name)
                continue
            part = place.work / f".back.{os.urandom(4).hex()}"
            link_or_copy(copy, part)
            _move(part, path)
    _remove_leftovers(place, journal.comes)
    if stays:
        reporter.notice("Stays", f"{some(stays)}, written since in {place.venv}")
    _discard(place.current_change, place)
    return True


_OURS = re.compile(r"staging-[0-9a-f]{8}|\.discarded-[0-9a-f]{8}")
_PART = re.compile(r"\..{1,40}\.[0-9a-f]{8}")
"""A file of ours that was being written."""


def clear_away(place: EnvironmentPaths) -> None:
    """Remove what runs that died have left of their preparations."""
    remove_path(place.scratch)
    if is_folder(place.work):
        for path in list(place.work.iterdir()):
            if is_folder(path) and _OURS.fullmatch(path.name):
                remove_path(path)
            elif _PART.fullmatch(path.name):
                remove_file(path)


def _finish_rebuild(
    place: EnvironmentPaths, journal: Journal, reporter: Reporter
) -> bool:
    """Finish the exchange of two environments, or bring the old one back; return whether it was finished.

    Both are complete, and the new one was proven before it came to its place.
    """
    replaced = replaced_environment(place.current_change)
    is_exchanged = is_folder(place.root) and place.root.stat().st_ino == journal.inode
    if is_exchanged:
        publish_lock(place)
        _retire(place, reporter)
        if is_folder(replaced) and any(replaced.iterdir()):
            users = kept_paths(replaced)
            place.current_change.rename(place.last_change)
            sync_folder(place.work)
            if users:
                folder = replaced_environment(place.last_change)
                text = f"{some(users)} (created or edited by you): in {folder}"
                reporter.notice("Moved", text)
            return True
    elif is_folder(replaced):
        if os.path.lexists(place.root):
            # Somebody has made it meanwhile.
            kept = place.root.rename(dated_folder(place.kept_files) / place.root.name)
            reporter.notice("Kept", f"{kept}, made while the environment was replaced")
        replaced.rename(place.root)
    _discard(place.current_change, place)
    return is_exchanged


def replace_environment(
    place: EnvironmentPaths, newcomer: Path, reporter: Reporter
) -> None:
    """Put a whole environment that is proven in the place of another, which the journal then holds.

    Args:
        place: Where it comes to lie.
        newcomer: Where it was made, on the same file system.
        reporter: Is told which files of the user lay in the other.

    Raises:
        InstallationError: it cannot be put there; the other is where it was.
    """
    with writing(place.root):
        sync_file_system(newcomer)
        inode = newcomer.stat().st_ino
        journal = Journal(Owner.this_run(), is_rebuild=True, inode=inode)
        remove_path(place.scratch)
        place.scratch.mkdir(parents=True)
        write_journal(journal, place, place.scratch)
        try:
            with defer_interrupts():
                place.scratch.rename(place.current_change)
                if exists(place.root):
                    place.root.rename(replaced_environment(place.current_change))
                newcomer.rename(place.root)
                _finish_rebuild(place, journal, reporter)
        except OSError:
            with suppress(OSError, InstallationError):
                heal(place, reporter, is_own=True)
            raise


def roll_back(place: EnvironmentPaths, reporter: Reporter) -> None:
    """Take the last change back, and keep what is there for the way forward.

    Args:
        place: The environment, which this run holds.
        reporter: Is told what stays as it is.

    Raises:
        UsageError: there is none by this user, or a file lies behind a link.
        InstallationError: something cannot be written.
    """
    journal = read_journal(place.last_change, place)
    if journal is None or not (journal.is_rebuild or is_folder(place.root)):
        raise UsageError(
            "no-previous",
            f"there is no change by gpuinstall to undo in {place.venv}, by this user",
        )
    if journal.is_rebuild:
        replace_environment(place, replaced_environment(place.last_change), reporter)
        return
    with changing(_reverse(place, journal, reporter), reporter):
        pass


def _reverse(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> Change:
    """Return the change that takes one back; a package that another installer has changed since is left alone.

    Args:
        place: The environment.
        journal: The journal of its last change.
        reporter: Is told what is left alone.
    """
    moved = _changed_since(place, journal, place.last_change)
    if moved:
        reporter.warn(
            f"{some(moved)} came or changed since in {place.venv}, and stays as it is"
        )
    staging = place.staging
    files = {}
    copies = before(place.last_change)
    for copy in files_below(copies):
        name = copy.relative_to(copies).as_posix()
        files[name] = staging / name
        _link(copy, files[name])
    folders = [staging / below(one, place.root) for one in place.packages_folders]
    apart = {name for name in journal.own if _is_edited_guard(place.root / name)}
    after = {}
    for package in read_packages(folders):
        if package.name in moved:
            apart |= written_files(package, staging).keys()
        else:
            after[package.name] = package.version
    present = read_packages(place.packages_folders)
    returning = journal.packages.keys() - moved
    return plan_change(
        place,
        comes={name: files[name] for name in files.keys() - apart},
        after=after,
        leaving=[package for package in present if package.name in returning],
        own=set(journal.own) - apart,
    )


def _is_edited_guard(path: Path) -> bool:
    """Whether a file of the guard is no longer ours."""
    is_guard = path.name in GUARD_FILES and os.path.lexists(path)
    return is_guard and not is_own_guard_file(path)
