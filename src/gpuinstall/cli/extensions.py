"""``gpuinstall extensions``: which prebuilt files there are of flash-attn and its like, and why not the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from packaging.utils import canonicalize_name

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.extensions.rows import Extension, ExtensionSource, load_extensions
from gpuinstall.plan import choose
from gpuinstall.plan.values import Refusal
from gpuinstall.project import open_project
from gpuinstall.units import readable

if TYPE_CHECKING:
    from gpuinstall.catalog.build import Build
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.extensions.choice import ExtensionChoice
    from gpuinstall.extensions.rows import ExtensionFile
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.plan import Plan
    from gpuinstall.project import Project

SHOWN = 3
"""How many of the files for this platform that were passed over to show."""


@click.command("extensions", help="Show which prebuilt files of GPU extensions load here, beside which torch.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.machine_options
@click.option("--python", envvar="GPUINSTALL_PYTHON", metavar="X.Y", help="The Python that they are for.")
@click.option(
    "--extension-index", metavar="URL", envvar="GPUINSTALL_EXTENSION_INDEX", help="A mirror of Astral's index."
)
@click.option("--extension-source", "named", multiple=True, metavar="URL", help="A page of files to ask as well.")
@click.option("--all", "everything", is_flag=True, help="Show every file that was passed over, and why.")
@options.torch_index
@framed("extensions")
def command(
    terminal: Terminal,
    names: tuple[str, ...],
    machine: options.MachineOptions,
    *,
    python: str | None,
    extension_index: str | None,
    named: tuple[str, ...],
    everything: bool,
    torch_index: str | None,
) -> Outcome:
    """Show extensions."""
    if not names:
        rows = [_shown_row(row) for row in load_extensions().rows.values()]
        return Outcome({"known": rows}, lambda screen: _show_rows(rows, screen))
    wanted = [_extension(name, extension_index, named) for name in names]
    request = options.RequestOptions(("torch",), python=python, torch_index=torch_index)
    with open_project(Path.cwd(), options.read_settings(request, machine, terminal), terminal) as project:
        plan = choose(project.machine, project.request, project.catalog)
        if isinstance(plan, Refusal):
            raise plan.error(project.machine)
        choices = _choices(wanted, plan, project)
    found = [_shown_choice(extension, choice, plan) for extension, choice in zip(wanted, choices, strict=True)]
    return Outcome({"extensions": found}, lambda screen: _show(found, screen, everything=everything))


def _choices(wanted: list[Extension], plan: Plan, project: Project) -> list[ExtensionChoice]:
    """Ask the sources of each extension, and read what their names speak for."""
    from gpuinstall.extensions.choice import Surroundings, choose_extension
    from gpuinstall.extensions.listing import list_files
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.store import learned_store
    from gpuinstall.lock.target import Target
    from gpuinstall.vendors import rules_for

    build, machine, session = plan.choice.build, project.machine, project.session
    rules, served = (
        rules_for(machine, project.catalog, {build.backend.kind}),
        {run.index for run in plan.gpus if run.runs},
    )
    tags = Target(build.backend.tag, build.os, build.arch).up_to(machine.glibc).tags(plan.choice.python)
    gpus = [(rules, gpu) for gpu in machine.gpus if gpu.index in served]
    here = Surroundings(plan.runnable or (build,), gpus, frozenset(tags), machine.glibc)
    sources = replace(project.sources, default_index=session.default_index)
    reader = Reader(sources, session.client, learned_store(), project.reporter)

    def read(file: ExtensionFile, build: Build) -> LearnedRow:
        return reader.companion(file.wheel, build.backend, f"{build.os}-{build.arch}")

    choices = []
    for extension in wanted:
        listing = list_files(extension, here.builds, sources, session.client)
        for host in listing.silent:
            project.reporter.warn(f"{host} cannot be reached: what it has of {extension.name} is not known")
        choices.append(choose_extension(extension, listing.files, here, read))
    return choices


def _extension(text: str, index: str | None, named: tuple[str, ...]) -> Extension:
    """The row of a name; one that has none comes from the default index alone, as every package does."""
    table, name = load_extensions(), canonicalize_name(text)
    row = table.rows.get(name, Extension(name, (table.sources["default"],)))
    sources = [
        source._replace(url=f"{index.rstrip('/')}/{{backend}}/{{name}}/") if index and source.id == "astral" else source
        for source in row.sources
    ]
    return row._replace(sources=(*sources, *(ExtensionSource("named", 4, False, url) for url in named)))


def _shown_row(row: Extension) -> dict[str, Any]:
    return {"name": row.name, "sources": [source.id for source in row.sources], "lowest": row.lowest}


def _shown_choice(extension: Extension, choice: ExtensionChoice, plan: Plan) -> dict[str, Any]:
    """One extension as the document has it."""
    fit = choice.fit
    file = (
        {
            "version": str(fit.file.wheel.version),
            "source": fit.file.source.id,
            "file": fit.file.wheel.filename,
            "url": fit.file.wheel.url,
            "sha256": fit.file.wheel.sha256,
            "size": fit.row.size,
            "torch": fit.build.name,
            "read": fit.row.to_dict(),
        }
        if fit
        else None
    )
    rejected = [
        {"file": one.file.wheel.filename, "source": one.file.source.id, "torch": one.build.name} | one.reason._asdict()
        for one in choice.rejected
    ]
    refusal = choice.refusal._asdict() if choice.refusal else None
    without = plan.choice.build.name
    return {"name": extension.name, "fit": file, "refusal": refusal, "without": without, "rejected": rejected}


def _show(found: list[dict[str, Any]], screen: Terminal, *, everything: bool) -> None:
    for row in found:
        fit, refusal = row["fit"], row["refusal"]
        if fit:
            screen.line(f"{row['name']} {fit['version']} beside torch {fit['torch']}")
            code = " ".join(fit["read"]["architectures"]) or "no GPU code that it names"
            screen.prose(f"  {fit['file']} ({readable(fit['size'])}) from {fit['source']}: {code}", 4)
            if fit["torch"] != row["without"]:
                screen.prose(f"  without it torch {row['without']} would run here", 4)
        elif refusal or row["rejected"]:
            screen.prose(f"{row['name']}: {refusal['message'] if refusal else 'no prebuilt file runs here'}", 2)
        else:
            screen.prose(f"{row['name']}: no source that answered lists a file of it", 2)
        here = [file for file in row["rejected"] if file["code"] != "other-platform"]
        for file in row["rejected"] if everything else here[:SHOWN]:
            screen.prose(f"  not {file['file']}: {file['message']}", 4)


def _show_rows(rows: list[dict[str, Any]], screen: Terminal) -> None:
    for row in rows:
        lowest = f"; from compute capability {row['lowest']}" if row["lowest"] else ""
        screen.line(f"{row['name']:<26} {', '.join(row['sources']) or 'no prebuilt files'}{lowest}")
