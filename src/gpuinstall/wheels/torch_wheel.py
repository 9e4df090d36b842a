"""What a wheel of torch says of itself: its CUDA, and its architectures by the first of two witnesses to answer."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.gpu_code import read_fatbins, read_flags
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuinstall.wheels.ranges import Pieces
    from gpuinstall.wheels.wheel_reader import WheelReader

_VERSION = "torch/version.py"


def _read_fatbins(pieces: Pieces) -> tuple[str, ...]:
    return read_fatbins(pieces).architectures


WITNESSES: Mapping[str, tuple[Callable[[Pieces], tuple[str, ...]], str, str]] = {
    "flags": (read_flags, "torch/lib/libtorch_python.so", "torch/lib/torch_python.dll"),
    "fatbins": (
        _read_fatbins,
        "torch/lib/libtorch_cuda.so",
        "torch/lib/torch_cuda.dll",
    ),
}
"""The parts of a wheel that name architectures, and where they are on Linux and on Windows.

The cheaper comes first: 5 to 7 MB, and 14 to 20 MB.
"""


class TorchCode(NamedTuple):
    """A build of torch as its wheel describes it."""

    version: str
    cuda: str | None
    """The CUDA that it was built with; None for another or no GPU code, as is ``hip``."""
    hip: str | None
    witness: str | None = None
    """The part that named the ``architectures``; None if none did."""
    architectures: tuple[str, ...] = ()


def read_torch(
    wheel: WheelReader,
    witnesses: Iterable[str] = WITNESSES,
) -> TorchCode:
    """Return what a wheel of torch tells of itself, by the first witness that answers.

    Raises:
        WheelError: if the wheel is malformed.
    """
    if _VERSION not in wheel.members:
        raise WheelError("wheel-malformed", f"the wheel has no {_VERSION}")
    text = wheel.read(_VERSION).decode("utf-8", "replace")
    code = TorchCode(
        version=_value(text, "__version__") or "",
        cuda=_value(text, "cuda"),
        hip=_value(text, "hip"),
    )
    if not code.cuda and not code.hip:
        return code
    for witness in witnesses:
        read, *paths = WITNESSES[witness]
        for path in paths:
            if path not in wheel.members:
                continue
            with closing(wheel.stream(path)) as pieces:
                architectures = read(pieces)
            if architectures:
                return code._replace(witness=witness, architectures=architectures)
    return code


def _value(text: str, name: str) -> str | None:
    """Return the text that a line of Python assigns to a name; None if there is none."""
    line = rf"^{name}(?:: [^=\n]+)? = '([\w.+-]{{1,100}})'"
    match = re.search(line, text, re.MULTILINE | re.ASCII)
    return match[1] if match else None
