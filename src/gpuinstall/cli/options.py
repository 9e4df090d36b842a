"""The options that several commands share, and the machine and the request that they select."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import DOCUMENT_BYTES, open_regular, parse_json
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.sourcing import Sourcing
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.project import Project, Settings, open_project
from gpuinstall.sources.requirements_file import RequirementsFile, group_path, read_requirements

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuinstall.base.reporter import Reporter

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)


def bundled(name: str, kind: Callable[..., Any], options: Mapping[str, Decorator]) -> Decorator:
    """Return the decorator that gives a command several options as one argument.

    Args:
        name: The argument.
        kind: Makes its value of the options' values.
        options: The options in the order of the help, by the keywords that ``kind`` takes. One of them may be
            a bundle too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_options(*args: Any, **kwargs: Any) -> Any:
            values = {keyword: kwargs.pop(keyword) for keyword in options}
            kwargs[name] = kind(**values)
            return function(*args, **kwargs)

        command: Callable[..., Any] = with_options
        for option in reversed([*options.values()]):
            command = option(command)
        return command

    return decorate


upgrade = click.option(
    "--upgrade", is_flag=True, help="Upgrade the requested packages to their newest versions."
)
upgrade_package = click.option(
    "--upgrade-package",
    "packages",
    multiple=True,
    metavar="P",
    help="Upgrade only this package.",
)
only = click.option(
    "--only", is_flag=True, help="Request only these packages; drop the earlier requests."
)
venv = click.option(
    "--venv",
    metavar="DIR",
    type=Path,
    default=".venv",
    envvar="GPUINSTALL_VENV",
    help="The environment (default: .venv).",
)
offline = click.option(
    "--offline",
    is_flag=True,
    envvar="GPUINSTALL_OFFLINE",
    help="Use no network.",
)
wheels = click.option(
    "--wheels",
    metavar="DIR",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Take the wheels from this folder.",
)
_TORCH_INDEX = {
    "torch_index": click.option(
        "--torch-index",
        envvar="GPUINSTALL_TORCH_INDEX",
        metavar="URL",
        help="The base URL of PyTorch's index.",
    )
}
_FETCHING = {**_TORCH_INDEX, "offline": offline}
_SOURCING = {
    **_FETCHING,
    "only_binary": click.option(
        "--only-binary",
        is_flag=True,
        envvar="GPUINSTALL_ONLY_BINARY",
        help="Use wheels only; run no package's build code.",
    ),
}
sourcing = bundled("sourcing", Sourcing, _SOURCING)
"""Gives a command that resolves or installs every option of Sourcing."""
fetching = bundled("sourcing", Sourcing, _FETCHING)
"""Gives a command that only fetches the options of Sourcing that it obeys."""
torch_source = bundled("sourcing", Sourcing, _TORCH_INDEX)
"""Gives a command that only names PyTorch's index that option of Sourcing."""
_MACHINE_WORDS = {
    "gpu": click.option(
        "--gpu",
        multiple=True,
        metavar="NAME",
        help='Plan for a GPU by its name, such as "RTX 5090".',
    ),
    "driver": click.option(
        "--driver", metavar="VERSION", help="The driver of the machine that --gpu names."
    ),
    "os": click.option(
        "--os",
        type=click.Choice(["linux", "windows", "macos"]),
        help="Its operating system (linux).",
    ),
    "arch": click.option(
        "--arch",
        type=click.Choice(["x86_64", "aarch64", "arm64"]),
        help="Its architecture (x86_64, or the GPU's own).",
    ),
    "glibc": click.option("--glibc", metavar="X.Y", help="Its glibc (2.28)."),
}
_MACHINE = {
    "machine": click.option(
        "--machine",
        metavar="FILE",
        help="Plan for a recorded machine (probe --json; - is stdin).",
    ),
    **_MACHINE_WORDS,
}
_REQUEST: dict[str, Decorator] = {
    "sourcing": sourcing,
    "requirements": click.argument("requirements", nargs=-1, metavar="[REQ]..."),
    "files": click.option(
        "-r",
        "--requirement",
        "files",
        multiple=True,
        metavar="FILE",
        help="Read requirements from a file.",
    ),
    "editables": click.option(
        "-e",
        "--editable",
        "editables",
        multiple=True,
        metavar="DIR",
        help="Install a project as editable.",
    ),
    "constraints": click.option(
        "-c",
        "--constraint",
        "constraints",
        multiple=True,
        metavar="FILE",
        help="Constrain versions.",
    ),
    "groups": click.option(
        "--group",
        "groups",
        multiple=True,
        metavar="NAME",
        help="Add a dependency group of pyproject.toml.",
    ),
    "python": click.option(
        "--python",
        envvar="GPUINSTALL_PYTHON",
        metavar="X.Y",
        help="The Python to install for.",
    ),
    "backend": click.option(
        "--backend",
        envvar="GPUINSTALL_BACKEND",
        metavar="TAG",
        help="Force a build: cu126 (CUDA 12.6), cpu, …",
    ),
    "gpus": click.option(
        "--gpus", metavar="I,J", help="The GPUs to plan for, by index or UUID, or: visible."
    ),
    "relax": click.option(
        "--relax",
        is_flag=True,
        help="If this machine cannot have what is requested, take what is nearest to it.",
    ),
}


class MachineOptions(NamedTuple):
    """The machine that the command line selects: by a file, in words, or this one if it has neither."""

    machine: str | None = None
    gpu: tuple[str, ...] = ()
    driver: str | None = None
    os: str | None = None
    arch: str | None = None
    glibc: str | None = None


class RequestOptions(NamedTuple):
    """What the command line requests."""

    requirements: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    editables: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    python: str | None = None
    backend: str | None = None
    gpus: str | None = None
    relax: bool = False
    sourcing: Sourcing = Sourcing()

    @property
    def has_requirements(self) -> bool:
        """Whether the command line names what to install."""
        return bool(self.requirements or self.files or self.editables or self.groups)

    def read_files(self) -> dict[str, RequirementsFile]:
        """Return the requirements files and groups by their names, each read once.

        Raises:
            UsageError: if one of them is malformed.
        """
        from gpuinstall.lock.declaration import read_inputs

        files = {}
        for name in (*self.files, *map(group_path, self.groups)):
            files[name] = read_inputs(name)
        for name in self.constraints:
            file = read_requirements(Path(name))
            # A constraints file requests nothing: its requirements are limits.
            files[name] = RequirementsFile(
                constraints=file.requirements,
                settings=file.settings,
                included=file.included,
            )
        return files


_COMPAT_HELP = "Put NVIDIA's newer libraries (cuda-compat) above an old driver of data-centre GPUs."
cuda_compat = click.option("--cuda-compat", is_flag=True, help=_COMPAT_HELP)


class CompatOptions(NamedTuple):
    """The forward-compatibility libraries that the command line asks for."""

    flag: bool = False
    place: str | None = None

    @property
    def source(self) -> str | None:
        """Where they are; empty: wherever they are usually found; None: they are not asked for."""
        if self.place is None and self.flag:
            return ""
        return self.place


compat_options = bundled(
    "compat",
    CompatOptions,
    {
        "flag": click.option("--cuda-compat", "flag", is_flag=True, help=_COMPAT_HELP),
        "place": click.option(
            "--cuda-compat-from",
            "place",
            metavar="PATH|URL",
            help="The same, from a tar, a folder or a manifest.",
        ),
    },
)
"""Gives a command ``--cuda-compat`` and ``--cuda-compat-from``."""
machine_options = bundled("machine", MachineOptions, _MACHINE)
"""Gives a command ``--machine`` and ``--gpu … --driver …``."""
machine_words = bundled("described", MachineOptions, _MACHINE_WORDS)
"""Gives a command ``--gpu … --driver …`` alone."""
request_options = bundled("request", RequestOptions, _REQUEST)
"""Gives a command that resolves REQ, ``-r``, ``-e``, … and the options of Sourcing."""


def open_requested(
    request: RequestOptions,
    machine: MachineOptions,
    reporter: Reporter,
) -> AbstractContextManager[Project]:
    """Open the project of the working folder with what the command line requests.

    Raises:
        UsageError: if a file, the machine or a path is malformed.
    """
    settings = read_settings(request)
    if machine.gpu:
        # A machine in words has a Python like this one's.
        like_here = replace(settings.request, preferred_pythons=(RUNNING_PYTHON,))
        settings = replace(settings, request=like_here)
    settings = replace(settings, machine=read_other_machine(machine))
    return open_project(Path.cwd(), settings, reporter)


def open_folder(
    sourcing: Sourcing,
    reporter: Reporter,
    *,
    folder: Path | None = None,
    venv: Path | None = None,
) -> AbstractContextManager[Project]:
    """Open a project, by default that of the working folder, with nothing requested beside its own files' request."""
    settings = Settings(Request((), sourcing=sourcing), venv=venv)
    return open_project(folder or Path.cwd(), settings, reporter)


def read_settings(request: RequestOptions) -> Settings:
    """Return what the command line requests of a run.

    Raises:
        UsageError: if a file or a path is malformed.
    """
    editables = [f"-e {folder}" for folder in request.editables]
    return Settings(
        Request(
            (*request.requirements, *editables),
            python=request.python,
            backend=request.backend,
            gpus=_gpu_indices(request.gpus),
            relax=request.relax,
            sourcing=request.sourcing,
        ),
        files=request.read_files(),
    )


def _gpu_indices(gpus: str | None) -> tuple[str, ...] | None:
    """Return the indices or UUIDs that ``--gpus`` selects; None for all GPUs."""
    if gpus == "visible":
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus is None:
        return None
    indices: list[str] = []
    for part in gpus.split(","):
        index = part.strip()
        if index == "-1":  # hides itself and all that follow, as CUDA reads its variable
            break
        if index:
            indices.append(index)
    return tuple(indices)


def read_other_machine(selected: MachineOptions) -> Machine | None:
    """Return the machine that the command line selects; None if that is this one.

    Raises:
        UsageError: if its file or its words are malformed.
    """
    file, words = selected.machine, selected[1:]
    if file is not None:
        if any(words):
            raise UsageError(
                "machine-twice",
                "--machine cannot be combined with --gpu, --driver, --os and --arch",
            )
        return read_machine_file(file)
    if selected.gpu:
        from gpuinstall.words import machine_in_words

        return machine_in_words(*words)
    if any(words):
        raise UsageError("gpu-missing", "--driver, --os and --arch require --gpu")
    return None


def read_machine_file(name: str) -> Machine:
    """Return the machine of a document, or of stdin (``-``).

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        return Machine.from_dict(parse_json(_read_document(name)))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        source = "stdin" if name == "-" else name
        raise UsageError(
            "machine-malformed",
            f"{source} cannot be read: {reason} (gpuinstall probe --json writes one)",
        ) from None


def _read_document(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(DOCUMENT_BYTES) if sys.stdin else b""
    path = Path(name)
    # A pipe is waited for: --machine <(ssh other gpuinstall probe --json)
    with open_regular(path) if path.is_file() else path.open("rb") as file:
        return file.read(DOCUMENT_BYTES)


def find_interpreter(python: str, *, hint: str) -> Path:
    """Return the path of the interpreter that ``--python`` names.

    Raises:
        UsageError: if there is none.
    """
    from shutil import which

    program = which(python)
    if program is None:
        raise UsageError("python-missing", f"no such interpreter: {python}", hint=hint)
    return Path(program).absolute()
