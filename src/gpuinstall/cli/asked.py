"""Options that name a machine and a request: the same in plan, install, lock and sync."""

from __future__ import annotations

import functools
import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.cli import options
from gpuinstall.cli.machine_file import read_machine_file
from gpuinstall.config import read_config
from gpuinstall.errors import UsageError
from gpuinstall.request import Request
from gpuinstall.requirements_file import read_requirements

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.config import Config
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter

_MACHINE = (
    click.option("--machine", metavar="FILE", help="Plan for a recorded machine (probe --json); - is stdin."),
    click.option("--gpu", multiple=True, metavar="NAME", help='Plan for a GPU by its name, such as "RTX 5090".'),
    click.option("--driver", metavar="VERSION", help="The driver of the machine that --gpu names."),
    click.option("--os", type=click.Choice(["linux", "windows", "macos"]), help="Its system (linux)."),
    click.option("--arch", type=click.Choice(["x86_64", "aarch64", "arm64"]), help="Its processor (x86_64)."),
)
_REQUEST = (
    click.argument("requirements", nargs=-1, metavar="[REQ]..."),
    click.option("-r", "--requirement", "files", multiple=True, metavar="FILE", help="Read requirements from a file."),
    click.option("--python", envvar="GPUINSTALL_PYTHON", metavar="X.Y", help="The Python to install for."),
    click.option("--backend", envvar="GPUINSTALL_BACKEND", metavar="TAG", help="Force a build, such as cu126 or cpu."),
    click.option("--gpus", metavar="I,J", help="The GPUs to plan for, by index or UUID; visible: this process's."),
    options.torch_index,
)


class AskedMachine(NamedTuple):
    """The machine that is meant: a file, words, or (when nothing is said) this one."""

    machine: str | None = None
    gpu: tuple[str, ...] = ()
    driver: str | None = None
    os: str | None = None
    arch: str | None = None

    @property
    def elsewhere(self) -> bool:
        """Say whether another machine than this one is meant."""
        return self.machine is not None or bool(self.gpu)


class AskedRequest(NamedTuple):
    """What is asked for on the command line."""

    requirements: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    python: str | None = None
    backend: str | None = None
    gpus: str | None = None
    torch_index: str | None = None


def machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--machine`` and ``--gpu … --driver …`` as one argument, ``machine``: an AskedMachine."""
    return _bundled(function, "machine", AskedMachine, _MACHINE)


def request_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command REQ, ``-r``, ``--python``, ``--backend``, ``--gpus`` as one argument, ``request``."""
    return _bundled(function, "request", AskedRequest, _REQUEST)


def asked_machine(asked: AskedMachine, reporter: Reporter) -> Machine:
    """Read the machine that is meant; raise UsageError where its file or its words are malformed."""
    in_words = asked.driver or asked.os or asked.arch
    if asked.machine is not None and (asked.gpu or in_words):
        raise UsageError("machine-twice", "--machine describes a machine, and so do --gpu, --driver, --os and --arch")
    if asked.machine is not None:
        return read_machine_file(asked.machine, reporter)
    if asked.gpu:
        from gpuinstall.words import machine_in_words

        return machine_in_words(asked.gpu, asked.driver, asked.os, asked.arch)
    if in_words:
        raise UsageError("gpu-missing", "--driver, --os and --arch describe the machine that --gpu names")
    from gpuinstall.probe import read_machine

    return read_machine(reporter)


def asked_request(asked: AskedRequest, config: Config, *, machine: AskedMachine) -> Request:
    """Put the command line before the project's settings; raise UsageError for a malformed file."""
    listed = (*asked.requirements, *(line for name in asked.files for line in read_requirements(Path(name))))
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Request(
        requirements=listed or config.requirements or ("torch",),
        python=asked.python or config.python,
        backend=asked.backend,
        gpus=_gpus(asked.gpus),
        allowed_backends=config.backends,
        preferred_pythons=() if machine.machine else (running,),
    )


def asked_index(asked: AskedRequest, config: Config) -> str | None:
    """Return the base of the torch index that the user names, if any: option, variable, project."""
    return asked.torch_index or config.torch_index


def here() -> Config:
    """Read the settings of the project in the working folder."""
    return read_config(Path.cwd())


def _gpus(text: str | None) -> tuple[str, ...] | None:
    if text == "visible":
        text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    names = takewhile(lambda name: name != "-1", (part.strip() for part in text.split(",")))
    return tuple(name for name in names if name)


def _bundled(
    function: Callable[..., Any],
    name: str,
    kind: type[AskedMachine | AskedRequest],
    decorators: tuple[Callable[..., Any], ...],
) -> Callable[..., Any]:
    fields = kind._fields

    @functools.wraps(function)
    def bundled(*args: Any, **kwargs: Any) -> Any:
        packed = kind(**{key: kwargs.pop(key) for key in fields})
        return function(*args, **kwargs, **{name: packed})

    for decorate in reversed(decorators):
        bundled = decorate(bundled)
    return bundled
