"""How a person reads what verify found: the devices with their faults, and the measurements, as text and as a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.finding import Finding
    from gpuinstall.verify import Device, Verdict
    from gpuinstall.verify.bench import Bench, BenchChange, DeviceBench, Measurement

STYLES = {"passed": "green", "failed": "red", "unproven": "yellow"}
WORTH_A_WORD = ("ecc", "clocks", "pcie-link", "peer-to-peer", "compile", "build")
PROGRAM_CHECKS = {program.check for program in PROGRAMS}

BAR = 24

CHART_WIDTH, CHART_ROW, CHART_LEFT, CHART_BAR = 860, 26, 230, 380
CHART_STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-weight:bold}"
    ".paper{fill:#fff}.track{fill:#e6e6e6}.bar{fill:#4b8b3b}"
)


def show_verdict(terminal: Terminal, verdict: Verdict, python: Path) -> None:
    """Write a verdict."""
    tested = verdict.environment
    torch = f"torch {tested.torch}" if tested.torch else "no torch"
    terminal.field("Environment", f"{torch} · Python {tested.python} · {python}")
    for device in verdict.devices:
        _show_device(terminal, device)
        for fault in device.faults:
            _show_fault(terminal, fault)
    unproven = [device.label for device in verdict.devices if device.status == "unproven"]
    if unproven:
        terminal.warn(f"unproven: {', '.join(unproven)}; gpuinstall verify proves it when it can be tried")


def _show_device(terminal: Terminal, device: Device) -> None:
    status = terminal.style(device.status, STYLES[device.status])
    name = "" if device.label == device.name else f"{device.name}: "
    terminal.field(device.label, f"{name}{status}{_detail(device)}")
    if terminal.verbose:
        for check in device.checks:
            terminal.line(
                f"  {check.name:<22} {check.status:<8} {check.seconds:7.3f} s  {check.message or ''}".rstrip()
            )
        return
    for check in device.checks:
        left_out = check.name in PROGRAM_CHECKS and check.status == "skipped"
        if (left_out or check.name in WORTH_A_WORD) and check.status != "failed" and check.message:
            terminal.prose(f"  {check.name:<16} {check.message}", 19)


def _detail(device: Device) -> str:
    if device.status == "unproven":
        return f": {device.unproven}"
    count = {
        status: sum(check.status == status for check in device.checks) for status in ("passed", "failed", "skipped")
    }
    if device.status == "failed":
        return f" in {count['failed']} of {len(device.checks)} checks"
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    return f", {count['passed']} checks{skipped}, {sum(check.seconds for check in device.checks):.1f} s"


def _show_fault(terminal: Terminal, fault: Finding) -> None:
    mark = f"   [{fault.id}]" if fault.id else ""
    terminal.prose(f"  {fault.message}{mark}", 4)
    if fault.why:
        terminal.prose(f"    why   {fault.why}", 10)
    for label, command in zip(("do   ", "or   ", "or   "), map(str, fault.fixes), strict=False):
        terminal.line(f"    {label} " + command.removeprefix("or ").replace("\n", "\n" + " " * 10))


def show_bench(terminal: Terminal, bench: Bench) -> None:
    """Write a run."""
    for device in bench.devices:
        terminal.line()
        terminal.field("Measured", f"{device.name}, torch {bench.torch}")
        for measurement in device.measurements:
            terminal.line(_line(measurement))
        for name, reason in device.left_out.items():
            terminal.line(f"  {name:<24} left out: {reason}")


def show_changes(terminal: Terminal, changes: Sequence[BenchChange], earlier: Bench) -> None:
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


def draw_chart(bench: Bench) -> str:
    """Draw one run as a small SVG: one bar a measurement, drawn towards its ceiling."""
    rows = [row for device in bench.devices for row in _chart_rows(device, bench)]
    height = CHART_ROW * (len(rows) + 1)
    drawn = "\n".join(_moved(row, line) for line, row in enumerate(rows))
    size = f'width="{CHART_WIDTH}" height="{height}" viewBox="0 0 {CHART_WIDTH} {height}"'
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{CHART_STYLE}</style>\n{paper}\n{drawn}\n</svg>\n'


def _chart_rows(device: DeviceBench, bench: Bench) -> Iterator[str]:
    yield f'<text class="title" x="10" y="18">{escape(f"{device.name}, torch {bench.torch}")}</text>'
    for measurement in device.measurements:
        yield _chart_bar(measurement)


def _chart_bar(measurement: Measurement) -> str:
    share = measurement.share
    label = f'<text x="10" y="18">{escape(measurement.name)}</text>'
    number = f"{measurement.value:.4g} {measurement.unit}"
    if share is None:
        return f'{label}<text x="{CHART_LEFT}" y="18">{escape(number)}</text>'
    full = f'<rect class="track" x="{CHART_LEFT}" y="6" width="{CHART_BAR}" height="14"/>'
    part = f'<rect class="bar" x="{CHART_LEFT}" y="6" width="{CHART_BAR * min(share, 1.0):.1f}" height="14"/>'
    text = escape(f"{number} of {measurement.ceiling:.4g} ({share:.0%})")
    return f'{label}{full}{part}<text x="{CHART_LEFT + CHART_BAR + 12}" y="18">{text}</text>'


def _moved(row: str, line: int) -> str:
    return f'<g transform="translate(0 {line * CHART_ROW})">{row}</g>'
