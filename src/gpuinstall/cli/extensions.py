"""``gpuinstall extensions``: which prebuilt files there are of flash-attn and its like, and why not the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from packaging.utils import canonicalize_name

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.extensions.rows import Extension, load_extensions
from gpuinstall.project import open_project
from gpuinstall.sourcing import Sourcing
from gpuinstall.units import readable

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.extensions.choice import ExtensionChoice
    from gpuinstall.plan import Plan

SHOWN = 3
"""How many of the files for this platform that were passed over to show."""


@click.command(
    "extensions", help="Show which prebuilt GPU extensions load here, and with which torch."
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.machine_options
@click.option(
    "--python", envvar="GPUINSTALL_PYTHON", metavar="X.Y", help="The Python version to look for."
)
@click.option("--all", "everything", is_flag=True, help="Show every rejected file, and why.")
@options.extension_sources
@options.torch_index
@framed("extensions")
def command(
    terminal: Terminal,
    names: tuple[str, ...],
    machine: options.MachineOptions,
    *,
    python: str | None,
    everything: bool,
    extension_sources: tuple[str, ...],
    torch_index: str | None,
) -> Outcome:
    """Show extensions."""
    if not names:
        known = load_extensions().rows.values()
        rows = [
            {"name": row.name, "sources": [one.id for one in row.sources], "lowest": row.lowest}
            for row in known
        ]
        return Outcome({"known": rows}, lambda screen: _show_rows(rows, screen))
    from gpuinstall.lock.prebuilt import choose_prebuilt, extension_row
    from gpuinstall.lock.request import LockRequest

    sourcing = Sourcing(torch_index, extension_sources)
    request = options.RequestOptions(("torch",), python=python, sourcing=sourcing)
    settings = options.read_settings(request, machine, terminal)
    with open_project(Path.cwd(), settings, terminal) as project:
        wanted = [extension_row(canonicalize_name(name), project.session) for name in names]
        asked = LockRequest(project.machine, project.request, project.catalog)
        plan = asked.plan
        choices = [choose_prebuilt(extension, asked, project.session) for extension in wanted]
    found = [
        _shown_choice(extension, choice, plan)
        for extension, choice in zip(wanted, choices, strict=True)
    ]
    return Outcome(
        {"extensions": found}, lambda screen: _show(found, screen, everything=everything)
    )


def _shown_choice(extension: Extension, choice: ExtensionChoice, plan: Plan) -> dict[str, Any]:
    file: dict[str, Any] | None = None
    if fit := choice.fit:
        wheel = fit.file.wheel
        file = {
            "version": str(wheel.version),
            "source": fit.file.source.id,
            "file": wheel.filename,
            "url": wheel.url,
        }
        file |= {
            "sha256": wheel.sha256,
            "size": fit.row.size,
            "torch": fit.build.name,
            "read": fit.row.to_dict(),
        }
    rejected = []
    for rejection in choice.rejected:
        passed_over, build = rejection.candidate
        named = {
            "file": passed_over.wheel.filename,
            "source": passed_over.source.id,
            "torch": build.name,
        }
        rejected.append(named | rejection.reason._asdict())
    refusal = choice.refusal and choice.refusal._asdict()
    without = plan.choice.build.name
    return {
        "name": extension.name,
        "fit": file,
        "refusal": refusal,
        "without": without,
        "rejected": rejected,
    }


def _show(found: list[dict[str, Any]], screen: Terminal, *, everything: bool) -> None:
    for row in found:
        fit, refusal = row["fit"], row["refusal"]
        if fit:
            screen.line(f"{row['name']} {fit['version']} beside torch {fit['torch']}")
            code = " ".join(fit["read"]["architectures"]) or "GPU architectures not listed"
            screen.prose(
                f"  {fit['file']} ({readable(fit['size'])}) from {fit['source']}: {code}", 4
            )
            if fit["torch"] != row["without"]:
                screen.prose(f"  without it torch {row['without']} would run here", 4)
        elif refusal or row["rejected"]:
            screen.prose(
                f"{row['name']}: {refusal['message'] if refusal else 'no prebuilt file runs here'}",
                2,
            )
        else:
            screen.prose(f"{row['name']}: no reachable source has a file for it", 2)
        here = [file for file in row["rejected"] if file["code"] != "other-platform"]
        for file in row["rejected"] if everything else here[:SHOWN]:
            screen.prose(f"  rejected {file['file']}: {file['message']}", 4)


def _show_rows(rows: list[dict[str, Any]], screen: Terminal) -> None:
    for row in rows:
        lowest = f"; needs compute capability {row['lowest']}" if row["lowest"] else ""
        screen.line(f"{row['name']:<26} {', '.join(row['sources']) or 'no prebuilt files'}{lowest}")
