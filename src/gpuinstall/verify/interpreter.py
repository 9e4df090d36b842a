"""Which torch an interpreter finds, alone and as a program of the user's starts it, and what gets in the way of that.

torch is not imported to find it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuinstall import process
from gpuinstall.backend import CPU, SPELLINGS, Backend
from gpuinstall.errors import UsageError
from gpuinstall.fields import Fields
from gpuinstall.finding import Finding
from gpuinstall.patience import read_patience
from gpuinstall.verify.kernel_run import KERNELS, json_object, last_words

LOOK = KERNELS / "look.py"
OLDEST_PYTHON = (3, 8)


@dataclass(frozen=True)
class FoundTorch:
    """The torch that an interpreter would import: ``torch`` is its file.

    ``toolkit`` is the kind and the version of the maker's toolkit that it was built with; None: of no maker it names.
    ``shadowing`` names the modules of the working folder and of PYTHONPATH that stand before others of the same name,
    ``path`` the folders that packages are found in.
    """

    python: str
    venv: bool
    torch: str | None = None
    version: str | None = None
    toolkit: Backend | None = None
    shadowing: tuple[str, ...] = ()
    is_32_bit: bool = False
    path: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: Fields) -> FoundTorch:
        """Read what ``look.py`` says; raise MalformedError."""
        toolkit = fields.texts("toolkit")[:2]
        return cls(
            fields.needed("python", str),
            bool(fields.flag("venv")),
            fields.text("torch"),
            fields.text("version"),
            Backend(*toolkit) if toolkit and toolkit[0] in SPELLINGS else None,
            fields.texts("shadowing"),
            bool(fields.flag("is_32_bit")),
            fields.texts("path"),
        )

    @property
    def backend(self) -> Backend | None:
        """What it was built for: as the version says, else the toolkit; None where there is no torch."""
        if self.version is None:
            return None
        label = self.version.partition("+")[2]
        for tag in (label, label.partition(".")[0]):
            with suppress(ValueError):
                return Backend.parse(tag)
        return self.toolkit or CPU

    @property
    def kind(self) -> str | None:
        """The kind of GPU, or the CPU, that it was built for."""
        return self.backend and self.backend.kind


@dataclass(frozen=True)
class Interpreter:
    """One interpreter looked at twice: isolated (``python -I``), and as a program of the user's would start it.

    ``start_error`` says why it does not even start plainly; ``plain`` is then what it is in isolation.
    """

    path: Path
    isolated: FoundTorch
    plain: FoundTorch
    start_error: str | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """Isolate the proof from the surroundings, unless an interpreter that is no venv finds torch only in them."""
        lent = self.isolated.torch is None and not self.isolated.venv
        return ("-B",) if lent else ("-I", "-B")

    @property
    def tested(self) -> FoundTorch:
        """The torch that is put to the proof."""
        return self.isolated if "-I" in self.flags else self.plain

    @property
    def shadow(self) -> str | None:
        """The other torch that a program started here would import, if there is one."""
        return None if self.plain.torch == self.tested.torch else self.plain.torch


def inspect_interpreter(python: Path) -> Interpreter:
    """Look at an interpreter; raise UsageError where there is none that runs."""
    with ThreadPoolExecutor(2) as pool:
        isolated = pool.submit(_look, [python, "-I", "-B", LOOK])
        # As ``python -c`` starts it, with the working folder on its path.
        plain = pool.submit(_look, [python, "-B", "-c", LOOK.read_text(encoding="utf-8"), "plain"])
    try:
        return Interpreter(python, isolated.result(), plain.result())
    except UsageError as error:
        return Interpreter(python, isolated.result(), isolated.result(), error.why)


def interference(interpreter: Interpreter, loaded: Collection[str]) -> Finding | None:
    """Find what a program meets that is started in this folder, and the isolated proof does not.

    ``loaded`` are the modules that the proof has imported. The evidence is the path of what lies in the way.
    """
    if interpreter.start_error:
        home = os.environ.get("PYTHONHOME")
        message = f"the interpreter does not start here unless isolated (python -I): {interpreter.start_error}"
        code, more = ("python-home-set", f"; PYTHONHOME={home}") if home else ("torch-shadowed", "")
        return Finding(code, f"{message}{more}", where="environment")
    if interpreter.shadow:
        return _in_the_way(
            interpreter.shadow, "a program started in this folder would import another torch"
        )
    # A module that stands before one that importing torch loads is a stranger's perhaps, and is not run.
    taken = (
        path for path in interpreter.plain.shadowing if Path(path).name.partition(".")[0] in loaded
    )
    if path := next(taken, None):
        message = "a program started in this folder would import another module with torch"
        return _in_the_way(path, message)
    return None


def _in_the_way(path: str, message: str) -> Finding:
    """Name the file or the package, and how it gets onto the interpreter's path."""
    top = Path(path).parent if Path(path).name == "__init__.py" else Path(path)
    folders = [
        Path(entry).absolute()
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry
    ]
    if top.parent == Path.cwd():
        code, how = "module-in-folder", "which lies in it"
    elif top.parent in folders:
        code, how = "torch-shadowed", "from PYTHONPATH"
    else:
        code, how = "user-packages-first", "from packages of the user"
    return Finding(code, f"{message}: {top}, {how}", evidence=str(top), where="environment")


def _look(argv: Sequence[str | Path]) -> FoundTorch:
    try:
        done = process.ask(argv)
    except OSError as error:
        raise _unusable(Path(argv[0]), error.strerror or str(error)) from None
    try:
        return FoundTorch.read(
            Fields(next(filter(None, map(json_object, reversed(done.out.splitlines())))))
        )
    except (StopIteration, ValueError):
        too_old = None if done.status is None else _too_old(argv[0])
        limit = read_patience(os.environ).look
        raise _unusable(Path(argv[0]), too_old or last_words(done, limit)) from None


def _too_old(python: str | Path) -> str | None:
    done = process.ask([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    version = re.fullmatch(r"([23])\.([0-9]{1,2})", done.out.strip())
    if version is None or (int(version[1]), int(version[2])) >= OLDEST_PYTHON:
        return None
    return f"it is Python {version[0]}, and the checks need {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer"


def _unusable(python: Path, reason: str) -> UsageError:
    hint = "Use another with --python PATH or --venv DIR"
    return UsageError(
        "python-unusable", f"{python} cannot be run as a Python interpreter", why=reason, hint=hint
    )
