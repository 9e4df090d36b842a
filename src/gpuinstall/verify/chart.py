"""The measurements as a chart: a small SVG with one bar a measurement, drawn towards its ceiling. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.verify.bench import Bench, Benched, Measurement

WIDTH, ROW, LEFT, BAR = 860, 26, 230, 380
STYLE = (
    "text{font:13px sans-serif;fill:#222}.title{font-weight:bold}"
    ".paper{fill:#fff}.track{fill:#e6e6e6}.bar{fill:#4b8b3b}"
)


def chart(bench: Bench) -> str:
    """Draw one run."""
    rows = [row for device in bench.devices for row in _rows(device, bench)]
    height = ROW * (len(rows) + 1)
    drawn = "\n".join(_moved(row, place) for place, row in enumerate(rows))
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<style>{STYLE}</style>\n{paper}\n{drawn}\n</svg>\n'


def _rows(device: Benched, bench: Bench) -> Iterator[str]:
    yield f'<text class="title" x="10" y="18">{escape(f"{device.name}, torch {bench.torch}")}</text>'
    for measurement in device.measurements:
        yield _bar(measurement)


def _bar(measurement: Measurement) -> str:
    share = measurement.share
    label = f'<text x="10" y="18">{escape(measurement.name)}</text>'
    number = f"{measurement.value:.4g} {measurement.unit}"
    if share is None:
        return f'{label}<text x="{LEFT}" y="18">{escape(number)}</text>'
    full = f'<rect class="track" x="{LEFT}" y="6" width="{BAR}" height="14"/>'
    part = f'<rect class="bar" x="{LEFT}" y="6" width="{BAR * min(share, 1.0):.1f}" height="14"/>'
    text = escape(f"{number} of {measurement.ceiling:.4g} ({share:.0%})")
    return f'{label}{full}{part}<text x="{LEFT + BAR + 12}" y="18">{text}</text>'


def _moved(row: str, place: int) -> str:
    return f'<g transform="translate(0 {place * ROW})">{row}</g>'
