"""The options of the commands, a row each, and the run that they select.

A command names its rows in ``framed``, and gets their values as one ``CommandOptions``. A new option is a row here, its name
there, and the line that obeys it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.base.errors import UsageError
from gpuinstall.base.sourcing import Sourcing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.project import Project, Settings
    from gpuinstall.sources.requirements_file import RequirementsFile

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
PATH = click.Path(path_type=Path)


def _row(*words: str, **settings: Any) -> Any:
    """Return a field for an option, whose value is empty in a command without it."""
    empty: Any = None
    if settings.get("is_flag"):
        empty = False
    elif settings.get("multiple"):
        empty = ()
    return field(default=empty, metadata={"words": words, "settings": settings})


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The values of the options that a command has, and those of the others when they are not given."""

    torch_index: str | None = _row(
        "--torch-index",
        envvar="GPUINSTALL_TORCH_INDEX",
        metavar="URL",
        help="The base URL of PyTorch's index.",
    )
    offline: bool = _row(
        "--offline", is_flag=True, envvar="GPUINSTALL_OFFLINE", help="Use no network."
    )
    only_binary: bool = _row(
        "--only-binary",
        is_flag=True,
        envvar="GPUINSTALL_ONLY_BINARY",
        help="Use wheels only; run no package's build code.",
    )
    wheels: Path | None = _row(  # noqa: RUF009  a field
        "--wheels",
        metavar="DIR",
        type=click.Path(path_type=Path, resolve_path=True),
        help="Take the wheels from this folder.",
    )
    requirements: tuple[str, ...] = _row(multiple=True, metavar="[REQ]...")
    files: tuple[str, ...] = _row(
        "-r", "--requirement", multiple=True, metavar="FILE", help="Read requirements from a file."
    )
    editables: tuple[str, ...] = _row(
        "-e", "--editable", multiple=True, metavar="DIR", help="Install a project as editable."
    )
    constraints: tuple[str, ...] = _row(
        "-c", "--constraint", multiple=True, metavar="FILE", help="Constrain versions."
    )
    groups: tuple[str, ...] = _row(
        "--group", multiple=True, metavar="NAME", help="Add a dependency group of pyproject.toml."
    )
    python: str | None = _row(
        "--python", envvar="GPUINSTALL_PYTHON", metavar="X.Y", help="The Python to install for."
    )
    backend: str | None = _row(
        "--backend",
        envvar="GPUINSTALL_BACKEND",
        metavar="TAG",
        help="Force a build: cu126 (CUDA 12.6), cpu, …",
    )
    gpus: str | None = _row(
        "--gpus", metavar="I,J", help="The GPUs to plan for, by index or UUID, or: visible."
    )
    relax: bool = _row(
        "--relax",
        is_flag=True,
        help="If this machine cannot have what is requested, take what is nearest to it.",
    )
    only: bool = _row(
        "--only", is_flag=True, help="Request only these packages; drop the earlier requests."
    )
    cuda_compat: bool = _row(
        "--cuda-compat",
        is_flag=True,
        help="Put NVIDIA's newer libraries (cuda-compat) above an old driver of data-centre GPUs.",
    )
    cuda_compat_from: str | None = _row(
        "--cuda-compat-from",
        metavar="PATH|URL",
        help="The same, from a tar, a folder or a manifest.",
    )
    venv: Path | None = _row(  # noqa: RUF009  a field
        "--venv",
        metavar="DIR",
        type=Path,
        default=".venv",
        envvar="GPUINSTALL_VENV",
        help="The environment (default: .venv).",
    )
    into: bool = _row(
        "--into",
        is_flag=True,
        help="Install into the existing environment named by --python PATH or --venv DIR, "
        "or this application's.",
    )
    repair: bool = _row(
        "--repair", is_flag=True, help="With --into: bring back the builds that were proven there."
    )
    dry_run: bool = _row(
        "--dry-run",
        is_flag=True,
        help="Show what would change and be downloaded; change nothing.",
    )
    upgrade: bool = _row(
        "--upgrade", is_flag=True, help="Upgrade the requested packages to their newest versions."
    )
    packages: tuple[str, ...] = _row(
        "--upgrade-package", multiple=True, metavar="P", help="Upgrade only this package."
    )
    replace: bool = _row(
        "--replace",
        is_flag=True,
        help="Also replace packages and folders that gpuinstall did not make.",
    )
    yes: bool = _row("-y", "--yes", is_flag=True, help="Do not ask before a larger download.")
    target: str | None = _row(
        "--target",
        metavar="T",
        help="The lock to install: cu126, cpu, … (default: the one that fits).",
    )
    targets: tuple[str, ...] = _row(
        "--target", multiple=True, metavar="T", help="Lock for cu126, cu130-windows-x86_64, …"
    )
    machine: str | None = _row(
        "--machine",
        metavar="FILE",
        help="Plan for a recorded machine (probe --json; - is stdin).",
    )
    machines: tuple[str, ...] = _row(
        "--machine",
        multiple=True,
        metavar="FILE|DIR",
        help="Lock for the machine of a document (probe --json), or those in a folder of records.",
    )
    gpu: tuple[str, ...] = _row(
        "--gpu",
        multiple=True,
        metavar="NAME",
        help='Plan for a GPU by its name, such as "RTX 5090".',
    )
    driver: str | None = _row(
        "--driver", metavar="VERSION", help="The driver of the machine that --gpu names."
    )
    os: str | None = _row(
        "--os",
        type=click.Choice(["linux", "windows", "macos"]),
        help="Its operating system (linux).",
    )
    arch: str | None = _row(
        "--arch",
        type=click.Choice(["x86_64", "aarch64", "arm64"]),
        help="Its architecture (x86_64, or the GPU's own).",
    )
    glibc: str | None = _row("--glibc", metavar="X.Y", help="Its glibc (2.28).")
    everything: bool = _row("--all", is_flag=True, help="Show every rejected build, and why.")
    live: bool = _row(
        "--live", is_flag=True, help="Ask the indexes what they list today, and resolve."
    )
    all_supported: bool = _row(
        "--all-supported", is_flag=True, help="Cover all known GPUs, with every driver."
    )
    prune: bool = _row(
        "--prune", is_flag=True, help="Remove locks that are for none of the targets."
    )
    script: Path | None = _row(  # noqa: RUF009  a field
        "--script", metavar="FILE", type=PATH, help="Lock the inline metadata of a script."
    )

    @property
    def sourcing(self) -> Sourcing:
        """How packages are had."""
        return Sourcing(
            torch_index=self.torch_index,
            wheels=self.wheels,
            offline=self.offline,
            only_binary=self.only_binary,
        )

    @property
    def compat_source(self) -> str | None:
        """Where the forward-compatibility libraries are; empty: wherever they usually are; None: not asked for."""
        if self.cuda_compat_from is None and self.cuda_compat:
            return ""
        return self.cuda_compat_from

    @property
    def machine_words(self) -> tuple[Any, ...]:
        """The machine in words: GPUs, driver, operating system, architecture and glibc."""
        return self.gpu, self.driver, self.os, self.arch, self.glibc

    @property
    def other_machine(self) -> Machine | None:
        """The machine that is selected; None if that is this one.

        Raises:
            UsageError: if its file or its words are malformed.
        """
        if self.machine is not None:
            if any(self.machine_words):
                raise UsageError(
                    "machine-twice",
                    "--machine cannot be combined with --gpu, --driver, --os and --arch",
                )
            return read_machine_file(self.machine)
        if self.gpu:
            from gpuinstall.words import machine_in_words

            return machine_in_words(*self.machine_words)
        if any(self.machine_words):
            raise UsageError("gpu-missing", "--driver, --os and --arch require --gpu")
        return None

    @cached_property
    def settings(self) -> Settings:
        """What is requested of a run; its files are read once.

        Raises:
            UsageError: if a file or a path is malformed.
        """
        from gpuinstall.base.request import Request
        from gpuinstall.project import Settings

        editables = [f"-e {folder}" for folder in self.editables]
        request = Request(
            (*self.requirements, *editables),
            python=self.python,
            backend=self.backend,
            gpus=_gpu_indices(self.gpus),
            relax=self.relax,
            sourcing=self.sourcing,
        )
        return Settings(
            request,
            files=self._read_files(),
            only=self.only,
            venv=self.venv,
            cuda_compat=self.compat_source,
        )

    def _read_files(self) -> dict[str, RequirementsFile]:
        """Return the requirements files and groups by their names, each read once."""
        from gpuinstall.lock.declaration import read_inputs
        from gpuinstall.sources.requirements_file import (
            RequirementsFile,
            group_path,
            read_requirements,
        )

        files = {}
        for name in (*self.files, *map(group_path, self.groups)):
            files[name] = read_inputs(name)
        for name in self.constraints:
            file = read_requirements(Path(name))
            # A constraints file requests nothing: its requirements are limits.
            files[name] = RequirementsFile(
                constraints=file.requirements, settings=file.settings, included=file.included
            )
        return files

    def open(
        self, reporter: Reporter, *, folder: Path | None = None, **changes: Any
    ) -> AbstractContextManager[Project]:
        """Open a project, by default that of the working folder, with what is selected.

        Args:
            reporter: Where it reports.
            folder: Its folder.
            changes: Fields of its settings that the command decides.
        """
        from gpuinstall.project import open_project

        return open_project(folder or Path.cwd(), replace(self.settings, **changes), reporter)


SOURCING = ("torch_index", "offline", "only_binary")
REQUEST = (
    *SOURCING,
    "requirements",
    "files",
    "editables",
    "constraints",
    "groups",
    "python",
    "backend",
    "gpus",
    "relax",
)
MACHINE_WORDS = ("gpu", "driver", "os", "arch", "glibc")
_ROWS = {row.name: row for row in fields(CommandOptions)}


def option(name: str) -> Decorator:
    """Return click's decorator for a row."""
    words, settings = _ROWS[name].metadata["words"], _ROWS[name].metadata["settings"]
    if not words:
        return click.argument(name, nargs=-1, metavar=settings["metavar"])
    return click.option(*words, name, **settings)


venv = option("venv")


def words_of(name: str) -> str:
    """Return how a row is written on the command line."""
    return str(_ROWS[name].metadata["words"][-1])


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


def read_machine_file(name: str) -> Machine:
    """Return the machine of a document, or of stdin (``-``).

    Raises:
        UsageError: if it cannot be read.
    """
    from gpuinstall.base.files import parse_json
    from gpuinstall.base.machine import Machine

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
    from gpuinstall.base.files import DOCUMENT_BYTES, open_regular

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
