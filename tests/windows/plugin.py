"""Plugin of pytest for the unit tests on a Windows machine.

It replaces tests/conftest.py, whose fixtures need a Linux machine.
"""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile(
    "windows",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    max_examples=10,
)
settings.load_profile("windows")
for _name in list(os.environ):
    if _name.startswith(("UV_", "PIP_", "LAB_")):
        del os.environ[_name]
# Tests change HOME. Hints contain the path of a command that is not on PATH.
os.environ["HOME"] = str(Path.home())
os.environ["PATH"] += f"{os.pathsep}{Path(sys.executable).parent}"
