"""``gpuinstall extensions``: which prebuilt files there are of flash-attn and its like, and why not the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from packaging.utils import canonicalize_name

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.extensions.rows import Extension, load_extensions
from gpuinstall.sourcing import Sourcing
from gpuinstall.units import readable

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.extensions.choice import ExtensionChoice, ExtensionFit

SHOWN = 3
"""How many of the files for this platform that were passed over to show."""


@click.command(
    "extensions", help="Show which prebuilt GPU extensions load here, and with which torch."
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.machine_options
@click.option(
    "--python",
    envvar="GPUINSTALL_PYTHON",
    metavar="X.Y",
    help="The Python version to look for.",
)
@click.option("--all", "everything", is_flag=True, help="Show every rejected file, and why.")
@options.extension_search
@framed("extensions")
def command(
    terminal: Terminal,
    names: tuple[str, ...],
    machine: options.MachineOptions,
    *,
    python: str | None,
    everything: bool,
    sourcing: Sourcing,
) -> Outcome:
    """Show extensions."""
    if not names:
        rows = [_known_row(extension) for extension in load_extensions().rows.values()]
        return Outcome({"known": rows}, lambda screen: _show_known(rows, screen))
    from gpuinstall.lock.prebuilt import choose_prebuilt, extension_row
    from gpuinstall.lock.request import LockRequest

    request = options.RequestOptions(("torch",), python=python, sourcing=sourcing)
    rows = []
    with options.open_requested(request, machine, terminal) as project:
        session = project.session
        extensions = [extension_row(canonicalize_name(name), session) for name in names]
        lock_request = LockRequest(project.machine, project.request, project.catalog)
        without = lock_request.plan.choice.build.name
        for extension in extensions:
            choice = choose_prebuilt(extension, lock_request, session)
            rows.append(_choice_row(extension.name, choice, without))
    return Outcome({"extensions": rows}, lambda screen: _show(rows, screen, everything=everything))


def _known_row(extension: Extension) -> dict[str, Any]:
    return {
        "name": extension.name,
        "sources": [source.id for source in extension.sources],
        "lowest": extension.lowest,
    }


def _show_known(rows: list[dict[str, Any]], screen: Terminal) -> None:
    for row in rows:
        lowest = f"; needs compute capability {row['lowest']}" if row["lowest"] else ""
        screen.line(f"{row['name']:<26} {', '.join(row['sources']) or 'no prebuilt files'}{lowest}")


def _choice_row(name: str, choice: ExtensionChoice, without: str) -> dict[str, Any]:
    rejected = []
    for rejection in choice.rejected:
        file, build = rejection.candidate
        rejected.append(
            {
                "file": file.wheel.filename,
                "source": file.source.id,
                "torch": build.name,
                **rejection.reason._asdict(),
            }
        )
    return {
        "name": name,
        "fit": choice.fit and _fit_row(choice.fit),
        "refusal": choice.refusal and choice.refusal._asdict(),
        "without": without,
        "rejected": rejected,
    }


def _fit_row(fit: ExtensionFit) -> dict[str, Any]:
    wheel = fit.file.wheel
    return {
        "version": str(wheel.version),
        "source": fit.file.source.id,
        "file": wheel.filename,
        "url": wheel.url,
        "sha256": wheel.sha256,
        "size": fit.row.size,
        "torch": fit.build.name,
        "read": fit.row.to_dict(),
    }


def _show(rows: list[dict[str, Any]], screen: Terminal, *, everything: bool) -> None:
    for row in rows:
        name, fit, rejected = row["name"], row["fit"], row["rejected"]
        if fit:
            screen.line(f"{name} {fit['version']} beside torch {fit['torch']}")
            code = " ".join(fit["read"]["architectures"]) or "GPU architectures not listed"
            file = f"{fit['file']} ({readable(fit['size'])}) from {fit['source']}"
            screen.prose(f"  {file}: {code}", 4)
            if fit["torch"] != row["without"]:
                screen.prose(f"  without it torch {row['without']} would run here", 4)
        elif row["refusal"]:
            screen.prose(f"{name}: {row['refusal']['message']}", 2)
        elif rejected:
            screen.prose(f"{name}: no prebuilt file runs here", 2)
        else:
            screen.prose(f"{name}: no reachable source has a file for it", 2)
        if not everything:
            rejected = [file for file in rejected if file["code"] != "other-platform"][:SHOWN]
        for file in rejected:
            screen.prose(f"  rejected {file['file']}: {file['message']}", 4)
