"""``gpuinstall extensions``: which prebuilt files there are of flash-attn and its like, and why not the others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from packaging.utils import canonicalize_name

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.errors import NoBuildError
from gpuinstall.extensions.rows import Extension, ExtensionSource, load_extensions
from gpuinstall.plan import choose
from gpuinstall.plan.values import error_of
from gpuinstall.units import readable

if TYPE_CHECKING:
    from gpuinstall.catalog.build import Build
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.extensions.choice import ExtensionChoice, Surroundings
    from gpuinstall.extensions.rows import ExtensionFile
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice

SHOWN = 3
"""How many of the files that were passed over to show, those of this platform first."""


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
    config, meant = options.read_project_config(), options.read_selected_machine(machine, terminal)
    request = options.build_request(options.RequestOptions(("torch",), python=python), config, machine=machine)
    from gpuinstall.learned.store import known_catalog

    plan = choose(meant, request, known_catalog())
    if (choice := plan.choice) is None:
        raise error_of(plan, meant) or NoBuildError("refused", "no build fits")
    wanted = [_extension(name, extension_index, named) for name in names]
    choices = _choices(wanted, _surroundings(plan, choice, meant), terminal, torch_index or config.torch_index)
    found = [_shown_choice(extension, choice, plan) for extension, choice in zip(wanted, choices, strict=True)]
    return Outcome({"extensions": found}, lambda screen: _show(found, screen, everything=everything))


def _surroundings(plan: Plan, choice: Choice, machine: Machine) -> Surroundings:
    """What the extensions have to run in: the builds that run on the GPUs, with those that the choice serves."""
    from gpuinstall.catalog import load_catalog
    from gpuinstall.extensions.choice import Surroundings
    from gpuinstall.lock.target import Target
    from gpuinstall.vendors import rules_for

    build, served = choice.build, {run.index for run in plan.gpus if run.how != "none"}
    rules = rules_for(machine, load_catalog(), {build.backend.kind})
    gpus = [(rules, gpu) for gpu in machine.gpus if gpu.index in served]
    tags = Target(build.backend.tag, build.os, build.arch).up_to(machine.glibc).tags(choice.python)
    return Surroundings(plan.runnable or (build,), gpus, frozenset(tags), machine.glibc)


def _choices(
    wanted: list[Extension], here: Surroundings, terminal: Terminal, torch_index: str | None
) -> list[ExtensionChoice]:
    """Ask the sources of each, and read what their names speak for."""
    from gpuinstall.extensions.choice import choose_extension
    from gpuinstall.extensions.listing import list_files
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.store import learned_store
    from gpuinstall.session import open_session
    from gpuinstall.sources import read_sources

    choices = []
    with open_session(read_sources(torch_index, os.environ, Path.cwd()), terminal) as session:
        sources = replace(session.sources, default_index=session.default_index)
        reader = Reader(sources, session.client, learned_store(), terminal)

        def read(file: ExtensionFile, build: Build) -> LearnedRow:
            return reader.companion(file.wheel, build.backend, f"{build.os}-{build.arch}")

        for extension in wanted:
            listing = list_files(extension, here.builds, sources, session.client)
            for host in listing.silent:
                terminal.warn(f"{host} cannot be reached: what it has of {extension.name} is not known")
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
        for one in sorted(choice.rejected, key=lambda one: one.reason.code == "other-platform")
    ]
    refusal = choice.refusal._asdict() if choice.refusal else None
    best = plan.choice.build.name if plan.choice else None
    return {"name": extension.name, "fit": file, "refusal": refusal, "without": best, "rejected": rejected}


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
            screen.prose(f"{row['name']}: no prebuilt file is listed", 2)
        for file in row["rejected"] if everything else row["rejected"][:SHOWN]:
            screen.prose(f"  not {file['file']}: {file['message']}", 4)


def _show_rows(rows: list[dict[str, Any]], screen: Terminal) -> None:
    for row in rows:
        lowest = f"; from compute capability {row['lowest']}" if row["lowest"] else ""
        screen.line(f"{row['name']:<26} {', '.join(row['sources']) or 'no prebuilt files'}{lowest}")
