"""What compiles for the builds of a kind: an import of this starts what looks at a machine."""

from __future__ import annotations

from gpuinstall.machine.nvidia.toolchain import Toolchain

TOOLCHAINS = {"cuda": Toolchain()}
