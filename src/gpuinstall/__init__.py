"""gpuinstall: the PyTorch build that runs on this machine's GPUs, installed, locked and proven.

``gpuinstall.api`` has the steps for authors of other programs.
"""

from gpuinstall.base.version import __version__

__all__ = ["__version__"]
