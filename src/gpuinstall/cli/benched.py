"""How a person reads measurements: a number, a bar towards the ceiling, and what changed since an earlier run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.verify.bench import Bench, Measurement
    from gpuinstall.verify.comparison import Change

BAR = 24


def show_bench(terminal: Terminal, bench: Bench) -> None:
    """Write a run."""
    for device in bench.devices:
        terminal.line()
        terminal.field("Measured", f"{device.name}, torch {bench.torch}")
        for measurement in device.measurements:
            terminal.line(_line(measurement))
        for name, reason in device.left_out.items():
            terminal.line(f"  {name:<24} left out: {reason}")


def show_changes(terminal: Terminal, changes: Sequence[Change], earlier: Bench) -> None:
    """Write what changed since an earlier run, the slower in red."""
    names = ", ".join(device.name for device in earlier.devices)
    other = "" if changes else ": it measured nothing that was measured now"
    terminal.line()
    terminal.field("Against", f"{names}, torch {earlier.torch}{other}")
    for change in changes:
        text = f"  {change.name:<24} {change.before:>10.4g} → {change.now:<10.4g} {change.unit:<8} {change.gain:+.0%}"
        terminal.line(terminal.style(text, "red") if change.worse else text)


def _line(measurement: Measurement) -> str:
    text = f"  {measurement.name:<24} {measurement.value:>10.4g} {measurement.unit:<8}"
    if measurement.settings:
        return f"{text} with {', '.join(f'{key}={value}' for key, value in measurement.settings.items())}"
    if measurement.share is None:
        return text.rstrip()
    filled = round(BAR * min(measurement.share, 1.0))
    return f"{text} {'█' * filled}{'░' * (BAR - filled)} {measurement.share:.0%} of {measurement.ceiling:.4g}"
