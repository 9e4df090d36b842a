"""Run again every command whose output README.md and docs/ show, and write the pages that are made from data.

A block that is made here is a ``console`` block below the line ``<!-- made by `make docs` -->``. In a table of GPUs
the third column is filled: the build that ``| RTX 3090 (sm_86) | 610.43.02 | …`` gets. An example of docs/api.md is
run for what it prints. The arrows of docs/architecture.md are those of the imports, the settings of docs/trust.md
those of ``gpuinstall.provenance``. Of the largest files of the catalogue, what a plan reads in their place is made.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from zlib import crc32

import click
import tomli
from tests.lab.source import room_graph

from gpuinstall import Machine, Request, choose, load_catalog
from gpuinstall.catalog.authored import TABLES
from gpuinstall.cli.main import COMMANDS, entrance
from gpuinstall.provenance import SETTING_RULES
from tools.checks import checks_page
from tools.documents import with_documents
from tools.failures_page import failures_page
from tools.man_page import PAGE, man_page
from tools.support_table import support_page

ROOT = Path(__file__).resolve().parent.parent
SHOWN = re.compile(
    r"(?P<head><!-- made by `make docs` -->\n```console\n\$ (?P<command>.+)\n)(?P<output>(?:.*\n)*?)```"
)

GETS = re.compile(
    r"^(?P<head>\| [^|]+\((?P<chips>sm_[^)]+)\) \| (?P<driver>[\d.]+) \| )(?P<gets>[^|]+?) \|",
    re.MULTILINE,
)

EXAMPLE = re.compile(
    r"(?P<head>```python\n(?P<code>(?:(?!```).*\n)+)```\n\n"
    r"<!-- printed by it, made by `make docs` -->\n```text\n)(?:.*\n)*?```"
)

SETTINGS = re.compile(r"(?P<head><!-- settings, made by `make docs` -->\n\n)(?:\|.*\n)*")

PARSED = ("builds.toml", "drivers.toml", "gpus.toml")
"""The files of the catalogue that are parsed beforehand."""

ARROWS = re.compile(r"(?P<head><!-- arrows, made by `make docs` -->\n```text\n)(?:.*\n)*?```")


def main() -> None:
    """Write every page again."""
    for name, text in made().items():
        (ROOT / name).write_text(text, encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(refreshed(text), encoding="utf-8")


def made() -> dict[str, str]:
    """Make the pages that are data written out."""
    return {
        "docs/checks.md": checks_page(),
        "docs/commands.md": commands_page(),
        "docs/failures.md": failures_page(),
        "docs/support-table.md": support_page(load_catalog()),
        PAGE.relative_to(ROOT).as_posix(): man_page(),
        **dict(map(parsed_table, PARSED)),
    }


def parsed_table(name: str) -> tuple[str, str]:
    """Return a file of the catalogue as JSON, a row a line, with the name that it gets."""
    path = TABLES / name
    text = path.read_bytes()
    lines = [f'"crc32": {crc32(text)}']
    for key, value in tomli.loads(text.decode()).items():
        rows = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, list):
            rows = rows.replace("},{", "},\n{")
        lines.append(f"{json.dumps(key)}: {rows}")
    document = "{\n" + ",\n".join(lines) + "\n}\n"
    return path.with_suffix(".json").relative_to(ROOT).as_posix(), document


def commands_page() -> str:
    """Write down what every command says of itself, and below groups such as ``export`` each of theirs."""
    commands: list[tuple[str, ...]] = []
    for name in COMMANDS:
        commands.append((name,))
        commands += [(name, subcommand) for subcommand in _subcommands(name)]
    text = "# Commands\n"
    for words in commands:
        text += f"\n```console\n$ gpuinstall {' '.join(words)} --help\n{_help(words)}\n```\n"
    return text


def _help(words: tuple[str, ...]) -> str:
    """Return what ``--help`` says in a terminal of 80 columns, of which click leaves two empty."""
    command: click.Command = entrance
    context = click.Context(
        command, info_name="gpuinstall", terminal_width=78, **entrance.context_settings
    )
    for word in words:
        if not isinstance(command, click.Group):
            break
        name = word
        parent: click.Context | None = context
        if command.invoke_without_command:
            # The usage of a subcommand shows its parents with their arguments, which lock has of its own.
            name = f"{context.info_name} {word}"
            parent = context.parent
        command = command.get_command(context, word) or command
        context = click.Context(command, info_name=name, parent=parent)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def _subcommands(name: str) -> list[str]:
    command = entrance.get_command(click.Context(entrance), name)
    if not isinstance(command, click.Group):
        return []
    return command.list_commands(click.Context(command))


def pages() -> list[Path]:
    """List the pages that may show a command's output."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refreshed(text: str) -> str:
    """Replace the output below each command by what the command says now, and what each GPU of a table gets."""
    text = with_documents(text)
    text = GETS.sub(
        lambda row: f"{row['head']}{choice_of(row['chips'], row['driver'])} |",
        text,
    )
    text = ARROWS.sub(lambda block: f"{block['head']}{arrows()}```", text)
    text = SETTINGS.sub(lambda table: f"{table['head']}{settings()}", text)
    text = EXAMPLE.sub(lambda example: f"{example['head']}{run(example['code'])}```", text)
    return SHOWN.sub(lambda shown: f"{shown['head']}{output(shown['command'])}```", text)


def settings() -> str:
    """Write what becomes of each setting of a tool that says where a package comes from."""
    lines = ["| tool | setting | |", "|---|---|---|"]
    for rule in SETTING_RULES:
        instead = f"; instead: {rule.instead}" if rule.instead else ""
        lines.append(f"| {rule.tool} | `{rule.key}` | {rule.effect.value}{instead} |")
    return "".join(f"{line}\n" for line in lines)


def arrows() -> str:
    """Write which room imports which, each below all that it imports."""
    imports = room_graph()
    rooms = sorted(imports.keys() - {"cli", "__main__", "gpuinstall"})
    # Sorted, since the order of equals is that in which they come.
    graph = {room: sorted(imports[room].intersection(rooms)) for room in rooms}
    alone = [room for room in rooms if not graph[room]]
    text = " ".join(alone) + "\n"
    for room in TopologicalSorter(graph).static_order():
        if graph[room]:
            text += f"{room:17} -> {' '.join(graph[room])}\n"
    return text


def choice_of(chips: str, driver: str) -> str:
    """Choose for GPUs of a table, ``sm_70, sm_120``, on Linux: ``2.10.0 cu129``."""
    gpus = []
    for index, chip in enumerate(chips.split(", ")):
        capability = f"{chip[3:-1]}.{chip[-1]}"
        gpus.append({"index": index, "compute_capability": capability})
    document = {
        "schema": "gpuinstall.machine/1",
        "os": "linux",
        "arch": "x86_64",
        "driver": {"version": driver},
        "gpus": gpus,
    }
    machine = Machine.from_dict(document)
    choice = choose(machine, Request(), load_catalog()).choice
    if choice is None:
        return "nothing"
    return f"{choice.build.torch} {choice.build.backend}"


def run(code: str) -> str:
    """Run an example of docs/api.md: what it prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def output(command: str) -> str:
    """Run a gpuinstall command as a person at a terminal of 100 columns without colour sees it."""
    program = Path(sys.executable).with_name("gpuinstall")
    done = subprocess.run(
        [program, *shlex.split(command)[1:]],
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


if __name__ == "__main__":
    main()
