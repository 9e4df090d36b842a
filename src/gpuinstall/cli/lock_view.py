"""What became of locks, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.lock.check import CheckedLock
    from gpuinstall.lock.compare import TargetDifference, VersionChange
    from gpuinstall.lock.write import Written


def show_written(terminal: Terminal, made: Sequence[Written], apart: Sequence[TargetDifference]) -> None:
    """Write one line a lock, what keeps a lock from being shared, and the packages that they hold apart."""
    for each in made:
        count = len(each.lock.pylock.packages)
        terminal.field("Lock", f"{each.path.name}: {count} packages, every file hashed ({each.status})")
    private: dict[str, list[str]] = {}
    for each in made:
        for source in each.private:
            private.setdefault(source, []).append(each.path.name)
    for source, names in private.items():
        terminal.warn(f"{', '.join(names)}: cannot be shared as it is, only with who can reach {source}")
    for one in apart:
        terminal.field("Apart", f"{one.package} {one.version} for {one.target}: {one.why}")


def show_checked(terminal: Terminal, checked: Sequence[CheckedLock]) -> None:
    """Write one line a lock: fresh, or stale and why."""
    for each in checked:
        terminal.field("Lock", f"{each.lock.name} is {'stale' if each.reasons else 'fresh'}")
        for reason in each.reasons:
            terminal.line(f"{'':11} {reason.message}")


def show_changes(terminal: Terminal, changes: Sequence[VersionChange]) -> None:
    """Write one line a package that differs."""
    for change in changes:
        terminal.line(str(change))
    if not changes:
        terminal.line("the two locks hold the same")
