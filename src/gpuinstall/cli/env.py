"""``gpuinstall env``: the environments that were made here: to list them, to take the last change back, to remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.base.environment_paths import EnvironmentPaths, venv_option
from gpuinstall.base.files import display_path
from gpuinstall.base.removal import size_of
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import readable, some
from gpuinstall.cli.install import (
    activation_command,
    interpreter_of_others,
    undo_command,
)
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, Row, confirm, framed
from gpuinstall.environments.environment import read_marker
from gpuinstall.project import Project

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


command = click.Group(
    "env", help="List, restore and remove the environments made by gpuinstall."
)


@framed("list", "List your environments and those of this folder.", group=command)
def _list(_options: CommandOptions) -> Outcome:
    from gpuinstall.environments.records import changed_by_into, remembered
    from gpuinstall.install.journal import journal_entry

    venvs = set(remembered())
    here = EnvironmentPaths.at(Path(".venv")).venv
    if read_marker(here):
        venvs.add(here)
    environments = []
    rows: list[Row] = []
    for venv in sorted(venvs):
        paths, marker = EnvironmentPaths(venv), read_marker(venv)
        environment = {
            **_environment(venv),
            "status": marker and marker.verdict.get("status"),
            "bytes": size_of(venv),
            "rollback": journal_entry(paths.last_change),
            "unfinished": paths.is_unfinished,
        }
        environments.append(environment)
        size = readable(environment["bytes"])
        text = "torch {torch} · Python {python} · {status}".format(**environment)
        rows.append((display_path(venv), f"{text} · {size}"))
        if environment["rollback"]:
            size = readable(environment["rollback"]["bytes"])
            rows.append(("", f"{size} for {undo_command(paths)}"))
        if environment["unfinished"]:
            sync = f"gpuinstall sync{venv_option(venv)}"
            text = f"a change was not finished; {sync} finishes it, or puts it back"
            rows.append(("", text))
    others = changed_by_into()
    for other in others:
        undo = f"gpuinstall env rollback --into --venv {quoted(other.venv)}"
        rows.append((display_path(other.venv), f"changed by install --into; {undo}"))
    if not rows:
        rows.append(("None", "gpuinstall install makes one"))
    data = {
        "environments": environments,
        "others": [str(other.venv) for other in others],
    }
    return Outcome(data, rows, is_listing=True)


def _environment(venv: Path) -> dict[str, Any]:
    marker = read_marker(venv)
    return {
        "path": str(venv),
        "python": marker and marker.python,
        "torch": marker and marker.torch,
        "backend": marker and marker.backend,
    }


@framed(
    "rollback",
    "Take the last change of the environment and its lock back.",
    "venv",
    "into",
    "python_path",
    "replace",
    group=command,
)
def _rollback(options: CommandOptions) -> Outcome:
    with options.open() as project:
        # Ours is named by its folder: a Python is named only of an environment that others made.
        if options.into or options.python_path:
            python = interpreter_of_others(options.python_path, options.environment)
            return _restore_others(python, project, takes_over=options.replace)
        return _restore(project, takes_over=options.replace)


def _restore(project: Project, *, takes_over: bool) -> Outcome:
    """Take the last change of an environment of ours back."""
    from gpuinstall.environments.environment import installed_packages
    from gpuinstall.environments.ownership import is_environment
    from gpuinstall.install.hold import take_back

    paths = project.paths
    before = installed_packages(paths.venv)
    take_back(paths, project.reporter, takes_over=takes_over)
    marker = read_marker(paths.venv)
    text = ", which gpuinstall did not make"
    if marker:
        text = (
            f" · torch {marker.torch} · Python {marker.python}; {marker.lock}, restored"
        )
    rows = [
        ("Environment", f"{display_path(paths.venv)}{text}"),
        ("Undo", undo_command(paths)),
    ]
    if is_environment(paths.venv):
        rows.append(("Ready", activation_command(paths.venv)))
    return _restored(
        _environment(paths.venv),
        before,
        installed_packages(paths.venv),
        rows,
        verdict=marker.verdict if marker else None,
    )


def _restore_others(
    python: Path,
    project: Project,
    *,
    takes_over: bool,
) -> Outcome:
    """Take the last change of an environment of others back."""
    from gpuinstall.environments.guard import renew_uv_guard
    from gpuinstall.install.foreign import inspect_foreign
    from gpuinstall.install.hold import take_back

    before = inspect_foreign(python)
    take_back(before.place, project.reporter, takes_over=takes_over)
    renew_uv_guard(before.prefix)
    now = inspect_foreign(before.python)
    torch = now.versions.get("torch", "")
    environment = {
        "path": str(now.prefix),
        "python": now.version,
        "torch": torch,
        "backend": torch.partition("+")[2],
    }
    text = f"torch {torch or 'none'} · Python {now.version}, as it was before"
    rows = [("Environment", f"{display_path(now.prefix)} · {text}")]
    return _restored(environment, before.versions, now.versions, rows)


def _restored(
    environment: dict[str, Any],
    before: Mapping[str, str],
    now: Mapping[str, str],
    rows: Sequence[Row],
    *,
    verdict: dict[str, Any] | None = None,
) -> Outcome:
    """Return the outcome of a change that was taken back.

    Args:
        environment: What lies there now, as documents have it.
        before: The versions of its packages before.
        now: Those that it has now.
        rows: What a person reads besides.
        verdict: The Verdict document of its proof; None if it has none of ours.
    """
    from gpuinstall.lock.file.lock import compare_versions

    changes = compare_versions(before, now)
    data = {
        "environment": environment,
        "changes": [change._asdict() for change in changes],
        "verdict": verdict,
    }
    words = some(list(map(str, changes))) or "no version changes"
    return Outcome(data, [("Changes", words), *rows])


@framed(
    "remove",
    "Remove the environment, with packages that pip or uv added, and its last change; keep the locks.",
    "venv",
    "yes",
    group=command,
)
def _remove(options: CommandOptions) -> Outcome:
    from gpuinstall.install.removal import find_removable, remove

    paths = EnvironmentPaths.at(options.environment)
    if not options.yes:
        _confirm(find_removable(paths, with_packages=False))
    return _removed(remove(paths, options.terminal, with_packages=options.yes))


@framed(
    "prune",
    "Remove what env rollback would bring back, and the environments of scripts in the cache.",
    "yes",
    group=command,
)
def _prune(options: CommandOptions) -> Outcome:
    from gpuinstall.install.removal import find_prunable, prune

    folders = find_prunable()
    if folders and not options.yes:
        _confirm(folders)
    return _removed(prune(options.terminal))


def _confirm(folders: Mapping[Path, int]) -> None:
    """Ask whether to remove folders of so many bytes; raise UsageError if not."""
    places = [
        f"{display_path(folder)} ({readable(size)})" for folder, size in folders.items()
    ]
    names = " and ".join(places)
    confirm(f"Remove {names}?", f"nothing was removed: {names}")


def _removed(folders: Mapping[Path, int]) -> Outcome:
    """Return which folders were removed, with their bytes."""
    rows = [
        ("Removed", f"{display_path(folder)}, {readable(size)}")
        for folder, size in folders.items()
    ]
    entries = [{"path": str(folder), "bytes": size} for folder, size in folders.items()]
    return Outcome({"removed": entries}, rows or [("Removed", "nothing")])
