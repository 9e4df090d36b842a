"""Install, lock, and verify the PyTorch build for a machine's GPUs.

``gpuinstall.api`` is the interface for other programs.
"""

from gpuinstall.base.version import __version__

__all__ = ["__version__"]
