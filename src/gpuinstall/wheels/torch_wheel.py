"""What a wheel of torch says of itself: its CUDA, and its architectures as torch itself would list them."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from gpuinstall.wheels.wheel_reader import WheelReader

_VERSION = "torch/version.py"


_LIBRARIES = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
"""The library that lists the architectures, on Linux and on Windows: 5 to 7 MB."""


class TorchCode(NamedTuple):
    """A build of torch as its wheel describes it."""

    version: str
    cuda: str | None
    """The CUDA that it was built with; None for another or no GPU code, as is ``hip``."""
    hip: str | None
    library: str | None = None
    """The library that lists them; None if there is none."""
    architectures: tuple[str, ...] = ()


def read_torch(wheel: WheelReader) -> TorchCode:
    """Return what a wheel of torch tells of itself.

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
    for path in _LIBRARIES:
        if path in wheel.members:
            with closing(wheel.stream(path)) as pieces:
                flags = read_flags(pieces)
            if flags:
                return code._replace(library=path, architectures=flags)
    return code


def _value(text: str, name: str) -> str | None:
    """Return the text that a line of Python assigns to a name; None if there is none."""
    line = rf"^{name}(?:: [^=\n]+)? = '([\w.+-]{{1,100}})'"
    match = re.search(line, text, re.MULTILINE | re.ASCII)
    return match[1] if match else None
