"""``gpuinstall install --into``: torch put into an environment that others made."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome
from gpuinstall.cli.probe import machine_line
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import UsageError
from gpuinstall.units import display_path, duration, readable

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.into import IntoResult

_VERSION = re.compile(r"\d+(\.\d+){0,2}t?")


def is_path(python: str | None) -> bool:
    """Say whether ``--python`` names an interpreter and not a version."""
    return python is not None and not _VERSION.fullmatch(python)


def check_not_a_path(python: str | None) -> None:
    """Raise UsageError where ``--python`` names an interpreter, whose environment would not be ours to replace."""
    if is_path(python):
        raise UsageError(
            "python-is-a-path",
            f"--python {python} names the interpreter of an environment that is there",
            hint=f"gpuinstall install --into --python {shlex.quote(python or '')}   puts torch into it\n"
            "gpuinstall install --python 3.12   makes an environment of that Python",
        )


def kernel_elsewhere(python: str | None, venv: Path) -> UsageError:
    """That an environment of others gets no Jupyter kernel of ours, and the commands that make it one of its own."""
    named = shlex.quote((python or "") if is_path(python) else str(interpreter(venv)))
    hint = f"{named} -m pip install ipykernel, then {named} -m ipykernel install --user --name NAME"
    return UsageError("jupyter-elsewhere", "--jupyter is for the environments that gpuinstall makes", hint=hint)


def put_into(
    terminal: Terminal,
    request: options.RequestOptions,
    machine: options.MachineOptions,
    venv: Path,
    *,
    dry_run: bool,
    wait: float,
    code_check: bool,
    only_binary: bool,
    offline: bool,
) -> Outcome:
    """Put torch into an environment that others made."""
    from gpuinstall.install.into import IntoOptions, dry_run_into, install_into
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.session import open_session
    from gpuinstall.sources import read_sources

    python, config = find_interpreter(request.python, venv), options.read_project_config()
    asked = options.build_request(request._replace(python=None), config, machine=machine)
    meant = options.read_selected_machine(machine, terminal)
    terminal.step("Machine", machine_line(meant))
    here = None if machine.is_other or (asked.is_for_gpus and not meant.gpus) else meant
    sources = read_sources(request.torch_index, os.environ, Path.cwd(), configured=config.torch_index)
    catalog = replace(known_catalog(sources.torch_index), torch_index=sources.torch_index)
    wanted = IntoOptions(python, meant, here, replace(asked, managed_pythons=False), wait)
    opened = open_session(sources, terminal, offline=offline, code_check=code_check, only_binary=only_binary)
    with opened as session:
        done = (dry_run_into if dry_run else install_into)(wanted, catalog, session)
    return Outcome(done.to_dict(), lambda screen: show(screen, done))


def find_interpreter(python: str | None, venv: Path) -> Path:
    """The interpreter that ``--python`` or ``--venv`` means; raise UsageError where there is none."""
    if is_path(python):
        found = shutil.which(python or "")
        if found is None:
            raise UsageError("python-missing", f"there is no interpreter {python}", hint="check the path")
        return Path(found).absolute()
    folder = venv.absolute()
    for path in (interpreter(folder), folder / "bin" / "python", folder / "python.exe"):
        if path.is_file():
            return path
    raise UsageError(
        "environment-missing", f"there is no environment at {venv}", hint="--python PATH or --venv DIR names another"
    )


def show(terminal: Terminal, done: IntoResult) -> None:
    """Write what came of it."""
    torch = done.found.lock.versions["torch"]
    terminal.field(
        "Environment", f"{display_path(done.environment.prefix)} · torch {torch} · Python {done.environment.version}"
    )
    if done.verdict is None:
        terminal.field("Dry run", f"{len(done.changes)} packages would change; nothing was")
        return
    terminal.field("Proof", str(done.verdict["status"]))
    spent = f"{duration(done.seconds)}, {readable(done.bytes) if done.bytes else 'nothing'} fetched"
    terminal.field("Ready", f"{shlex.quote(str(done.environment.python))}   {spent}")
