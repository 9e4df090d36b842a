"""Which torch an interpreter finds, alone and in the surroundings it was called in; torch is not imported for it."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import process
from gpuinstall.errors import UsageError
from gpuinstall.verify.report import json_object, last_words

if TYPE_CHECKING:
    from collections.abc import Sequence

KERNELS = Path(__file__).parent / "kernels"
LOOK_SECONDS = 60.0
OLDEST_PYTHON = (3, 8)


@dataclass(frozen=True)
class Found:
    """The torch that an interpreter would import: ``torch`` is its file, ``missing`` what it lost since.

    ``narrow`` says that the interpreter has 32 bits, ``doubled`` names the modules of the working folder and of
    PYTHONPATH that stand before others of the same name.
    """

    python: str
    prefix: str
    venv: bool
    torch: str | None = None
    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    missing: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    narrow: bool = False

    @property
    def without_cuda(self) -> bool:
        """Say whether this is a torch that no NVIDIA GPU can run."""
        return self.version is not None and self.cuda is None

    @property
    def backend(self) -> str | None:
        """The backend tag: of the version where it has one, else of what the build was made with."""
        if self.version is None:
            return None
        _, _, local = self.version.partition("+")
        if local.startswith(("cu", "cpu", "rocm", "xpu")):
            return local.partition(".")[0] if local.startswith("cu") else local
        if self.cuda:
            return "cu" + self.cuda.replace(".", "")
        return "rocm" if self.hip else "cpu"


@dataclass(frozen=True)
class Surroundings:
    """One interpreter looked at twice: isolated (``python -I``), and as a program of the user's would start it.

    ``disturbed`` says why it does not even start plainly; ``plain`` is then what it is in isolation.
    """

    isolated: Found
    plain: Found
    disturbed: str | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """Isolate the proof from the surroundings, unless an interpreter that is no venv finds torch only in them."""
        lent = self.isolated.torch is None and not self.isolated.venv
        return ("-B",) if lent else ("-I", "-B")

    @property
    def tested(self) -> Found:
        """The torch that is put to the proof."""
        return self.isolated if "-I" in self.flags else self.plain

    @property
    def shadow(self) -> str | None:
        """The other torch that a program started here would import, if there is one."""
        return None if self.plain.torch == self.tested.torch else self.plain.torch


def look(python: Path) -> Surroundings:
    """Look at an interpreter; raise UsageError where there is none that runs."""
    with ThreadPoolExecutor(2) as pool:
        isolated, plain = (pool.submit(run, python) for run in (_isolated, _plain))
    try:
        return Surroundings(isolated.result(), plain.result())
    except UsageError as error:
        return Surroundings(isolated.result(), isolated.result(), error.why)


def missing_files(python: Path, flags: Sequence[str]) -> tuple[str, ...]:
    """List the files of torch that its installation recorded and that are gone or cut."""
    return _look([python, *flags, KERNELS / "look.py", "damage"]).missing


def _isolated(python: Path) -> Found:
    return _look([python, "-I", "-B", KERNELS / "look.py"])


def _plain(python: Path) -> Found:
    """Start it as ``python -c`` does, with the working folder on its path."""
    return _look([python, "-B", "-c", (KERNELS / "look.py").read_text(encoding="utf-8"), "plain"])


def _look(argv: Sequence[str | Path]) -> Found:
    try:
        done = process.run(argv, seconds=LOOK_SECONDS)
    except OSError as error:
        raise _unusable(Path(argv[0]), error.strerror or str(error)) from None
    try:
        found = next(filter(None, map(json_object, reversed(done.out.splitlines()))))
        return Found(**found | {key: tuple(found.get(key, ())) for key in ("missing", "doubled")})
    except (StopIteration, TypeError):
        raise _unusable(Path(argv[0]), _too_old(argv[0]) or last_words(done, LOOK_SECONDS)) from None


def _too_old(python: str | Path) -> str | None:
    """Say that an interpreter is older than the kernels can be."""
    done = process.run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], seconds=LOOK_SECONDS)
    version = re.fullmatch(r"([23])\.([0-9]{1,2})", done.out.strip())
    if version is None or (int(version[1]), int(version[2])) >= OLDEST_PYTHON:
        return None
    return f"it is Python {version[0]}, and the checks need {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer"


def _unusable(python: Path, reason: str) -> UsageError:
    return UsageError(
        "python-unusable",
        f"{python} cannot be run as a Python interpreter",
        why=reason,
        hint="gpuinstall verify --python PATH or --venv DIR names another",
    )
