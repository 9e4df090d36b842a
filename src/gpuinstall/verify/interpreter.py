"""Which torch an interpreter finds, alone and as a program of the user's starts it, and what hides it.

torch is not imported to find it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from gpuinstall.base import process
from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.patience import read_patience
from gpuinstall.base.values import Value
from gpuinstall.base.versions import Backend, torch_backend
from gpuinstall.machine.children import how_it_ended, json_lines
from gpuinstall.verify.kernel_run import KERNELS
from gpuinstall.verify.kernels.context import MARK

LOOK = KERNELS / "look.py"

_Answer = TypeVar("_Answer")


class FoundTorch(Value):
    """The torch that an interpreter would import."""

    python: str
    """The interpreter's version."""

    venv: bool
    torch: str | None = None
    """Its file."""

    version: str | None = None
    toolkit: Backend | None = None
    """That of the maker's toolkit that it was built with; None: of no maker it names."""

    path: tuple[str, ...] = ()
    """The folders that packages are found in."""

    @property
    def backend(self) -> Backend | None:
        """What it was built for: by its version, else by the toolkit; None if there is no torch."""
        if self.version is None:
            return None
        return torch_backend(self.version, self.toolkit)

    @property
    def kind(self) -> str | None:
        """The kind of GPU, or the CPU, that it was built for."""
        return self.backend and self.backend.kind


class Interpreter(Value):
    """What two looks at one interpreter found."""

    isolated: FoundTorch
    """As ``python -I`` starts it."""

    plain: FoundTorch
    """As a program of the user's would start it; if it does not even start so, the same as in isolation."""

    start_error: str | None = None
    """Why it does not even start plainly."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that isolate the proof, unless an interpreter that is no venv finds torch only in its surroundings."""
        if self.isolated.torch is None and not self.isolated.venv:
            return ()
        return ("-I",)

    @property
    def tested(self) -> FoundTorch:
        """The torch that is put to the proof."""
        return self.isolated if self.flags else self.plain

    @property
    def shadow(self) -> str | None:
        """The other torch that a program started here would import, if there is one."""
        torch = self.plain.torch
        return None if torch == self.tested.torch else torch


def inspect_interpreter(python: Path) -> Interpreter:
    """Return what an interpreter would import; raise UsageError if there is none that runs."""
    isolated_look = (python, "-I", "-B", LOOK)
    # As ``python -c`` starts it, with the working folder on its path.
    plain_look = (python, "-B", "-c", LOOK.read_text(encoding="utf-8"))
    # Starting Python twice takes most of the time, so both start at once.
    with ThreadPoolExecutor(2) as pool:
        isolated = pool.submit(answer_of, FoundTorch, isolated_look)
        plain = pool.submit(answer_of, FoundTorch, plain_look)
    try:
        return Interpreter(isolated.result(), plain.result())
    except UsageError as error:
        # If it does not start in isolation either, that is the error.
        return Interpreter(
            isolated.result(),
            isolated.result(),
            start_error=error.why,
        )


def answer_of(kind: type[_Answer], argv: Sequence[str | Path]) -> _Answer:
    """Run a script of ours with an interpreter; return what it reports, in a line that begins with our mark.

    Args:
        kind: What the script reports.
        argv: The interpreter, and how it is started.

    Raises:
        UsageError: it is no interpreter, or does not run.
    """
    python = Path(argv[0])
    try:
        done = process.ask(argv)
    except OSError as error:
        raise _unusable(python, error.strerror or str(error)) from None
    # A start-up file of the environment may have printed before it, or at its end.
    answers = json_lines(done, MARK)
    if answers:
        with suppress(ValueError):
            return read_object(kind, answers[-1])
    raise _unusable(python, how_it_ended(done, read_patience(os.environ).look))


def _unusable(python: Path, reason: str) -> UsageError:
    return UsageError(
        "python-unusable",
        f"{python} cannot be run as a Python interpreter",
        why=reason,
        hint="Use another with --python PATH or --venv DIR",
    )


def interference(interpreter: Interpreter) -> Finding | None:
    """Return what a program meets that is started in this folder, and the isolated proof does not.

    The evidence is the path of what lies in the way.
    """
    reason = interpreter.start_error
    if reason:
        code = "torch-shadowed"
        message = (
            f"the interpreter does not start here unless isolated (python -I): {reason}"
        )
        home = os.environ.get("PYTHONHOME")
        if home:
            code = "python-home-set"
            message += f"; PYTHONHOME={home}"
        return Finding(code, message, where="environment")
    if interpreter.shadow:
        return _in_the_way(interpreter.shadow)
    return None


def _in_the_way(shadow: str) -> Finding:
    """Return a finding that has the other torch, and how it gets onto the interpreter's path."""
    top = Path(shadow)
    if top.name == "__init__.py":
        top = top.parent
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if top.parent == Path.cwd():
        code = "module-in-folder"
        origin = "which lies in it"
    elif top.parent in [Path(folder).absolute() for folder in folders if folder]:
        code = "torch-shadowed"
        origin = "from PYTHONPATH"
    else:
        code = "user-packages-first"
        origin = "from packages of the user"
    return Finding(
        code,
        f"a program started in this folder would import another torch: {top}, {origin}",
        evidence=str(top),
        where="environment",
    )
