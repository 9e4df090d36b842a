"""Read the version, CUDA, and architectures from a wheel of torch."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import Backend
from gpuinstall.wheels.gpu_code import read_flags
from gpuinstall.wheels.ranges import WheelError

if TYPE_CHECKING:
    from gpuinstall.wheels.wheel_reader import WheelReader

_VERSION = "torch/version.py"
LISTING_LIBRARIES = ("torch/lib/libtorch_python.so", "torch/lib/torch_python.dll")
"""The library of torch that lists the architectures, by system."""
TOOLKITS = {row.toolkit: row.kind for row in BACKEND_ROWS if row.toolkit}
"""The backend kinds by the toolkit's name in ``torch/version.py``."""


class TorchCode(NamedTuple):
    """Build of torch as described by the files in its wheel."""

    version: str
    """The full version of torch, or an empty string if unknown."""
    toolkit: Backend | None
    """The minor release of the CUDA or ROCm toolkit, if any."""
    library: str | None = None
    """The library of torch that lists the architectures, if any."""
    architectures: tuple[str, ...] = ()


def read_torch(wheel: WheelReader) -> TorchCode:
    """Read the build description in a wheel of torch.

    Raises:
        WheelError: The wheel is malformed.
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
    """Parse ``torch/version.py`` without running it."""
    toolkit = None
    for name, kind in TOOLKITS.items():
        # 7.2.53211-e1a6bc5663 is ROCm 7.2.
        version = _find_assignment(text, name) or ""
        release = ".".join(version.split(".")[:2])
        if release and toolkit is None:
            toolkit = Backend(kind, release)
    return TorchCode(_find_assignment(text, "__version__") or "", toolkit)


def _find_assignment(text: str, name: str) -> str | None:
    """Return the string that Python code assigns to a name, if any."""
    line = rf"^{name}(?:: [^=\n]+)? = '([\w.+-]{{1,100}})'"
    match = re.search(line, text, re.MULTILINE | re.ASCII)
    return match[1] if match else None
