"""What an installation came to, as people read it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.environments.jupyter import kernel_folder, kernel_name
from gpuinstall.shell import activation, joined, parent_program, this_shell
from gpuinstall.units import display_path, duration, readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.environments.environment import Marker
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.install import DryRun
    from gpuinstall.install.options import InstallResult
    from gpuinstall.reporter import Reporter


def show_installed(terminal: Terminal, result: InstallResult, environ: Mapping[str, str]) -> None:
    """Write the summary: proof, environment, lock, caches, what was replaced, how to activate it, what it cost."""
    lock, choice = result.fit.lock, result.fit.choice
    venv = display_path(result.paths.venv)
    terminal.field("Proof", _proof(result))
    terminal.field("Environment", f"{venv} · torch {lock.versions['torch']} · Python {choice.python}")
    kept = ", unchanged" if result.lock_change == "unchanged" else ""
    terminal.field("Lock", f"{lock.name}: {len(lock.pylock.packages)} packages, {lock.pinned_by}{kept}")
    if result.bytes:
        terminal.field("Cache", " and ".join(map(display_path, result.caches)))
    if result.previous:
        size = readable(result.previous.bytes)
        terminal.field("Previous", f"{display_path(result.previous.path)}, {size}; undo: gpuinstall install --rollback")
    if kernel_folder(result.paths.venv).exists():
        terminal.field("Jupyter", f"the kernel {kernel_name(result.paths.venv)}")
    for name in (environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")):
        if name and Path(name).resolve() != result.paths.venv:
            terminal.field("Untouched", f"the active environment {name}")
    fetched = f", {readable(result.bytes) if result.bytes else 'nothing'} fetched" if result.change == "built" else ""
    spent = "already up to date" if result.change == "none" else f"{duration(result.seconds)}{fetched}"
    terminal.field("Ready", f"{ready(result.paths.venv)}   {spent}")


def show_dry_run(terminal: Terminal, dry_run: DryRun) -> None:
    """Write what an installation would do and cost, and where it is asked for the commands."""
    priced = dry_run.priced
    for label, text in priced.lines():
        terminal.field(label, text)
    for host, size in priced.bill.sources.items() if priced.bill else ():
        terminal.field("From", f"{readable(size)} from {host}")
    if terminal.verbose:
        for words in dry_run.commands:
            terminal.line(joined(words))
    terminal.field("Dry run", "nothing was changed" if priced.bill else "already up to date")


def warn_of_unproven(reporter: Reporter, result: InstallResult) -> None:
    """Name the devices that no kernel ran on, whatever form the result has."""
    if unproven := [device for device in result.verdict.get("devices", ()) if device["status"] == "unproven"]:
        names = ", ".join(device["name"] for device in unproven)
        reporter.warn(f"unproven: {names}; run gpuinstall verify where the GPUs are")


def show_rolled_back(terminal: Terminal, paths: EnvironmentPaths, marker: Marker) -> None:
    """Say what is in force again."""
    terminal.field("Environment", f"{display_path(paths.venv)} · torch {marker.torch} · Python {marker.python}")
    terminal.field("Lock", f"{marker.lock}, restored")
    terminal.field("Undo", "gpuinstall install --rollback")
    terminal.field("Ready", ready(paths.venv))


def ready(venv: Path) -> str:
    """The line that activates an environment in the shell that we were called from."""
    here = os.path.relpath(venv) if venv.is_relative_to(Path.cwd()) else str(venv)
    return activation(here, this_shell(os.environ, parent_program()), windows=(venv / "Scripts").is_dir())


def _proof(result: InstallResult) -> str:
    """Write ``passed: 2 × NVIDIA GeForce RTX 4090 · driver 535.183.01``, and what is not proven beside it."""
    names: dict[str, Counter[str]] = {}
    for device in result.verdict.get("devices", ()):
        names.setdefault(device["status"], Counter())[device["name"]] += 1
    proofs = [
        f"{status}: " + ", ".join(f"{count} × {name}" if count > 1 else name for name, count in devices.items())
        for status, devices in names.items()
    ]
    driver = result.machine.driver
    return "; ".join(proofs) + (f" · driver {driver.version}" if driver and driver.version else "")
