"""What became of locks, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.lock.compare import Change
    from gpuinstall.lock.freshness import Checked
    from gpuinstall.lock.writing import Written


def show_written(terminal: Terminal, made: Sequence[Written], apart: Mapping[str, Mapping[str, str]]) -> None:
    """Write one line a lock, and the packages that they hold in different versions."""
    for each in made:
        count = len(each.lock.pylock.packages)
        terminal.field("Lock", f"{each.path.name}: {count} packages, every file hashed ({each.status})")
        for address in each.private:
            terminal.warn(f"{each.path.name} takes files from {address}: it serves only who can reach that")
    why = next((each.apart for each in made if each.apart), None)
    for package, versions in apart.items():
        held = ", ".join(f"{version} for {target}" for target, version in versions.items())
        terminal.field("Apart", f"{package}: {held}")
    if apart and why:
        terminal.field("", why)


def show_checked(terminal: Terminal, checked: Sequence[Checked]) -> None:
    """Write one line a lock: fresh, or stale and why."""
    for each in checked:
        terminal.field("Lock", f"{each.lock.name} is {'stale' if each.reasons else 'fresh'}")
        for reason in each.reasons:
            terminal.line(f"{'':11} {reason.message}")


def show_changes(terminal: Terminal, changes: Sequence[Change]) -> None:
    """Write one line a package that differs."""
    for change in changes:
        terminal.line(str(change))
    if not changes:
        terminal.line("the two locks hold the same")
