"""The version of this release, and of the Python that runs it."""

import sys

__version__ = "0.1.0"

RUNNING_PYTHON = "{}.{}".format(*sys.version_info)
"""The Python version that runs gpuinstall, as ``X.Y``."""
