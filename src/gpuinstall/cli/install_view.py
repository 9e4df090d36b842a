"""What an installation came to, as people read it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.cli.terminal import duration
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.install.marker import Marker
    from gpuinstall.install.order import Installed
    from gpuinstall.install.place import Place


def show_installed(terminal: Terminal, done: Installed, environ: Mapping[str, str]) -> None:
    """Write the summary: the environment, its lock, what was replaced, how to activate it, seconds and bytes."""
    lock, choice = done.prepared.lock, done.prepared.choice
    venv = shortened(done.place.venv)
    terminal.field("Environment", f"{venv} · torch {lock.versions['torch']} · Python {choice.python}")
    terminal.field("Lock", f"{lock.name}: {len(lock.pylock.packages)} packages, every file hashed{_kept(done)}")
    if done.previous:
        size = readable(done.previous.bytes)
        terminal.field("Previous", f"{shortened(done.previous.path)}, {size}; back: gpuinstall install --rollback")
    for name in _others(done.place, environ):
        terminal.field("Untouched", f"the active environment {name}")
    terminal.field("Ready", f"{activation(done.place.venv)}   {_spent(done)}")
    if unproven := [device for device in done.verdict.get("devices", ()) if device["status"] == "unproven"]:
        names = ", ".join(device["name"] for device in unproven)
        terminal.warn(f"unproven: {names}; where the GPUs are, gpuinstall verify proves it")


def show_rolled_back(terminal: Terminal, place: Place, marker: Marker) -> None:
    """Say what is in force again."""
    terminal.field("Environment", f"{shortened(place.venv)} · torch {marker.torch} · Python {marker.python}")
    terminal.field("Lock", f"{marker.lock}, as it was then")
    terminal.field("Ready", f"{activation(place.venv)}   forth again: gpuinstall install --rollback")


def activation(venv: Path) -> str:
    """The command that activates an environment."""
    return (
        rf"{shortened(venv)}\Scripts\activate"
        if (venv / "Scripts").is_dir()
        else f"source {shortened(venv)}/bin/activate"
    )


def shortened(path: Path) -> str:
    """Write a path from the working folder where it lies below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _kept(done: Installed) -> str:
    return ", as it was" if done.lock_change == "unchanged" else ""


def _spent(done: Installed) -> str:
    if done.change == "none":
        return "nothing had changed"
    fetched = f", {readable(done.prepared.bytes)} fetched" if done.change == "built" else ""
    return f"{duration(done.seconds)}{fetched}"


def _others(place: Place, environ: Mapping[str, str]) -> list[str]:
    """The environments that are active and are not the one installed into."""
    active = (environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX"))
    return [name for name in active if name and Path(name).resolve() != place.venv]
