"""What a wheel of torch says of itself: its CUDA, and its architectures by the first of two witnesses to answer."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.gpu_code import read_fatbins, read_flags
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from gpuinstall.wheels.wheel_reader import WheelReader

    _Witness = tuple[
        str, tuple[str, ...], Callable[[Generator[bytes, None, None]], tuple[str, ...]]
    ]

_VERSION = "torch/version.py"
_PYTHON = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
_CUDA = ("torch/lib/libtorch_cuda.so", "torch/lib/torch_cuda.dll")


WITNESSES: tuple[_Witness, ...] = (
    ("flags", _PYTHON, read_flags),
    ("fatbins", _CUDA, lambda pieces: read_fatbins(pieces).architectures),
)
"""The parts of a wheel that name architectures, the cheaper first: 5 to 7 MB, and 14 to 20 MB."""


class TorchCode(NamedTuple):
    """A build of torch as its wheel describes it.

    ``cuda`` and ``hip`` are the versions it was built with, both None for a build without GPU code. ``witness`` is the
    part that named the ``architectures``, None where none did.
    """

    version: str
    cuda: str | None
    hip: str | None
    witness: str | None = None
    architectures: tuple[str, ...] = ()


def read_torch(wheel: WheelReader, witnesses: Iterable[_Witness] = WITNESSES) -> TorchCode:
    """Read a wheel of torch, asking one witness after the other; raise WheelError where it is malformed."""
    if _VERSION not in wheel.members:
        raise WheelError("wheel-malformed", f"the wheel has no {_VERSION}")
    text = wheel.read(_VERSION).decode("utf-8", "replace")
    code = TorchCode(_value(text, "__version__") or "", _value(text, "cuda"), _value(text, "hip"))
    for name, places, scan in witnesses if code.cuda or code.hip else ():
        member = next((place for place in places if place in wheel.members), None)
        if member:
            with closing(wheel.stream(member)) as pieces:
                architectures = scan(pieces)
            if architectures:
                return code._replace(witness=name, architectures=architectures)
    return code


def _value(text: str, name: str) -> str | None:
    match = re.search(
        rf"^{name}(?:: [^=\n]+)? = '([\w.+-]{{1,100}})'", text, re.MULTILINE | re.ASCII
    )
    return match[1] if match else None
