"""What a wheel of torch says of itself: its CUDA, and from up to three witnesses its architectures."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.gpu_code import read_fatbins, read_flags, read_gencode
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from gpuinstall.wheels.wheel_reader import WheelReader

    _Scan = Callable[[Generator[bytes, None, None]], tuple[str, ...]]

_VERSION = "torch/version.py"
_PYTHON = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
_CUDA = ("torch/lib/libtorch_cuda.so", "torch/lib/torch_cuda.dll")


_WITNESSES: tuple[tuple[str, tuple[str, ...], _Scan], ...] = (
    ("flags", _PYTHON, read_flags),
    ("gencode", _CUDA, read_gencode),
    ("fatbins", _CUDA, lambda pieces: read_fatbins(pieces).architectures),
)
"""The cheapest first: 5 to 7 MB, 12 to 18 MB, 14 to 20 MB."""


class Witness(NamedTuple):
    """One part of the wheel that names architectures: ``flags``, ``gencode`` or ``fatbins`` of ``member``."""

    name: str
    member: str
    architectures: tuple[str, ...]


@dataclass(frozen=True)
class TorchCode:
    """A build of torch as its wheel describes it.

    ``cuda`` and ``hip`` are the versions it was built with, both None for a build without GPU code. ``witnesses``
    are those that were heard and had an answer.
    """

    version: str
    cuda: str | None
    hip: str | None
    witnesses: tuple[Witness, ...] = ()

    @property
    def agree(self) -> bool:
        """Whether no two witnesses contradict each other."""
        return len({witness.architectures for witness in self.witnesses}) < 2

    @property
    def architectures(self) -> tuple[str, ...]:
        """What the witnesses agree on; empty where they do not, or there is none."""
        return self.witnesses[0].architectures if self.witnesses and self.agree else ()


def read_torch(wheel: WheelReader, *, witnesses: int = 1) -> TorchCode:
    """Read a wheel of torch, asking until so many witnesses have answered; raise WheelError where it is malformed."""
    if _VERSION not in wheel.members:
        raise WheelError("wheel-malformed", f"the wheel has no {_VERSION}")
    text = wheel.read(_VERSION).decode("utf-8", "replace")
    cuda, hip = _value(text, "cuda"), _value(text, "hip")
    heard: list[Witness] = []
    for name, places, reader in _WITNESSES if cuda or hip else ():
        member = next((place for place in places if place in wheel.members), None)
        if member and len(heard) < witnesses:
            with closing(wheel.stream(member)) as pieces:
                architectures = reader(pieces)
            heard += [Witness(name, member, architectures)] if architectures else []
    return TorchCode(_value(text, "__version__") or "", cuda, hip, tuple(heard))


def _value(text: str, name: str) -> str | None:
    match = re.search(rf"^{name}(?:: [^=\n]+)? = '([\w.+-]{{1,100}})'", text, re.MULTILINE | re.ASCII)
    return match[1] if match else None
