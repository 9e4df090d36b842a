"""Update command output in README.md and docs/, and generate pages.

A line ``<!-- made by `make docs` -->`` marks a ``console`` block with generated output.
In a table of GPUs, the fourth column is generated: the build for
``| RTX 3090 (sm_86) | 610.43.02 | uv's |``. The examples of docs/api.md are run. Other
generated parts are the imports in docs/architecture.md, the variables in
docs/settings.md, the settings in docs/sources.md, the checks in docs/checks.md, and the
document in docs/documents.md. The JSON of the catalog's largest files is generated too.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import click
import tomli
from tests.lab.source import build_package_graph

from gpuinstall import __version__
from gpuinstall.api import Machine, Request, choose, load_catalog
from gpuinstall.base.advice import NOTE
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.uv import uv
from gpuinstall.catalog.data_files import TABLES
from gpuinstall.catalog.failures.problems import FixContext, fix, own_keys
from gpuinstall.catalog.failures.table import load_failures, load_lookalikes
from gpuinstall.cli.commands import load_command
from gpuinstall.cli.main import main_command
from gpuinstall.machine.symptoms import SYMPTOMS
from gpuinstall.sources.uv_settings import load_lists
from gpuinstall.verify.kernels import all_gpus, deep, programs, quick
from tools.support_table import format_support_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.catalog.failures.table import Failure

ROOT = Path(__file__).resolve().parent.parent
MAN_PAGE = ROOT / "prefix" / "share" / "man" / "man1" / "gpuinstall.1"
SHOWN = re.compile(
    r"(?P<head><!-- made by `make docs` -->\n```console\n\$ (?P<command>.+)\n)(?P<output>(?:.*\n)*?)```"
)

GETS = re.compile(
    r"^(?P<head>\| [^|]+\((?P<chips>sm_[^)]+)\) \| (?P<driver>[\d.]+) \| [^|]+ \| )(?P<gets>[^|]+?) \|",
    re.MULTILINE,
)

EXAMPLE = re.compile(
    r"(?P<head>```python\n(?P<code>(?:(?!```).*\n)+)```\n\n"
    r"<!-- printed by it, made by `make docs` -->\n```text\n)(?:.*\n)*?```"
)

DOCUMENT = re.compile(
    r"(?P<head><!-- (?P<file>documents/[\w-]+\.json) -->\n```json\n)(?:.*\n)*?```"
)
CHECKS = re.compile(
    r"(?P<head><!-- (?P<kind>\w+) checks, made by `make docs` -->\n\n)(?:\|.*\n)*"
)
SETTINGS = re.compile(
    r"(?P<head><!-- settings, made by `make docs` -->\n\n)(?:\|.*\n)*"
)
VARIABLES = re.compile(
    r"(?P<head><!-- variables, made by `make docs` -->\n\n)(?:\|.*\n)*"
)

PARSED = ("builds.toml", "drivers.toml", "gpus.toml", *SYMPTOMS)
"""Authored tables with generated JSON."""

ARROWS = re.compile(
    r"(?P<head><!-- arrows, made by `make docs` -->\n```text\n)(?:.*\n)*?```"
)
DONE = "The command succeeded. The result may be ``partial`` or ``unproven``."
MESSAGE_WIDTH = 120
"""The maximum length of a message in the index of failures."""
DEVICES = {
    "gpu": "GPU",
    "cuda": "GPU (CUDA, ROCm)",
    "cpu": "CPU",
    "mps": "Mac GPU",
    "all": "all",
    "none": "none",
}
KNOWN_FAILURES = """\
# Known failures

Look up an error message. `gpuinstall explain "the message"` finds the failure that causes the message, and prints the
cause and all steps of the fix for your system. `gpuinstall explain F01` prints a failure by its number.
`gpuinstall doctor` and `gpuinstall verify` find these failures on a machine.

Each row has an example message, the failure, and the first step of the fix on Ubuntu (on Windows, if the failure only
occurs there). The site that `make site` builds has a page for each failure. This page is generated from
`src/gpuinstall/catalog/failures/data`.
"""
_SENTENCE = re.compile(r"(?![A-Z][a-z]+-[A-Z])[A-Z][\w'-]*[ ,:]")
"""The start of a sentence, which is neither a variable nor a cmdlet."""
COMMANDS = """\
# Commands

Look up a command, its options, and the [exit statuses](#exit-statuses). `gpuinstall COMMAND --help` and `man gpuinstall`
print the same text. Every command has these options too:
"""
COMMON_OPTIONS = re.compile(
    r"\n  (?:--json|--json-events|-q, --quiet|-v, --verbose|-h, --help) .*(?:\n {10}.*)*"
)
"""Common options in the help of a command."""


def main() -> None:
    """Update all generated parts of the documentation."""
    for name, text in generate_pages().items():
        (ROOT / name).write_text(text, encoding="utf-8")
    for page in pages():
        text = page.read_text(encoding="utf-8")
        page.write_text(refresh_page(text), encoding="utf-8")


def generate_pages() -> dict[str, str]:
    """Return the generated pages."""
    return {
        "docs/commands.md": format_commands_page(),
        "docs/failures.md": format_failure_index("{id}"),
        "docs/support-table.md": format_support_page(load_catalog()),
        MAN_PAGE.relative_to(ROOT).as_posix(): format_man_page(),
        **dict(map(convert_table_to_json, PARSED)),
    }


def convert_table_to_json(name: str) -> tuple[str, str]:
    """Return the path and the JSON of a catalog table, one row per line."""
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


def format_commands_page() -> str:
    """Return the help of every command for a terminal of 80 columns.

    Common options are listed once.
    """
    help_of_one = _help(("explain",), load_command("explain"), 78)
    lines = COMMON_OPTIONS.findall(f"\n{help_of_one}")
    text = f"{COMMANDS}\n```text{''.join(lines)}\n```\n"
    for words, command in walk_commands():
        own = COMMON_OPTIONS.sub("", _help(words, command, 78))
        own = re.sub(r"\n\nOptions:(?=\n\n|$)", "", own)
        text += f"\n```text\ngpuinstall {' '.join(words)} --help\n\n{own}\n```\n"
    rows = [f"| {status} | {meaning} |" for status, meaning in format_exit_statuses()]
    table = "\n".join(["| status | meaning |", "|---|---|", *rows])
    return f"{text}\n## Exit statuses\n\n{table.replace('``', '`')}\n"


def format_exit_statuses() -> list[tuple[int, str]]:
    """Return the exit statuses and their meanings."""
    meanings = {
        kind.exit_code: inspect.getdoc(kind) or ""
        for kind in GpuInstallError.__subclasses__()
    }
    return sorted({0: DONE, **meanings}.items())


def format_man_page() -> str:
    """Return the man page, with the introduction of README.md."""
    introduction = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[1]
    lines = [
        f'.TH GPUINSTALL 1 "" "gpuinstall {__version__}" "User Commands"',
        ".SH NAME",
        escape_roff(
            "gpuinstall - install the newest PyTorch build that runs on this machine's GPUs"
        ),
        ".SH DESCRIPTION",
        escape_roff(introduction.replace("\n", " ").replace("`", "")),
        ".SH COMMANDS",
    ]
    for words, command in walk_commands():
        # man indents by eight columns.
        text = _help(words, command, 72)
        lines += [
            f".SS gpuinstall {' '.join(words)}",
            ".nf",
            *map(escape_roff, text.splitlines()),
            ".fi",
        ]
    lines.append(".SH EXIT STATUS")
    for status, meaning in format_exit_statuses():
        lines += [".TP", f".B {status}", escape_roff(meaning.replace("``", ""))]
    return "\n".join(lines) + "\n"


def escape_roff(text: str) -> str:
    """Escape roff requests and escape sequences in a text."""
    safe = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{safe}" if safe.startswith(".") else safe


def walk_commands(
    group: click.Group = main_command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield the words of each command with the command, groups first."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command:
            yield (*words, name), command
        if isinstance(command, click.Group):
            yield from walk_commands(command, (*words, name))


def _help(words: tuple[str, ...], command: click.Command, columns: int) -> str:
    context = click.Context(
        command,
        info_name=" ".join(("gpuinstall", *words)),
        terminal_width=columns,
        **main_command.context_settings,
    )
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def format_failure_index(number: str) -> str:
    """Return the tables of all failures.

    Args:
        number: The cell of a failure's number, with ``{id}``.
    """
    parts = [KNOWN_FAILURES]
    failures = load_failures().values()
    for group in dict.fromkeys(failure.group for failure in failures):
        parts.append(f"## {group}\n\n| message | failure | fix |\n|---|---|---|")
        for failure in failures:
            if failure.group == group:
                name = f"{number.format(id=failure.id)} {_markdown(failure.title)}"
                cells = (_short(failure.messages[0]), name, _first_step(failure))
                parts.append(f"| {' | '.join(map(_cell, cells))} |")
        parts.append("")
    parts.append("## Errors that only look like GPU problems\n")
    parts += [
        f"- **{other.title}**: {other.cause}" for other in load_lookalikes().values()
    ]
    return "\n".join(parts) + "\n"


def _short(message: str) -> str:
    """Return the first line of a message as code."""
    line = message.splitlines()[0]
    if len(line) > MESSAGE_WIDTH:
        line = line[:MESSAGE_WIDTH].rpartition(" ")[0] + " …"
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def _first_step(failure: Failure) -> str:
    return _step(_steps(failure)[0]).removeprefix("- ").rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def format_failure_pages() -> dict[str, str]:
    """Return the site's page of each failure by its id."""
    return {
        failure.id: f"{_entry(failure)}\n[All failures](../failures.md)\n"
        for failure in load_failures().values()
    }


def _entry(failure: Failure) -> str:
    """Return the page of a failure, with its first message and its fix."""
    steps = "".join(map(_step, _steps(failure)))
    # The search ranks words of headings first, and users search for messages.
    message = f"## `{failure.messages[0]}`"
    return f"# {failure.id} {failure.title}\n\n{message}\n\n{failure.cause}\n\n{steps}"


def _steps(failure: Failure) -> list[str]:
    """Return the steps of a fix for Ubuntu, or for Windows."""
    is_windows = failure.title.startswith("Windows")
    keys = ("windows",) if is_windows else own_keys("linux", "Ubuntu")
    return [*map(str, fix(failure.id, FixContext(keys)))]


def _step(line: str) -> str:
    """Return a step of a fix: a command as code, a sentence as text."""
    run, _, note = line.partition(NOTE)
    shown = _markdown(run) if _SENTENCE.match(run) else f"`{run}`"
    return f"- {shown}: {_markdown(note)}\n" if note else f"- {shown}\n"


def _markdown(text: str) -> str:
    """Escape a text outside of its code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([<*_])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def pages() -> list[Path]:
    """List the pages that may show a command's output."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def refresh_page(text: str) -> str:
    """Update the command output, tables, and examples of a page."""
    text = DOCUMENT.sub(
        lambda block: f"{block['head']}{document(block['file'])}\n```", text
    )
    text = CHECKS.sub(lambda table: f"{table['head']}{checks(table['kind'])}", text)
    text = GETS.sub(
        lambda row: f"{row['head']}{select_build(row['chips'], row['driver'])} |",
        text,
    )
    text = ARROWS.sub(lambda block: f"{block['head']}{list_package_imports()}```", text)
    text = SETTINGS.sub(lambda table: f"{table['head']}{settings()}", text)
    text = VARIABLES.sub(lambda table: f"{table['head']}{variables()}", text)
    text = EXAMPLE.sub(
        lambda example: f"{example['head']}{run(example['code'])}```", text
    )
    return SHOWN.sub(
        lambda shown: f"{shown['head']}{output(shown['command'])}```", text
    )


def document(file: str) -> str:
    """Return a recorded document with indentation."""
    recorded = json.loads((ROOT / "docs" / file).read_text(encoding="utf-8"))
    return json.dumps(recorded, indent=1, ensure_ascii=False)


def checks(kind: str) -> str:
    """Return the table of the quick, deep, or program checks."""
    tables = {
        "quick": quick.CHECKS,
        "deep": (*deep.CHECKS, *all_gpus.CHECKS),
        "program": sorted(programs.PROGRAMS, key=lambda check: check.name),
    }
    rows = map(_check, tables[kind])
    return "| check | on | tests | maximum error |\n|---|---|---|---|\n" + "".join(rows)


def _check(check: Any) -> str:
    function = check.run.func if isinstance(check.run, partial) else check.run
    summary = (inspect.getdoc(function) or "").splitlines()[0].rstrip(".")
    devices = ", ".join(DEVICES[kind] for kind in check.where.split())
    max_error = f"{check.limit:.1e}" if check.limit else ""
    return f"| {check.name} | {devices} | {summary} | {max_error} |\n"


def settings() -> str:
    """Return the lists of uv's keys."""
    lines = ["| list | keys |\n", "|---|---|\n"]
    for kind, reasons in load_lists().items():
        for reason, keys in reasons.items():
            start = f"{kind}: {reason}" if reason else kind
            names = ", ".join(f"`{key}`" for key in keys)
            lines.append(f"| {start} | {names} |\n")
    return "".join(lines)


def variables() -> str:
    """Return the table of variables and their options."""
    options: dict[str, str] = {}
    for _, command in walk_commands():
        for each in command.params:
            names = each.envvar or ()
            for name in [names] if isinstance(names, str) else names:
                options[name] = each.opts[-1]
    rows = [f"| `{name}` | `{option}` |\n" for name, option in sorted(options.items())]
    return "| variable | option |\n|---|---|\n" + "".join(rows)


def list_package_imports() -> str:
    """Return the imports between packages, in topological order."""
    imports = build_package_graph()
    packages = sorted(imports.keys() - {"cli", "__main__", "gpuinstall"})
    # TopologicalSorter keeps the order of independent nodes, so sort them.
    graph = {name: sorted(imports[name].intersection(packages)) for name in packages}
    text = " ".join(name for name in packages if not graph[name]) + "\n"
    for name in TopologicalSorter(graph).static_order():
        if graph[name]:
            text += f"{name:17} -> {' '.join(graph[name])}\n"
    return text


def select_build(chips: str, driver: str) -> str:
    """Return the build for the GPUs of a table row on Linux."""
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
    """Run an example of docs/api.md and return its output."""
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120
    ).stdout


def output(command: str) -> str:
    """Run a gpuinstall command in an empty folder and return its output.

    The home is empty too, so that nothing on this machine changes a page.
    """
    program = Path(sys.executable).with_name("gpuinstall")
    # The pages assume that uv is on the reader's PATH.
    path = os.pathsep.join([str(uv().parent), os.environ["PATH"]])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [program, *shlex.split(command)[1:]],
            cwd=folder,
            env={
                **os.environ,
                "COLUMNS": "100",
                "HOME": folder,
                "NO_COLOR": "1",
                "PATH": path,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    # The pages show the output on Debian 12.
    text = re.sub(
        r"(?<=GPU · )\w+ \d+(\.\d+)?$", "Debian 12", done.stdout, flags=re.MULTILINE
    )
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


if __name__ == "__main__":
    main()
