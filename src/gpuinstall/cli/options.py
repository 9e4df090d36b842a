"""The options that several commands share, and the machine and request that they name."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.errors import UsageError
from gpuinstall.files import DOCUMENT_BYTES, open_regular, parse_json
from gpuinstall.machine import Machine
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.project import Settings
from gpuinstall.request import Request
from gpuinstall.requirements_file import RequirementsFile, group_path, read_requirements
from gpuinstall.sourcing import Sourcing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from click.shell_completion import CompletionItem

    from gpuinstall.catalog import Build
    from gpuinstall.reporter import Reporter


def gpu_names(
    _context: click.Context, _option: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Names of GPUs that hold what was typed."""
    from gpuinstall.catalog.gpus import other_chips, products

    names = (
        *(product.name for product in products()),
        *(name for chip in other_chips() for name in chip.products),
    )
    return _items(dict.fromkeys(names), typed, anywhere=True)


def backend_tags(
    _context: click.Context, _option: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Tags of backends."""
    return _items(sorted({build.backend.tag for build in _builds()}), typed)


def target_names(
    _context: click.Context, _option: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Kinds of machine to lock for."""
    from gpuinstall.lock.target import Target

    return _items(
        sorted({str(Target(build.backend.tag, build.os, build.arch)) for build in _builds()}), typed
    )


def _builds() -> tuple[Build, ...]:
    """Those of every maker that can be installed."""
    from gpuinstall.catalog import load_catalog

    catalog = load_catalog()
    further = (build for read in catalog.further.values() for build in read().builds)
    return tuple(build for build in (*catalog.builds, *further) if build.absent is None)


def _items(values: Iterable[str], typed: str, *, anywhere: bool = False) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    wanted = typed.lower().strip("'\"")
    fits = [
        value
        for value in values
        if (wanted in value.lower() if anywhere else value.lower().startswith(wanted))
    ]
    return [CompletionItem(value) for value in fits]


upgrade = click.option(
    "--upgrade", is_flag=True, help="Upgrade the requested packages to their newest versions."
)
upgrade_package = click.option(
    "--upgrade-package", "packages", multiple=True, metavar="P", help="Upgrade only this package."
)
only = click.option(
    "--only", is_flag=True, help="Request only these packages; drop the earlier requests."
)
venv = click.option(
    "--venv",
    metavar="DIR",
    default=".venv",
    envvar="GPUINSTALL_VENV",
    help="The environment (default: .venv).",
)
torch_index = click.option(
    "--torch-index",
    envvar="GPUINSTALL_TORCH_INDEX",
    metavar="URL",
    help="The base URL of PyTorch's index.",
)
offline = click.option(
    "--offline", is_flag=True, envvar="GPUINSTALL_OFFLINE", help="Use no network."
)
extension_sources = click.option(
    "--extension-source",
    "extension_sources",
    multiple=True,
    envvar="GPUINSTALL_EXTENSION_SOURCE",
    metavar="URL",
    help="Take prebuilt extensions (flash-attn, …) from this page too.",
)
wheels = click.option(
    "--wheels",
    metavar="DIR",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Take the wheels from this folder.",
)
_FETCHING = (torch_index, offline)
_SOURCING = (
    *_FETCHING,
    click.option(
        "--code-check/--no-code-check",
        default=None,
        help="Take only packages with code for the GPUs (reads wheels).",
    ),
    click.option(
        "--only-binary",
        is_flag=True,
        envvar="GPUINSTALL_ONLY_BINARY",
        help="Use wheels only; run no package's build code.",
    ),
    extension_sources,
    click.option(
        "--build-extensions",
        is_flag=True,
        envvar="GPUINSTALL_BUILD_EXTENSIONS",
        help="Compile extensions that have no prebuilt file for this machine.",
    ),
)
_SOURCING_FIELDS = tuple(field.name for field in fields(Sourcing))
_MACHINE_FILE = click.option(
    "--machine", metavar="FILE", help="Plan for a recorded machine (probe --json); - is stdin."
)
_MACHINE_WORDS = (
    click.option(
        "--gpu",
        multiple=True,
        metavar="NAME",
        shell_complete=gpu_names,
        help='Plan for a GPU by its name, such as "RTX 5090".',
    ),
    click.option("--driver", metavar="VERSION", help="The driver of the machine that --gpu names."),
    click.option(
        "--os",
        type=click.Choice(["linux", "windows", "macos"]),
        help="Its operating system (linux).",
    ),
    click.option(
        "--arch",
        type=click.Choice(["x86_64", "aarch64", "arm64"]),
        help="Its architecture (x86_64, or the GPU's own).",
    ),
    click.option("--glibc", metavar="X.Y", help="Its glibc (2.28)."),
)
_REQUEST = (
    click.argument("requirements", nargs=-1, metavar="[REQ]..."),
    click.option(
        "-r",
        "--requirement",
        "files",
        multiple=True,
        metavar="FILE",
        help="Read requirements from a file.",
    ),
    click.option(
        "-e",
        "--editable",
        "editables",
        multiple=True,
        metavar="DIR",
        help="Install a project as editable.",
    ),
    click.option(
        "-c",
        "--constraint",
        "constraints",
        multiple=True,
        metavar="FILE",
        help="Constrain versions.",
    ),
    click.option(
        "--group",
        "groups",
        multiple=True,
        metavar="NAME",
        help="Add a dependency group of pyproject.toml.",
    ),
    click.option(
        "--python", envvar="GPUINSTALL_PYTHON", metavar="X.Y", help="The Python to install for."
    ),
    click.option(
        "--backend",
        envvar="GPUINSTALL_BACKEND",
        metavar="TAG",
        shell_complete=backend_tags,
        help="Force a build: cu126 (CUDA 12.6), cpu, …",
    ),
    click.option(
        "--gpus", metavar="I,J", help="The GPUs to plan for, by index or UUID, or: visible."
    ),
    click.option(
        "--project/--no-project",
        "declared",
        default=True,
        help="Include this folder's requirements, or not.",
    ),
)


class MachineOptions(NamedTuple):
    """The machine that the command line names: by a file, in words, or (when nothing is said) this one."""

    machine: str | None = None
    gpu: tuple[str, ...] = ()
    driver: str | None = None
    os: str | None = None
    arch: str | None = None
    glibc: str | None = None


class RequestOptions(NamedTuple):
    """What the command line asks for."""

    requirements: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    editables: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    python: str | None = None
    backend: str | None = None
    gpus: str | None = None
    declared: bool = True
    sourcing: Sourcing = Sourcing()

    @property
    def has_requirements(self) -> bool:
        """Say whether the command line names what to install."""
        return bool(self.requirements or self.files or self.editables or self.groups)

    @property
    def by_hand(self) -> tuple[str, ...]:
        """The requirements that stand on the command line itself."""
        return (*self.requirements, *(f"-e {folder}" for folder in self.editables))

    def read(self) -> dict[str, RequirementsFile]:
        """Read the files and groups that are named, each once; raise UsageError for a malformed one."""
        from gpuinstall.lock.declaration import read_inputs

        read = {name: read_inputs(name) for name in (*self.files, *map(group_path, self.groups))}
        limits = {name: read_requirements(Path(name)) for name in self.constraints}
        within = {
            name: RequirementsFile(
                (), listed.requirements, listed.settings, included=listed.included
            )
            for name, listed in limits.items()
        }
        return read | within


def machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--machine`` and ``--gpu … --driver …`` as one argument, ``machine``: MachineOptions."""
    return bundled(
        function,
        "machine",
        MachineOptions,
        MachineOptions._fields,
        (_MACHINE_FILE, *_MACHINE_WORDS),
    )


def machine_words(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--gpu … --driver …`` alone as one argument, ``described``: MachineOptions."""
    return bundled(function, "described", MachineOptions, MachineOptions._fields, _MACHINE_WORDS)


def request_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that resolves REQ, ``-r``, ``-e``, … and the options of Sourcing as one argument, ``request``."""
    return sourcing(bundled(function, "request", RequestOptions, RequestOptions._fields, _REQUEST))


def sourcing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that resolves or installs every option of Sourcing as one argument, ``sourcing``."""
    return bundled(function, "sourcing", Sourcing, _SOURCING_FIELDS, _SOURCING)


def fetching(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that only fetches what it takes of Sourcing as one argument, ``sourcing``."""
    return bundled(function, "sourcing", Sourcing, _SOURCING_FIELDS, _FETCHING)


def read_settings(request: RequestOptions, machine: MachineOptions, reporter: Reporter) -> Settings:
    """Read what the command line says of a run; raise UsageError for a malformed file, machine or path."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") if request.gpus == "visible" else request.gpus
    names = takewhile(lambda name: name != "-1", (part.strip() for part in (gpus or "").split(",")))
    indices = None if gpus is None else tuple(filter(None, names))
    pythons = (
        (RUNNING_PYTHON,) if machine.gpu else ()
    )  # a machine in words has a Python like this one's
    named = Request(
        request.by_hand,
        request.python,
        request.backend,
        indices,
        preferred_pythons=pythons,
        sourcing=request.sourcing,
    )
    other = read_named_machine(machine, reporter)
    return Settings(named, request.read(), declared=request.declared, machine=other)


def read_selected_machine(selected: MachineOptions, reporter: Reporter) -> Machine:
    """Read the machine that is named, or this one; raise UsageError where its file or its words are malformed."""
    if other := read_named_machine(selected, reporter):
        return other
    from gpuinstall.probe import read_machine

    return read_machine(reporter)


def read_named_machine(selected: MachineOptions, reporter: Reporter) -> Machine | None:
    """Read another machine than this one, where one is named; raise UsageError where it is malformed."""
    details = selected.driver or selected.os or selected.arch or selected.glibc
    if selected.machine is not None and (selected.gpu or details):
        raise UsageError(
            "machine-twice", "--machine cannot be combined with --gpu, --driver, --os and --arch"
        )
    if selected.machine is not None:
        return read_machine_file(selected.machine, reporter)
    if selected.gpu:
        from gpuinstall.words import machine_in_words

        return machine_in_words(
            selected.gpu, selected.driver, selected.os, selected.arch, selected.glibc
        )
    if details:
        raise UsageError("gpu-missing", "--driver, --os and --arch require --gpu")
    return None


def read_machine_file(name: str, reporter: Reporter) -> Machine:
    """Read a Machine document from a file or stdin (``-``), or a recorded machine's folder."""
    if name != "-" and Path(name).is_dir():
        from gpuinstall.probe import read_recording

        return read_recording(Path(name), reporter)
    return read_machine_document(name)


def read_machine_document(name: str) -> Machine:
    """Read a Machine document from a file, or from stdin (``-``); raise UsageError where there is none."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(DOCUMENT_BYTES) if sys.stdin else b""
        else:
            path = Path(name)
            # A pipe is waited for: --machine <(ssh other gpuinstall probe --json)
            with open_regular(path) if path.is_file() else path.open("rb") as file:
                raw = file.read(DOCUMENT_BYTES)
        return Machine.from_dict(parse_json(raw))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        source = "stdin" if name == "-" else name
        message = f"{source} cannot be read: {reason} (gpuinstall probe --json writes one)"
        raise UsageError("machine-malformed", message) from None


def bundled(
    function: Callable[..., Any],
    name: str,
    kind: Callable[..., Any],
    fields: tuple[str, ...],
    decorators: tuple[Callable[..., Any], ...],
) -> Callable[..., Any]:
    """Give a command several options as one argument, the ``fields`` of a ``kind``."""

    @functools.wraps(function)
    def with_options(*args: Any, **kwargs: Any) -> Any:
        packed = kind(**{key: kwargs.pop(key) for key in fields if key in kwargs})
        return function(*args, **kwargs, **{name: packed})

    for decorate in reversed(decorators):
        with_options = decorate(with_options)
    return with_options
