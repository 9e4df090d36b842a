"""The request of the working folder: its settings, its locks and the command line put together."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

from gpuinstall.requirements_file import PROJECT, RequirementsFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from gpuinstall.cli.options import RequestOptions
    from gpuinstall.config import Config
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.reporter import Reporter


def read_folder_request(
    selected: RequestOptions,
    config: Config,
    folder: Path,
    recorded: FolderRequest,
    *,
    family: Collection[str],
    reporter: Reporter,
    only: bool = False,
    project: bool = False,
) -> FolderRequest:
    """Add what the command line names to the request of ``folder``; with ``only`` that is the whole request.

    A ``project``'s own dependencies count where nothing else is declared, or where they were counted before; not where
    the project itself is asked for, which brings them. Raise UsageError for what is malformed.
    """
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.lock.inputs import changed_inputs, has_place, lines_of, read_dependencies

    files = selected.read()
    placed = {name: said for name, said in files.items() if has_place(name, folder)}
    piped = [said for name, said in files.items() if name not in placed]
    by_hand = functools.reduce(operator.or_, piped, RequirementsFile(selected.by_hand))
    read = lines_of(placed, folder)
    if only:
        return FolderRequest().adding(by_hand, read).following(recorded)
    for reason in changed_inputs({name: recorded.files[name] for name in recorded.files.keys() - read}, folder):
        reporter.warn(f"the lock is not of today's files: {reason.message} (-r reads a file again)")
    own = (project or PROJECT in recorded.files) and not _names_itself(
        (*recorded.requirements, *by_hand.requirements), folder
    )
    declared = config.requirements or (read_dependencies(folder, family) if own else ())
    return recorded.declaring(declared).adding(by_hand, read).following(recorded)


def _names_itself(requirements: Iterable[str], folder: Path) -> bool:
    """Say whether the project of a folder is among what is asked for, as in ``-e .``."""
    from gpuinstall.plan.requirement import parse_requirement

    addresses = (asked.url for asked in map(parse_requirement, requirements) if asked.url)
    return any((folder / address).resolve() == folder.resolve() for address in addresses)
