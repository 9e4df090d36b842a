"""Options of all commands, and the requests that they specify.

``define_command`` lists the options of a command, which receives ``CommandOptions``.
A new option needs a row in this module, its name in the list, and code that uses it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import DOCUMENT_BYTES, decode_text, parse_json
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request, Sourcing, split_torch_index
from gpuinstall.base.requirement import (
    COMMAND_LINE,
    TextOrigin,
    is_remote,
    parse_requirement,
)
from gpuinstall.base.shell import quote_word
from gpuinstall.base.values import Value, replace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.project import Project, Settings
    from gpuinstall.sources.requirements_file import RequirementsFile

STDOUT = "-"
PATH = click.Path(path_type=Path)
_REQUIREMENT_FILES = (".txt", ".in")
"""Suffixes of arguments to read as ``-r FILE``. No package name has one."""


class _Row(Value):
    """Definition of an option or argument."""

    words: list[str]
    settings: dict[str, Any]
    """Further arguments of click's option."""

    empty: object
    """The value in commands without this option."""
    place: Callable[[str, Path], str] | None = None
    """A function that makes a value's paths relative to the project folder.

    Its second argument is the folder of the command line, relative to the project.
    """


def _path_from(value: str, folder: Path) -> str:
    return value if value == STDOUT or is_remote(value) else str(folder / value)


def _marked_path_from(value: str, folder: Path) -> str:
    # A bare word is a version, a program on PATH, or a group.
    return _path_from(value, folder) if re.search(r"[/\\:]", value) else value


def _requirement_from(value: str, folder: Path) -> str:
    if value.endswith(_REQUIREMENT_FILES):
        return _path_from(value, folder)
    # The command reports a malformed requirement.
    with suppress(UsageError):
        requirement = parse_requirement(value)
        place = requirement.path
        if place and not place.startswith("~"):
            # Without "./", a bare word would be a package name.
            moved = f"./{os.path.normpath(folder / place)}"
            return requirement.with_url(moved).text
    return value


def _editable_from(value: str, folder: Path) -> str:
    return _requirement_from(f"-e {value}", folder).removeprefix("-e ")


def _row(
    usage: str,
    text: str = "",
    place: Callable[[str, Path], str] | None = None,
    **settings: Any,
) -> Any:
    """Return the row of an option.

    Args:
        usage: The spellings and the metavar, such as ``-r --requirement FILE``. A flag
            has no metavar.
        text: The help text.
        place: The ``place`` of the row.
        settings: Additional arguments of click's option.
    """
    words = [word for word in usage.split() if word.startswith("-")]
    metavar = " ".join(word for word in usage.split() if word not in words) or None
    is_flag = metavar is None and "type" not in settings
    empty = () if "multiple" in settings else False if is_flag else None
    settings |= {"is_flag": is_flag, "metavar": metavar, "help": text}
    return _Row(words, settings, empty, place)


_list = partial(_row, multiple=True)


# This is not a Value, because its class attributes are rows.
class CommandOptions:
    """Values of a command's options. All other options are empty."""

    def __init__(
        self, terminal: Terminal, typed_in: Path | None = None, **values: Any
    ) -> None:
        """Store the values of the command's options."""
        self.terminal = terminal
        self.typed_in = typed_in
        """The working folder of the command line."""
        self.read_machine: Machine | None = None
        """The machine for ``--record``, once the command has read it."""
        empty = {name: row.empty for name, row in _ROWS.items()}
        vars(self).update(empty | values)

    torch_index: str | None = _row(
        "--torch-index URL",
        "Base URL of PyTorch's index (default: https://download.pytorch.org/whl).",
        envvar="GPUINSTALL_TORCH_INDEX",
    )
    offline: bool = _row(
        "--offline",
        "Do not use the network.",
        envvar=("GPUINSTALL_OFFLINE", "UV_OFFLINE"),
    )
    folder: Path = _row(
        "DIR",
        place=_path_from,
        type=click.Path(file_okay=False, path_type=Path),
    )
    wheels: Path | None = _row(
        "--wheels DIR",
        "Install from the wheels in DIR instead of an index.",
        type=click.Path(
            exists=True, file_okay=False, path_type=Path, resolve_path=True
        ),
    )
    requirements: tuple[str, ...] = _list("[REQ]...", place=_requirement_from)
    requirement_files: tuple[str, ...] = _list(
        "-r --requirement FILE",
        "Add the requirements in FILE: requirements.txt, pyproject.toml, environment.yml, or - for stdin.",
        _path_from,
    )
    editables: tuple[str, ...] = _list(
        "-e --editable DIR", "Add the project in DIR in editable mode.", _editable_from
    )
    constraints: tuple[str, ...] = _list(
        "-c --constraint FILE",
        "Constrain versions by FILE, or - for stdin.",
        _path_from,
    )
    groups: tuple[str, ...] = _list(
        "--group NAME",
        "Add a dependency group of pyproject.toml.",
        _marked_path_from,
    )
    extras: tuple[str, ...] = _list("--extra NAME", "Add an extra of pyproject.toml.")
    python: str | None = _row(
        "--python X.Y|PATH",
        "Python version, or the interpreter to create the environment with (default: one that the project and torch support).",
        _marked_path_from,
        envvar="GPUINSTALL_PYTHON",
    )
    backend: str | None = _row(
        "--backend TAG",
        "Build of torch: cu126 (CUDA 12.6), cpu, … (default: the best one for the GPUs).",
        envvar="GPUINSTALL_BACKEND",
    )
    gpus: str | None = _row(
        "--gpus LIST",
        "Indices or UUIDs of the GPUs to support, separated by commas (default: all).",
    )
    relax: bool = _row(
        "--relax",
        "Replace pins that cannot work on this machine with the nearest compatible versions.",
    )
    only: bool = _row(
        "--only", "Request only the packages on the command line, and drop all others."
    )
    venv: Path = _row(
        "--venv DIR",
        "Environment (default: .venv).",
        type=Path,
        default=".venv",
        envvar="GPUINSTALL_VENV",
    )
    into: bool = _row(
        "--into",
        "Use another tool's environment: --python PATH or --venv DIR (default: the environment of the folder's application).",
    )
    dry_run: bool = _row(
        "--dry-run", "Show the changes and the download size, without making changes."
    )
    upgrade: bool = _row(
        "-U --upgrade",
        "Upgrade all packages (install with REQ: only REQ).",
    )
    upgrade_packages: tuple[str, ...] = _list(
        "--upgrade-package NAME", "Upgrade only this package (repeatable)."
    )
    replace: bool = _row(
        "--replace",
        "Replace an environment that gpuinstall did not create, or discard an unfinished change by another host.",
    )
    discard_previous: bool = _row(
        "--discard-previous",
        "Remove the oldest previous environment if a rebuild would keep a third one.",
    )
    yes: bool = _row("-y --yes", "Do not ask for confirmation.")
    target: str | None = _row(
        "--target TARGET",
        "Lock file to install: cu126, cpu, … (default: the one that fits).",
    )
    targets: tuple[str, ...] = _list(
        "--target TARGET",
        "Kind of machine: cu126, cu130-windows-x86_64, … (repeatable; default: the folder's targets, or this machine).",
    )
    machine: str | None = _row(
        "--machine FILE",
        "Use a machine that probe --json wrote (- for stdin), instead of this one.",
        _path_from,
    )
    gpu_names: tuple[str, ...] = _list(
        "--gpu NAME",
        'Use a machine with this GPU, such as "RTX 5090", instead of this one (repeatable).',
    )
    driver: str | None = _row(
        "--driver VERSION",
        "Driver of that machine (default for plan: the latest that supports the GPUs).",
    )
    os: str | None = _row(
        "--os",
        "Operating system of that machine (default: linux).",
        type=click.Choice(["linux", "windows", "macos"]),
    )
    arch: str | None = _row(
        "--arch",
        "Architecture of that machine (default: x86_64, or as the GPU requires).",
        type=click.Choice(["x86_64", "aarch64", "arm64"]),
    )
    glibc: str | None = _row("--glibc X.Y", "glibc of that machine (default: 2.28).")
    all_builds: bool = _row("--all", "Show all rejected builds, with the reasons.")
    # This --python is for commands that examine an environment and create none.
    interpreter: str | None = _row(
        "--python PATH",
        "Interpreter of the environment, instead of --venv.",
        _marked_path_from,
    )
    any_lock: bool = _row(
        "--any",
        "At start, select the lock file that fits the machine, as sync does.",
    )
    proof: bool = _row(
        "--proof/--no-proof",
        "With --any: verify with kernels, once on each machine (default: --proof).",
        default=True,
    )
    install: bool = _row(
        "--install", "With --any: install the environment if it is missing."
    )
    require_gpu: bool = _row("--require-gpu", "Fail if no GPU can be used.")
    deep: bool = _row(
        "--deep",
        "Also check attention, FP8, FFT, solvers, CUDA graphs, torch.compile, and NCCL.",
    )
    bench: bool = _row(
        "--bench", "Also benchmark matrix products, copies, and ResNet-50."
    )
    nodes: str | None = _row(
        "--nodes LIST",
        "Names of nodes that must have a record, separated by commas or spaces.",
    )
    lock_files: tuple[Path, ...] = _list(
        "--lock FILE",
        "Lock file to convert (repeatable; default: this folder's).",
        _path_from,
        type=PATH,
    )
    output: Path | None = _row(
        "-o --output FILE",
        "Write to FILE (default: -, stdout).",
        _path_from,
        type=click.Path(path_type=Path, dir_okay=False),
        callback=lambda _context, _option, path: None if path == Path(STDOUT) else path,
    )
    with_servers: tuple[str, ...] = _list(
        "--with",
        "Also start a Jupyter server, or with --any an SSH server (repeatable).",
        type=click.Choice(["jupyter", "ssh"]),
    )
    remove: bool = _row("--remove", "Remove the lines that hook added.")
    record: Path | None = _row(
        "--record DIR",
        "Write the result of this node into DIR, for report.",
        _path_from,
        type=PATH,
    )
    as_json: bool = _row("--json", "Print one JSON document on stdout.")
    as_events: bool = _row(
        "--json-events", "Print progress as JSON lines, ending with the document."
    )
    quiet: bool = _row(
        "-q --quiet", "Print only results and errors.", envvar="GPUINSTALL_QUIET"
    )
    verbose: bool = _row("-v --verbose", "Print executed commands and complete lists.")

    @property
    def sourcing(self) -> Sourcing:
        """The package sources that the options specify."""
        return Sourcing(
            torch_index=split_torch_index(self.torch_index or "")[0] or None,
            wheels=self.wheels,
            offline=self.offline,
        )

    def other_machine(
        self, newest_driver: Callable[[Machine], int | None] | None = None
    ) -> Machine | None:
        """Return the machine of ``--machine`` or ``--gpu``, if any.

        Args:
            newest_driver: Returns the latest driver for GPUs if ``--driver`` is not given.

        Raises:
            UsageError: The file or an option is malformed.
        """
        words = (self.gpu_names, self.driver, self.os, self.arch, self.glibc)
        if self.machine is not None:
            if any(words):
                raise UsageError(
                    "machine-twice",
                    "--machine cannot be combined with --gpu, --driver, --os, and --arch",
                )
            return read_machine_file(self.machine)
        if self.driver and not self.gpu_names:
            raise UsageError("gpu-missing", "--driver requires --gpu")
        if any(words):
            from gpuinstall.machine.options import machine_from_options

            return machine_from_options(*words, newest_driver=newest_driver)
        return None

    @cached_property
    def settings(self) -> Settings:
        """The request and settings from the options. Files are read once.

        Raises:
            UsageError: A file or an option is malformed.
        """
        from gpuinstall.project import Settings
        from gpuinstall.sources.requirements_file import expand_variables

        editables = [f"-e {folder}" for folder in self.editables]
        gpus = None
        if self.gpus is not None:
            gpus = tuple(filter(None, map(str.strip, self.gpus.split(","))))
        files = [
            word for word in self.requirements if word.endswith(_REQUIREMENT_FILES)
        ]
        words = [
            expand_variables(word, os.environ)
            for word in self.requirements
            if word not in files
        ]
        requirements = [
            parse_requirement(word, COMMAND_LINE) for word in (*words, *editables)
        ]
        for name in files:
            self.terminal.step("Requested", f"{name}, read as -r {name}")
        backend = self.backend or split_torch_index(self.torch_index or "")[1]
        places = {}
        if backend and not self.backend:
            places[backend] = TextOrigin(f"--torch-index {self.torch_index}")
        for name, value in (("python", self.python), ("backend", self.backend)):
            if value:
                option = f"--{name} {value}"
                if _option_source(name) is ParameterSource.ENVIRONMENT:
                    option = str(_ROWS[name].settings["envvar"])
                places[value] = TextOrigin(option)
        request = Request(
            requirements,
            python=self.python,
            backend=backend,
            places=places,
            gpus=gpus,
            targets=self.targets,
            relax=self.relax,
            sourcing=self.sourcing,
        )
        base = None
        if self.python and not self.into:
            from gpuinstall.machine.pythons import select_base_python

            request, base = select_base_python(request)
        return Settings(
            request,
            files=self._read_files(files),
            only=self.only,
            names_gpus=bool(self.gpu_names),
            venv=self.venv,
            base_python=base,
            typed_in=self.typed_in,
        )

    def names_to_upgrade(self) -> list[str]:
        """Return the packages given by ``--upgrade-package``.

        Raises:
            UsageError: A package has a version or an extra.
        """
        requirements = [*map(parse_requirement, self.upgrade_packages)]
        for one in requirements:
            if one.text != one.name:
                raise UsageError(
                    "version-with-name",
                    f"--upgrade-package takes only a name, not {one.text}",
                    hint=f"gpuinstall lock --upgrade-package {one.name} {quote_word(one.text)}",
                )
        return [one.name for one in requirements]

    def _read_files(self, more: Sequence[str]) -> dict[str, RequirementsFile]:
        """Read requirements files, ``more``, groups, and constraints."""
        from gpuinstall.lock.request.declaration import read_constraints, read_inputs
        from gpuinstall.sources.requirements_file import extra_path, group_path

        groups = map(group_path, self.groups)
        extras = map(extra_path, self.extras)
        names = (*self.requirement_files, *more, *groups, *extras)
        files = {name: _read_stream(name) or read_inputs(name) for name in names}
        for name in self.constraints:
            stream = _read_stream(name)
            files[name] = stream.as_constraints() if stream else read_constraints(name)
        return files

    def open(
        self, *, folder: Path | None = None, **changes: Any
    ) -> AbstractContextManager[Project]:
        """Open a project with the settings from the command line.

        Args:
            folder: The project folder. None: the working folder.
            changes: Additional fields of the settings.
        """
        from gpuinstall.project import open_project

        settings = replace(self.settings, **changes)
        return open_project(folder or Path.cwd(), settings, self.terminal)


def names_environment() -> bool:
    """Return whether --venv or its variable selects the environment."""
    origins = {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    return _option_source("venv") in origins


def is_on_command_line(name: str) -> bool:
    """Return whether the command line, not a variable, sets an option."""
    return _option_source(name) is ParameterSource.COMMANDLINE


def _option_source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


OUTPUT_OPTIONS = ("as_json", "as_events", "quiet", "verbose")
"""The options of all commands, which configure the Terminal."""
SOURCING = ("torch_index", "offline")
REQUEST = (
    "requirements",
    "requirement_files",
    "editables",
    "constraints",
    "groups",
    "extras",
    "python",
    "backend",
    "gpus",
    "relax",
    *SOURCING,
)
MACHINE_OPTIONS = ("gpu_names", "driver", "os", "arch", "glibc")
_ROWS = {
    name: row for name, row in vars(CommandOptions).items() if isinstance(row, _Row)
}
VARIABLES = tuple(name for name in REQUEST if "envvar" in _ROWS[name].settings)
"""The request options that environment variables can set."""


def parameter(name: str, *, is_hidden: bool = False) -> click.Parameter:
    """Return click's parameter. A hidden option only reads a variable."""
    row = _ROWS[name]
    if not row.words:
        settings = {key: row.settings.get(key) for key in ("metavar", "type")}
        return click.Argument([name], nargs=-1 if row.empty == () else 1, **settings)
    return click.Option([*row.words, name], hidden=is_hidden, **row.settings)


def relocate_value(name: str, value: Any, folder: Path) -> Any:
    """Return an option's value with its paths relative to the project folder.

    Args:
        name: The name of the option.
        value: Its value, or a tuple of values.
        folder: The folder of the command line, relative to the project folder.
    """
    place = _ROWS[name].place
    if value is None or place is None or folder == Path():
        return value
    if isinstance(value, tuple):
        return tuple(relocate_value(name, one, folder) for one in value)
    return type(value)(place(str(value), folder))


def option_spelling(name: str) -> str:
    """Return the long spelling of an option."""
    return _ROWS[name].words[-1]


def read_machine_file(name: str) -> Machine:
    """Read a Machine document from a file or stdin (``-``).

    Raises:
        UsageError: The document cannot be read.
    """
    try:
        machine = Machine.from_dict(parse_json(_read_document(name)))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        source = "stdin" if name == "-" else name
        raise UsageError(
            "machine-malformed",
            f"{source} cannot be read: {reason} (gpuinstall probe --json writes one)",
        ) from None
    if not machine.problems:
        return machine
    # Loads the failure catalog.
    from gpuinstall.catalog.failures.problems import with_own_fixes

    return with_own_fixes(machine)


def _read_document(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(DOCUMENT_BYTES) if sys.stdin else b""
    # Reading blocks on a pipe: --machine <(ssh other gpuinstall probe --json)
    with Path(name).open("rb") as file:
        return file.read(DOCUMENT_BYTES)


def _read_stream(name: str) -> RequirementsFile | None:
    """Read requirements from stdin (``-``) or a pipe, or return None.

    Raises:
        UsageError: A requirement is malformed.
    """
    from gpuinstall.sources.requirements_file import (
        convert_content_errors,
        parse_requirements,
    )

    path = Path(name)
    if name != STDOUT and not path.is_fifo():
        return None
    with convert_content_errors(path):
        text = decode_text(_read_document(name))
    return parse_requirements(text, path)
