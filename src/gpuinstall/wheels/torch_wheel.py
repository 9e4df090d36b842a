"""What a wheel of torch says of itself: its CUDA, and its architectures as torch itself would list them."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.versions import Backend
from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from gpuinstall.wheels.wheel_reader import WheelReader

_VERSION = "torch/version.py"
LISTING_LIBRARIES = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
"""The library that lists the architectures, on Linux and on Windows: 5 to 7 MB."""
_TOOLKITS = {"cuda": "cuda", "hip": "rocm"}
"""The kinds of build, by what torch calls the toolkit that each is made with."""


class TorchCode(NamedTuple):
    """A build of torch as its own files describe it."""

    version: str
    """Empty if they do not tell it."""
    toolkit: Backend | None
    """The maker's toolkit that it was made with, to its minor release; None: of neither NVIDIA nor AMD."""
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
    code = parse_version(text)
    if code.toolkit is None:
        return code
    for path in LISTING_LIBRARIES:
        if path in wheel.members:
            with closing(wheel.stream(path)) as pieces:
                flags = read_flags(pieces)
            if flags:
                return code._replace(library=path, architectures=flags)
    return code


def parse_version(text: str) -> TorchCode:
    """Return what ``torch/version.py`` says, which is read and not run."""
    toolkit = None
    for name, kind in _TOOLKITS.items():
        # 7.2.53211-e1a6bc5663 is ROCm 7.2.
        version = _value(text, name) or ""
        release = ".".join(version.split(".")[:2])
        if release and toolkit is None:
            toolkit = Backend(kind, release)
    return TorchCode(_value(text, "__version__") or "", toolkit)


def _value(text: str, name: str) -> str | None:
    """Return the text that a line of Python assigns to a name; None if there is none."""
    line = rf"^{name}(?:: [^=\n]+)? = '([\w.+-]{{1,100}})'"
    match = re.search(line, text, re.MULTILINE | re.ASCII)
    return match[1] if match else None
