"""``gpuinstall env``: list, roll back, and remove environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuinstall.base.advice import make_command
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.files import display_path, has_text, leads_outside, real_path
from gpuinstall.base.removal import tree_size
from gpuinstall.base.text import format_size, join_names, split_names
from gpuinstall.base.values import asdict
from gpuinstall.cli.commands import format_hint
from gpuinstall.cli.install import find_trusted_interpreter, format_activation_command
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, Row, confirm, define_group
from gpuinstall.environments.environment import (
    find_added_packages,
    package_versions,
    read_marker,
)
from gpuinstall.environments.guard import update_uv_guard
from gpuinstall.environments.ownership import is_environment
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import (
    check_finished,
    find_recorded_environments,
    find_undoable_environments,
    find_unfinished_change,
    locate_environment,
    make_undo_command,
)
from gpuinstall.install.environment_lock import undo_change
from gpuinstall.install.journal import describe_journal, read_journal
from gpuinstall.install.removal import (
    find_prunable,
    find_removable,
    find_removed_files,
    prune,
    remove,
)
from gpuinstall.install.state import inspect_environment
from gpuinstall.install.unmanaged import inspect_unmanaged
from gpuinstall.lock.file.lock import compare_versions
from gpuinstall.lock.request.history import read_environment_lock

env_command, _define_command = define_group("env")


@_define_command()
def _list(options: CommandOptions) -> Outcome:
    """List environments that gpuinstall created or changed, with sizes."""
    # env remove also accepts an environment that was copied with the folder.
    venvs = set(find_recorded_environments())
    here = options.read_paths(is_read_only=True).venv
    if read_marker(here):
        venvs.add(here)
    environments = []
    rows: list[Row] = []
    for venv in sorted(venvs):
        paths = locate_environment(venv)
        existing = inspect_environment(paths)
        environment = {
            **_describe_environment(venv),
            "status": existing.verdict.get("status"),
            "bytes": tree_size(venv),
            "rollback": describe_journal(paths.last_change),
            "unfinished": paths.has_unfinished_change(),
        }
        environments.append(environment)
        size = format_size(environment["bytes"])
        text = "torch {torch} · Python {python} · {status}".format(**environment)
        rows.append((display_path(venv), f"{text} · {size}"))
        unfinished = find_unfinished_change(venv)
        texts = [existing.find_changed_build()]
        if unfinished:
            texts.append(f"{unfinished.message}; {format_hint(unfinished.fixes[0])}")
        if environment["rollback"]:
            size = format_size(environment["rollback"]["bytes"])
            texts.append(f"{size} for {format_hint(make_undo_command(paths))}")
        rows += [("", text) for text in texts if text]
    others = find_undoable_environments()
    for other in others:
        undo = format_hint(make_undo_command(other))
        text = f"changed by install --into; {undo}"
        if _is_rolled_back(other):
            text = "restored by env rollback; env prune removes its rollback data"
        rows.append((display_path(other.venv), text))
    data = {
        "environments": environments,
        "others": [str(other.venv) for other in others],
    }
    rows = rows or [("None", make_command("install", note="creates an environment"))]
    return Outcome(data, rows, is_always_printed=True)


def _is_rolled_back(paths: EnvironmentPaths) -> bool:
    """Return whether the last change of an environment was undone."""
    journal = read_journal(paths.last_change)
    return journal is not None and (journal.is_rollback or journal.is_from_previous)


def _describe_environment(venv: Path) -> dict[str, Any]:
    marker = read_marker(venv)
    return {
        "path": str(venv),
        "python": marker and marker.python,
        "torch": marker and marker.torch,
        "backend": marker and marker.backend,
    }


@_define_command(
    "venv",
    "into",
    "interpreter",
)
def _rollback(options: CommandOptions) -> Outcome:
    """Undo the last change to an environment. A second rollback redoes it."""
    place = options.read_paths()
    # --python selects only unmanaged environments.
    if options.into or options.interpreter:
        python = find_trusted_interpreter(options, options.interpreter)
        place = inspect_unmanaged(python)
    is_interrupted = place.has_unfinished_change()
    before = undo_change(place, options.terminal)
    if not place.is_managed:
        update_uv_guard(place.venv)
    now = package_versions(read_packages(place.find_packages_folders()))
    marker = read_marker(place.venv)
    changes = compare_versions(before, now)
    text = " (not created by gpuinstall)"
    if marker:
        lock = read_environment_lock(place.venv)
        file = real_path(place.folder / marker.lock)
        is_restored = lock and has_text(file, lock.text)
        restored = "restored" if is_restored else "did not restore"
        torch = now.get("torch", "none")
        text = f" · torch {torch} · Python {marker.python}; {restored} {marker.lock}"
    elif not place.is_managed:
        text = f" · torch {now.get('torch', 'none')}"
    rows: list[Row] = [
        ("Changes", join_names(list(map(str, changes))) or "no version changes"),
        ("Environment", f"{display_path(place.venv)}{text}"),
    ]
    # After an interrupted change, the last journal is of an earlier one.
    if not is_interrupted:
        rows.append(("Undo", make_undo_command(place, "undoes this rollback")))
    if place.is_managed and is_environment(place.venv):
        rows.append(("Ready", format_activation_command(place.venv)))
    data = {
        "environment": _describe_environment(place.venv),
        "changes": [*map(asdict, changes)],
        "verdict": marker and marker.verdict,
    }
    return Outcome(data, rows)


@_define_command(
    "venv",
    "yes",
)
def _remove(options: CommandOptions) -> Outcome:
    """Remove an environment and its rollback data. Lock files are kept."""
    paths = options.read_paths()
    if not options.yes:
        check_finished(paths.venv)
        _confirm_removal(find_removable(paths), find_added_packages(paths.venv))
    removed = remove(paths, options.terminal, command_folder=options.command_folder)
    return _make_removal_outcome(removed)


@_define_command(
    "yes",
)
def _prune(options: CommandOptions) -> Outcome:
    """Remove the rollback data of all environments."""
    folders = find_prunable()
    if folders and not options.yes:
        _confirm_removal(folders)
    return _make_removal_outcome(prune(options.terminal))


def _confirm_removal(folders: Mapping[Path, int], packages: Sequence[str] = ()) -> None:
    """Ask the user to confirm the removal of folders.

    Args:
        folders: The folders and their sizes in bytes.
        packages: The packages in the folders that no lock file contains.

    Raises:
        UsageError: The user declines.
    """
    places = []
    for folder, size in folders.items():
        path = display_path(folder)
        # A folder above the shell's is named by its whole path.
        path = str(folder) if leads_outside(path) else path
        places.append(f"{path} ({format_size(size)})")
    names = " and ".join(places)
    if packages:
        names += f"; packages in no lock file: {', '.join(packages)}"
    files = [
        display_path(folder / file)
        for folder in folders
        for file in find_removed_files(folder)
    ]
    details = [f"your own files: {text}" for text in split_names(files)]
    confirm(f"Remove {names}?", f"nothing was removed: {names}", details)


def _make_removal_outcome(folders: Mapping[Path, int]) -> Outcome:
    """Return a command outcome that lists removed folders and their sizes."""
    rows = [
        ("Removed", f"{display_path(folder)}, {format_size(size)}")
        for folder, size in folders.items()
    ]
    entries = [{"path": str(folder), "bytes": size} for folder, size in folders.items()]
    return Outcome({"removed": entries}, rows or [("Removed", "nothing")])
