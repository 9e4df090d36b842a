"""The makers' toolchains by the kind of their builds: an import of this starts what looks at a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.vendors.nvidia.toolchain import NvidiaToolchain

if TYPE_CHECKING:
    from gpuinstall.vendors.protocol import Toolchain

TOOLCHAINS: dict[str, Toolchain] = {"cuda": NvidiaToolchain()}
