"""``gpuinstall export``: write lock files in the formats of other tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os.path import isfile
from pathlib import Path
from typing import Any

from gpuinstall.base.advice import make_change, make_command
from gpuinstall.base.codec import write_object
from gpuinstall.base.config import read_config
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import check_output, write_in_place
from gpuinstall.base.request import Request
from gpuinstall.base.text import join_names
from gpuinstall.catalog import load_catalog
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, define_group
from gpuinstall.cli.terminal import Terminal
from gpuinstall.export.dockerfile import (
    BOOTSTRAP,
    format_dockerfile,
    format_image_dockerfile,
    select_image_locks,
)
from gpuinstall.export.formats import (
    format_conda_environment,
    format_constraints_file,
    format_requirements_file,
)
from gpuinstall.export.needs import MachineNeeds, find_machine_needs
from gpuinstall.export.pins import find_unhashed_packages
from gpuinstall.export.uv_project import format_uv_tables
from gpuinstall.lock.file.entries import LockGate
from gpuinstall.lock.file.fit import check_lock, find_best_lock
from gpuinstall.lock.file.folder import FolderLocks, read_folder_locks, read_lock_file
from gpuinstall.lock.file.lock import Lock
from gpuinstall.lock.request.declaration import read_declaration
from gpuinstall.machine.probe import read_machine
from gpuinstall.plan.values import PlanInput
from gpuinstall.sources import OFFICIAL, read_sources
from gpuinstall.sources.provenance import is_on_pytorch_host
from gpuinstall.sources.requirements_file import join_files
from gpuinstall.sources.sources import validate_torch_index

_LOCK_OPTIONS = ("lock_files", "output")
_EXPORT_HEADER_PATTERN = (
    r"# (From|For pyproject\.toml, from) pylock\."
    r"|# syntax=docker\S+\n# (torch|One image;) "
    r"|pylock\.\S+: torch "
)
"""Pattern for the start of exported files, which may be overwritten."""

export_command, _define_command = define_group("export")


def _add_format_command(name: str, text: str, write: Callable[[Lock], str]) -> None:
    """Add a command that exports one lock file."""

    @_define_command(*_LOCK_OPTIONS, name=name, help=text)
    def export(options: CommandOptions) -> Outcome:
        (lock,) = _read_locks(options, takes_several=False)
        if write is format_conda_environment:
            _check_conda_packages(Path.cwd())
        # Constraints do not select sources or files.
        if write is not format_constraints_file:
            _warn_about_packages(lock, options.terminal)
        return _write_export(name, write(lock), options.output)


_add_format_command(
    "constraints",
    "Write only the versions, for pip -c, uv, and Poetry.",
    format_constraints_file,
)
_add_format_command(
    "requirements",
    "Write requirements with hashes, for pip and uv.",
    format_requirements_file,
)
_add_format_command(
    "conda",
    "Write environment.yml with hashes in its pip section.",
    format_conda_environment,
)


@_define_command(
    *_LOCK_OPTIONS,
    "any_lock",
    "with_servers",
)
def _dockerfile(options: CommandOptions) -> Outcome:
    """Write a Dockerfile that installs the lock file."""
    extras = options.with_servers
    locks = _read_locks(options, takes_several=options.any_lock)
    if options.any_lock:
        if not isfile(BOOTSTRAP):
            options.terminal.warn(
                f"the Dockerfile copies {BOOTSTRAP}, which is not in this folder: "
                f"run make bootstrap in a clone of gpuinstall and copy dist/{BOOTSTRAP} here"
            )
        selected = select_image_locks(locks)
        if len(selected) < len(locks):
            others = [lock.name for lock in locks if lock not in selected]
            options.terminal.warn(
                f"omitted from the image because they are for another platform: {', '.join(others)}"
            )
        return _write_export(
            "dockerfile", format_image_dockerfile(selected, extras), options.output
        )
    if "ssh" in extras:
        message = "--with ssh requires --any"
        raise UsageError("any-missing", message, hint=make_change("--any"))
    return _write_export(
        "dockerfile", format_dockerfile(locks[0], extras), options.output
    )


@_define_command(
    *_LOCK_OPTIONS,
    "torch_index",
)
def _uv(options: CommandOptions) -> Outcome:
    """Write tables for pyproject.toml, with one group per backend."""
    locks = _read_locks(options, takes_several=True)
    wanted = PlanInput(read_machine(), Request(()), load_catalog())
    best = find_best_lock([check_lock(lock, wanted) for lock in locks], wanted)
    # The lock file for this machine is the default.
    locks.sort(key=lambda lock: best is None or lock is not best.lock)
    configured = read_config(Path.cwd()).sourcing.torch_index
    index = validate_torch_index(options.sourcing.torch_index or configured)
    tables = format_uv_tables(locks, index)
    for lock in locks if index == OFFICIAL else ():
        for file in lock.files:
            # Another index may link to files on any server.
            if file.package == "torch" and not is_on_pytorch_host(file.location):
                options.terminal.warn(
                    f"{lock.name} has torch from {file.location.server}, but uv will use {OFFICIAL}; "
                    "add --torch-index URL, or use export requirements"
                )
    return _write_export("uv", tables, options.output)


@_define_command(
    *_LOCK_OPTIONS,
)
def _needs(options: CommandOptions) -> Outcome:
    """Write the minimum driver, CUDA, GPUs, and glibc."""
    needs: list[MachineNeeds] = []
    for lock in _read_locks(options, takes_several=True, gated=False):
        needs += find_machine_needs(lock, load_catalog())
    text = "\n".join(one.text for one in needs)
    entries = list(map(write_object, needs))
    return _write_export("needs", text, options.output, needs=entries)


def _read_locks(
    options: CommandOptions,
    *,
    takes_several: bool,
    gated: bool = True,
) -> list[Lock]:
    """Read the lock files given by ``--lock``, or in the working folder.

    Args:
        options: The options of the command.
        takes_several: Whether the format supports several lock files.
        gated: Whether the format contains package sources, which are checked.

    Raises:
        LockError: No lock file exists, or one cannot be read.
        UsageError: Several lock files exist, but the format supports only one.
    """
    files = tuple(map(read_lock_file, options.lock_files))
    locks = FolderLocks(files) if files else read_folder_locks(Path())
    found = [file.path for file in locks.files]
    if not found:
        raise LockError(
            "lock-missing",
            "this folder has no lock file",
            hint=make_command("lock"),
        )
    if len(found) > 1 and not takes_several:
        fixes = [make_change("--lock", str(path)) for path in found]
        fixes.append(make_change("--any", note="one image for all of these machines"))
        raise UsageError(
            "several-locks",
            f"found several lock files, but this format takes one: {', '.join(map(str, found))}",
            hint=tuple(fixes),
        )
    checked = locks.check()
    if gated:
        _check_sources(dict(zip(found, checked, strict=True)))
    return checked


def _check_sources(locks: Mapping[Path, Lock]) -> None:
    """Raise LockError if a package source in a lock file is rejected."""
    sources = read_sources(None, Path.cwd())
    for path, lock in locks.items():
        declared = read_declaration(path.parent, read_config(path.parent).requirements)
        required = join_files(declared.files.values()).requirements
        LockGate(sources, path.parent, required).check(lock)


def _check_conda_packages(folder: Path) -> None:
    """Raise UsageError if conda packages of a folder would be dropped."""
    declared = read_declaration(folder, read_config(folder).requirements)
    files = join_files(declared.files.values())
    packages = [text for one in files.conda for _, text in one.without_wheel]
    if packages:
        raise UsageError(
            "conda-packages",
            f"{declared.file} has conda packages that are not in the lock file: {join_names(packages)}",
            hint=make_command(
                "export requirements -o locked.txt",
                note=f"and in the pip section of {declared.file}: -r locked.txt",
            ),
        )


def _warn_about_packages(lock: Lock, terminal: Terminal) -> None:
    left_out = find_unhashed_packages(lock)
    for name, words in left_out.items():
        terminal.warn(
            f"{name} was omitted because it has no hash; to install it: pip install --no-deps {words}"
        )
    unserved = [name for name in lock.packages_without_url if name not in left_out]
    if unserved:
        terminal.warn(
            f"{lock.name} has packages from local folders ({', '.join(unserved)}), so the export works only on this machine"
        )


def _write_export(format_: str, text: str, output: Path | None, **more: Any) -> Outcome:
    """Write an exported lock file, and return the command's outcome.

    Args:
        format_: The name of the format.
        text: The exported text.
        output: The file. None: stdout.
        more: Additional keys of the JSON document.

    Raises:
        UsageError: The file exists but was not written by gpuinstall, or it is
            a link that leaves its folder.
    """
    document = {"format": format_, "path": output and str(output), "text": text, **more}
    if output is None:
        return Outcome(document, lambda screen: screen.print_block(text))
    check_output(output)
    if isfile(output):
        with output.open(encoding="utf-8", errors="replace") as stream:
            head = stream.read(200)
        if head and not re.match(_EXPORT_HEADER_PATTERN, head):
            raise UsageError(
                "not-an-export",
                f"{output} already exists and was not written by gpuinstall; not overwriting it",
                hint=make_change("-o", str(output.with_name(f"locked-{output.name}"))),
            )
    write_in_place(output, text)
    return Outcome(document, [("Written", str(output))])
