"""Options of all commands, and the requests that they specify.

``define_command`` lists the options of a command. ``CommandOptions`` has their values.
A new option needs a row in this module, its name in the list, and code that uses it.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuinstall.base.advice import make_change, make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import DOCUMENT_BYTES, decode_text, is_inside, parse_json
from gpuinstall.base.machine import PROBE, Machine, make_machine_error
from gpuinstall.base.request import Request, Sourcing, split_torch_index
from gpuinstall.base.requirement import (
    COMMAND_LINE,
    TextOrigin,
    is_url,
    normalize_name,
    parse_requirement,
)
from gpuinstall.base.text import remove_logins
from gpuinstall.base.values import Value, replace
from gpuinstall.base.version import RUNNING_PYTHON

if TYPE_CHECKING:
    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.project import Project, Settings
    from gpuinstall.sources.requirements_file import RequirementsFile

STDOUT = "-"
_REQUIREMENT_FILES = (".txt", ".in")
"""File suffixes of arguments that are read as ``-r FILE``."""
_PATHS = "FILE|DIR|PLACE"
"""Pattern for the metavars of options whose value is always a path."""
_RELOCATED = f"{_PATHS}|PATH|REQ|URL|NAME"
"""Pattern for the metavars of options whose value can be a path."""


class _PathType(click.Path):
    """Path on the command line. Unlike for pathlib, "" is not a folder."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the path, or fail if it is empty."""
        if not os.fspath(value):
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


_PATH = _PathType(path_type=Path, readable=False)
_WORD = _PathType(path_type=str, readable=False)
"""A path, a URL, or ``-`` as text."""


class _OptionRow(Value):
    """Definition of a command-line option or argument."""

    words: list[str]
    settings: dict[str, Any]
    """Additional arguments of click's option."""

    empty: object
    """The value of the option in commands that do not have it."""


def _define_option(
    usage: str,
    text: str = "",
    **settings: Any,
) -> Any:
    """Create the definition of a command-line option.

    Args:
        usage: The spellings and the metavar, such as ``-r --requirement FILE``. A flag
            has no metavar.
        text: The help text.
        settings: Additional arguments of click's option.
    """
    words = [word for word in usage.split() if word.startswith("-")]
    metavar = " ".join(word for word in usage.split() if word not in words) or None
    is_flag = metavar is None and "type" not in settings
    empty = () if "multiple" in settings else False if is_flag else None
    # With False, click allows an option without a value.
    settings |= {"is_flag": is_flag or None, "metavar": metavar, "help": text}
    return _OptionRow(words, settings, empty)


_define_list_option = partial(_define_option, multiple=True)


# This is not a Value, because its class attributes are rows.
class CommandOptions:
    """Option values of a command. Options of other commands are empty."""

    def __init__(
        self, terminal: Terminal, command_folder: Path | None = None, **values: Any
    ) -> None:
        """Store the values of the command's options."""
        self.terminal = terminal
        self.command_folder = command_folder
        """The working folder of the command line."""
        self.read_machine: Machine | None = None
        """The machine for ``--record``, once the command has read it."""
        empty = {name: row.empty for name, row in _OPTION_ROWS.items()}
        vars(self).update(empty | values)

    torch_index: str | None = _define_option(
        "--torch-index URL",
        "Base URL of PyTorch's index (default: https://download.pytorch.org/whl).",
        envvar="GPUINSTALL_TORCH_INDEX",
    )
    offline: bool = _define_option(
        "--offline",
        "Do not use the network.",
        envvar=("GPUINSTALL_OFFLINE", "UV_OFFLINE"),
    )
    folder: Path = _define_option(
        "DIR",
        type=_PathType(file_okay=False, path_type=Path),
    )
    wheels: Path | None = _define_option(
        "--wheels DIR",
        "Install from the wheels in DIR instead of an index.",
        type=_PathType(exists=True, file_okay=False, path_type=Path, resolve_path=True),
    )
    requirements: tuple[str, ...] = _define_list_option("[REQ]...")
    requirement_files: tuple[str, ...] = _define_list_option(
        "-r --requirement FILE",
        "Add the requirements in FILE: requirements.txt, pyproject.toml, environment.yml, or - for stdin.",
        type=_WORD,
    )
    editables: tuple[str, ...] = _define_list_option(
        "-e --editable DIR",
        "Add the project in DIR in editable mode.",
        type=_WORD,
    )
    constraints: tuple[str, ...] = _define_list_option(
        "-c --constraint FILE",
        "Constrain versions by FILE, a URL, or - for stdin.",
        type=_WORD,
    )
    groups: tuple[str, ...] = _define_list_option(
        "--group NAME",
        "Add a dependency group of pyproject.toml.",
    )
    no_groups: tuple[str, ...] = _define_list_option(
        "--no-group NAME",
        "Omit a dependency group of pyproject.toml.",
    )
    no_default_groups: bool = _define_option(
        "--no-default-groups",
        "Omit uv's default groups.",
        envvar="UV_NO_DEFAULT_GROUPS",
    )
    extras: tuple[str, ...] = _define_list_option(
        "--extra NAME", "Add an extra of pyproject.toml."
    )
    indexes: tuple[str, ...] = _define_list_option(
        "--index URL",
        "Index to search before the others (repeatable); .../whl/cu126 prefers that build of torch.",
    )
    default_index: str | None = _define_option(
        "--default-index URL",
        "Index to use instead of the default one.",
    )
    find_links: tuple[str, ...] = _define_list_option(
        "-f --find-links PLACE",
        "Folder or page with further files, also of torch (repeatable).",
    )
    no_sources: bool = _define_option("--no-sources", "Ignore [tool.uv.sources].")
    python: str | None = _define_option(
        "-p --python X.Y|PATH",
        "Python version, or the interpreter to create the environment with (default: one that the project and torch support).",
        envvar="GPUINSTALL_PYTHON",
    )
    backend: str | None = _define_option(
        "--backend TAG",
        "Build of torch: cu126 (CUDA 12.6), cpu, … (default: the best one for the GPUs).",
        envvar="GPUINSTALL_BACKEND",
    )
    gpus: str | None = _define_option(
        "--gpus LIST",
        "Indices or UUIDs of the GPUs to support, separated by commas (default: all).",
    )
    relax: bool = _define_option(
        "--relax",
        "Replace pins that cannot work on this machine with the nearest compatible versions.",
    )
    only: bool = _define_option(
        "--only", "Request only the packages on the command line, and drop all others."
    )
    same: bool = _define_option(
        "--same", "Also exit with 6 if the versions differ between lock files."
    )
    venv: Path = _define_option(
        "--venv DIR",
        "Environment (default: UV_PROJECT_ENVIRONMENT, or .venv).",
        type=_PATH,
        default=".venv",
        envvar=["GPUINSTALL_VENV", "UV_PROJECT_ENVIRONMENT"],
    )
    into: bool = _define_option(
        "--into",
        "Use another tool's environment: --python PATH or --venv DIR (default: the active one, or the only one in the folder).",
    )
    dry_run: bool = _define_option(
        "--dry-run", "Show the changes and the download size, without making changes."
    )
    upgrade: bool = _define_option(
        "-U --upgrade",
        "Upgrade all packages (install with REQ: only REQ).",
    )
    upgrade_packages: tuple[str, ...] = _define_list_option(
        "--upgrade-package NAME", "Upgrade only this package (repeatable)."
    )
    reinstall: bool = _define_option("--reinstall", "Reinstall all packages.")
    reinstall_packages: tuple[str, ...] = _define_list_option(
        "--reinstall-package NAME", "Reinstall only this package (repeatable)."
    )
    replace: bool = _define_option(
        "--replace",
        "Replace an environment that gpuinstall did not create.",
    )
    discard_previous: bool = _define_option(
        "--discard-previous",
        "Remove the previous environment of an earlier rebuild.",
    )
    yes: bool = _define_option("-y --yes", "Do not ask for confirmation.")
    target: str | None = _define_option(
        "--target TARGET",
        "Lock file to install: cu126, cpu, … (default: the one that fits).",
    )
    targets: tuple[str, ...] = _define_list_option(
        "--target TARGET",
        "Kind of machine: cu126, cu130-windows-x86_64, … (repeatable; default: the folder's targets, or this machine).",
    )
    machine: str | None = _define_option(
        "--machine FILE",
        f"Use a machine that {PROBE} --json wrote (- for stdin), instead of this one.",
        type=_WORD,
    )
    gpu_names: tuple[str, ...] = _define_list_option(
        "--gpu NAME",
        'Use a machine with this GPU, such as "RTX 5090", instead of this one (repeatable: one machine with all of them).',
    )
    driver: str | None = _define_option(
        "--driver VERSION",
        "Driver of that machine (default for plan: the latest that supports the GPUs).",
    )
    os: str | None = _define_option(
        "--os",
        "Operating system of that machine (default: linux).",
        type=click.Choice(["linux", "windows", "macos"]),
    )
    arch: str | None = _define_option(
        "--arch",
        "Architecture of that machine (default: x86_64, or as the GPU requires).",
        type=click.Choice(["x86_64", "aarch64", "arm64"]),
    )
    glibc: str | None = _define_option(
        "--glibc X.Y",
        "glibc of that machine or target (default: minimum-libc-version of [tool.uv], or this machine's, at most 2.34).",
    )
    all_builds: bool = _define_option(
        "--all", "Show all rejected builds, with the reasons."
    )
    # This --python is for commands that inspect an existing environment.
    interpreter: str | None = _define_option(
        "--python PATH",
        "Interpreter of the environment, instead of --venv.",
    )
    any_lock: bool = _define_option(
        "--any",
        "At start, select the lock file that fits the machine, as sync does.",
    )
    proof: bool = _define_option(
        "--proof/--no-proof",
        "With --any: verify with kernels, once on each machine (default: --proof).",
        default=True,
    )
    install: bool = _define_option(
        "--install", "With --any: install the environment if it is missing."
    )
    require_gpu: bool = _define_option("--require-gpu", "Fail if no GPU can be used.")
    deep: bool = _define_option(
        "--deep",
        "Also check attention, FP8, FFT, solvers, CUDA graphs, torch.compile, and NCCL.",
    )
    bench: bool = _define_option(
        "--bench", "Also benchmark matrix products, copies, and ResNet-50."
    )
    nodes: str | None = _define_option(
        "--nodes LIST",
        "Names of nodes that must have a record, separated by commas or spaces.",
    )
    lock_files: tuple[Path, ...] = _define_list_option(
        "--lock FILE",
        "Lock file to convert (repeatable; default: this folder's).",
        type=_PATH,
    )
    output: Path | None = _define_option(
        "-o --output FILE",
        "Write to FILE (default: -, stdout).",
        type=_PathType(path_type=Path, dir_okay=False),
        callback=lambda _context, _option, path: None if path == Path(STDOUT) else path,
    )
    with_servers: tuple[str, ...] = _define_list_option(
        "--with",
        "Also start a Jupyter server, or with --any an SSH server (repeatable).",
        type=click.Choice(["jupyter", "ssh"]),
    )
    remove: bool = _define_option("--remove", "Remove the lines that hook added.")
    record: Path | None = _define_option(
        "--record DIR",
        "Write the result of this node into DIR, for report.",
        type=_PATH,
    )
    as_json: bool = _define_option("--json", "Print one JSON document on stdout.")
    as_events: bool = _define_option(
        "--json-events", "Print progress as JSON lines, ending with the document."
    )
    quiet: bool = _define_option(
        "-q --quiet", "Print only results and errors.", envvar="GPUINSTALL_QUIET"
    )
    verbose: bool = _define_option(
        "-v --verbose", "Print executed commands and complete lists."
    )

    @property
    def sourcing(self) -> Sourcing:
        """The package sources that the options specify."""
        addresses = {
            "--index": self.indexes,
            "--default-index": (self.default_index,) if self.default_index else (),
            "--find-links": self.find_links,
        }
        return Sourcing(
            torch_index=split_torch_index(self.torch_index or "")[0] or None,
            addresses=addresses,
            no_sources=self.no_sources,
            wheels=self.wheels,
            offline=self.offline,
        )

    def read_other_machine(self, *, assumes_driver: bool = False) -> Machine | None:
        """Return the machine given by ``--machine`` or ``--gpu``, if any.

        Args:
            assumes_driver: Whether to assume the latest driver without ``--driver``.

        Raises:
            UsageError: The file or an option is malformed.
        """
        words = (self.gpu_names, self.driver, self.os, self.arch, self.glibc)
        if self.machine is not None:
            if any(words):
                raise UsageError(
                    "machine-twice",
                    "--machine cannot be combined with --gpu, --driver, --os, and --arch",
                    hint=make_change(without=("--machine", self.machine)),
                )
            return read_machine_file(self.machine)
        if self.driver and not self.gpu_names:
            hint = make_change(
                note="uses this machine's driver", without=("--driver", self.driver)
            )
            raise UsageError("gpu-missing", "--driver requires --gpu", hint=hint)
        if any(words):
            from gpuinstall.machine.options import machine_from_options

            return machine_from_options(*words, assumes_driver=assumes_driver)
        return None

    def read_settings(self) -> Settings:
        """Read the request and settings that the options specify.

        Raises:
            UsageError: A file or an option is malformed.
        """
        from gpuinstall.project import Settings

        editables = [f"-e {folder}" for folder in self.editables]
        gpus = None
        if self.gpus is not None:
            gpus = tuple(filter(None, map(str.strip, self.gpus.split(","))))
        files = [
            word for word in self.requirements if word.endswith(_REQUIREMENT_FILES)
        ]
        words = [word for word in self.requirements if word not in files]
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
                if _get_option_source(name) is ParameterSource.ENVIRONMENT:
                    option = str(_OPTION_ROWS[name].settings["envvar"])
                places[value] = TextOrigin(option)
        # With --into, --python selects the environment instead of a version.
        python = None if self.into else self.python
        request = Request(
            requirements,
            python=python,
            backend=backend,
            places=places,
            gpus=gpus,
            no_groups=self._omitted_groups,
            targets=self.targets,
            relax=self.relax,
            sourcing=self.sourcing,
        )
        if not self.machine:
            # The options for a machine describe no Python.
            request = replace(request, preferred_pythons=(RUNNING_PYTHON,))
        base = None
        if python:
            from gpuinstall.machine.pythons import select_base_python

            request, base = select_base_python(request)
        return Settings(
            request,
            files=self._read_files(files),
            only=self.only,
            is_gpu_given=bool(self.gpu_names),
            venv=self.venv,
            base_python=base,
            command_folder=self.command_folder,
        )

    @property
    def _omitted_groups(self) -> tuple[str, ...]:
        """The normalized names of ``--no-group``, or ``:all:``."""
        names = tuple(map(normalize_name, self.no_groups))
        return (*names, ":all:") if self.no_default_groups else names

    def packages_to_upgrade(self) -> list[str]:
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
                    hint=make_command("lock --upgrade-package", one.name, one.text),
                )
        return [one.name for one in requirements]

    def _read_files(self, more: Sequence[str]) -> dict[str, RequirementsFile]:
        """Read requirements files, groups, and constraints in the options."""
        from gpuinstall.lock.request.declaration import read_constraints, read_inputs
        from gpuinstall.project.run import fetch_included_files
        from gpuinstall.sources.configuration import read_no_sources
        from gpuinstall.sources.requirements_file import extra_path, group_path

        # As in uv, --no-group takes precedence.
        omitted = {group_path(name) for name in self._omitted_groups}
        groups = (name for name in map(group_path, self.groups) if name not in omitted)
        extras = map(extra_path, self.extras)
        names = (*self.requirement_files, *more, *groups, *extras)
        read = partial(_read_stream, offline=self.offline)
        no_sources: frozenset[str] = frozenset()
        if names:
            no_sources = read_no_sources(Path.cwd(), self.sourcing)
        files = {}
        with fetch_included_files(self.terminal, offline=self.offline):
            for name in names:
                files[name] = read(name) or read_inputs(name, no_sources=no_sources)
            for name in self.constraints:
                listed = read(name) or read_constraints(name)
                files[name] = listed.as_constraints()
        return files

    def open_project(
        self,
        *,
        folder: Path | None = None,
        here: Machine | None = None,
        **changes: Any,
    ) -> AbstractContextManager[Project]:
        """Open a project with the settings from the command line.

        Args:
            folder: The project folder. None: the working folder.
            here: This machine, if it is already known.
            changes: Additional fields of the settings.
        """
        from gpuinstall.project import open_project

        settings = replace(self.read_settings(), **changes)
        return open_project(folder or Path.cwd(), settings, self.terminal, here=here)

    def read_paths(self, *, is_read_only: bool = False) -> EnvironmentPaths:
        """Return the paths of the environment and lock files.

        Args:
            is_read_only: Whether the command does not create the environment.
        """
        from gpuinstall.project.run import read_paths

        return read_paths(self.venv, Path.cwd(), is_read_only=is_read_only)


def is_environment_given() -> bool:
    """Return whether --venv or its variable selects the environment."""
    origins = {ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT}
    return _get_option_source("venv") in origins


def is_on_command_line(name: str) -> bool:
    """Return whether an option's value is from the command line."""
    return _get_option_source(name) is ParameterSource.COMMANDLINE


def _get_option_source(name: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(name)


OUTPUT_OPTIONS = ("as_json", "as_events", "quiet", "verbose")
"""The options of all commands, which configure the Terminal."""
SOURCING_OPTIONS = ("torch_index", "offline")
REQUEST_OPTIONS = (
    "requirements",
    "requirement_files",
    "editables",
    "constraints",
    "groups",
    "no_groups",
    "no_default_groups",
    "extras",
    "indexes",
    "default_index",
    "find_links",
    "no_sources",
    "python",
    "backend",
    "gpus",
    "relax",
    *SOURCING_OPTIONS,
)
MACHINE_OPTIONS = ("gpu_names", "driver", "os", "arch", "glibc")
_OPTION_ROWS = {
    name: row
    for name, row in vars(CommandOptions).items()
    if isinstance(row, _OptionRow)
}
OPTIONS_WITH_VALUES = {
    word
    for row in _OPTION_ROWS.values()
    for word in row.words
    if not row.settings["is_flag"]
}
"""The spellings of options that are followed by a value."""
VARIABLE_OPTIONS = tuple(
    name for name in REQUEST_OPTIONS if "envvar" in _OPTION_ROWS[name].settings
)
"""The options of a request that environment variables can set."""


def make_parameter(name: str, *, is_hidden: bool) -> click.Parameter:
    """Create the click parameter for an option.

    A hidden option can be set only by its environment variable."""
    row = _OPTION_ROWS[name]
    if not row.words:
        settings = {key: row.settings.get(key) for key in ("metavar", "type")}
        return click.Argument([name], nargs=-1 if row.empty == () else 1, **settings)
    return click.Option([*row.words, name], hidden=is_hidden, **row.settings)


def relocate_value(name: str, value: Any, folder: Path) -> Any:
    """Return an option's value with its paths relative to the project folder.

    Args:
        name: The name of the option. ``venv`` is relative to the project already.
        value: Its value, or a tuple of values.
        folder: The folder of the command line, relative to the project folder.
    """
    metavar = str(_OPTION_ROWS[name].settings["metavar"])
    if value is None or name == "venv" or not re.search(_RELOCATED, metavar):
        return value
    if folder == Path():
        return value
    if isinstance(value, tuple):
        return tuple(relocate_value(name, one, folder) for one in value)
    is_path = bool(re.search(_PATHS, metavar))
    return type(value)(_relocate(str(value), folder, is_path=is_path))


def _relocate(value: str, folder: Path, *, is_path: bool) -> str:
    """Return a path, or a requirement with one, relative to the project.

    Args:
        value: The value. A group may follow a path: ``pyproject.toml:dev``
        folder: The folder of the command line, relative to the project.
        is_path: Whether a bare word is a path instead of a name, a version, or a
            program on PATH.
    """
    name, sign, place = value.rpartition(" @ ")
    is_elsewhere = place == STDOUT or is_url(place) or place.startswith("~")
    is_path |= bool(re.search(r"[/\\]|^\.", place))
    if is_elsewhere or not (is_path or place.endswith(_REQUIREMENT_FILES)):
        return value
    moved = os.path.normpath(folder / place)
    # A bare word would be a name.
    is_word = os.sep not in moved and not moved.startswith(".")
    return f"{name}{sign}{'./' if is_word else ''}{moved}"


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
        raise make_machine_error(f"{source} cannot be read: {reason}") from None
    if not machine.problems:
        return machine
    # The module loads the failure catalog.
    from gpuinstall.catalog.failures.problems import with_own_fixes

    return with_own_fixes(machine)


def _read_document(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(DOCUMENT_BYTES) if sys.stdin else b""
    path = Path(name)
    # Reading blocks on a pipe: --machine <(ssh other …)
    if path.is_fifo() and is_inside(path, Path.cwd()):
        raise OSError(errno.EINVAL, "it is a pipe in this folder", name)
    with path.open("rb") as file:
        return file.read(DOCUMENT_BYTES)


def _read_stream(name: str, *, offline: bool) -> RequirementsFile | None:
    """Read requirements from stdin (``-``), a pipe, or a URL.

    Args:
        name: The argument of an option.
        offline: Whether to use only the cache.

    Returns:
        The requirements. None if the argument is the path of a file.

    Raises:
        UsageError: A requirement is malformed.
    """
    from gpuinstall.sources.requirements_file import (
        convert_content_errors,
        parse_requirements,
    )

    if is_url(name):
        # Slow to import.
        from gpuinstall.sources.session import read_remote_text

        text = read_remote_text(name, offline=offline)
        return parse_requirements(text, Path(remove_logins(name)))
    path = Path(name)
    if name != STDOUT and not path.is_fifo():
        return None
    with convert_content_errors(path):
        text = decode_text(_read_document(name))
    return parse_requirements(text, path)
