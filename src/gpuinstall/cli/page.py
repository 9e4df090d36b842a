"""``gpuinstall page``: the selector page, one file that anyone can open or host."""

from __future__ import annotations

from pathlib import Path

import click

from gpuinstall.catalog import load_catalog
from gpuinstall.cli.options import PATH
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.units import display_path


@click.command("page", help="Write one HTML file that shows which PyTorch runs on which GPU.")
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    metavar="PATH",
    help="The file to write, such as gpus.html, or the folder for index.html.",
)
@framed("page")
def command(terminal: Terminal, output: Path) -> Outcome:
    """Write the page."""
    from gpuinstall.files import written
    from gpuinstall.page import selector_page

    terminal.wait("planning for every kind of GPU and driver")
    place = page_file(output)
    # Opened before the planning, so that a file that cannot be written costs no time.
    with written(place) as file:
        size = file.write(selector_page(load_catalog()).encode())
    line = f"{display_path(place)}, {size // 1000} kB"
    data = {"path": str(place), "bytes": size}
    return Outcome(data, lambda screen: screen.field("Written", line))


def page_file(output: Path) -> Path:
    """Return the file that ``--output`` means: itself if it is named like a page, else one in that folder."""
    if output.suffix.lower() in {".html", ".htm"} and not output.is_dir():
        return output
    return output / "index.html"
