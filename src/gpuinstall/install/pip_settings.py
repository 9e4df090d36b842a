"""An environment's own pip configuration: what pip installs into it later cannot replace the locked family."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuinstall.catalog import load_catalog
from gpuinstall.export.constraints import NAME, constraints, pip_configuration
from gpuinstall.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.lock.lock import Lock


def settle_pip(built: Path, final: Path, lock: Lock) -> None:
    """Write the configuration into the environment at ``built``, right for ``final``, where it is about to go."""
    write_atomically(built / NAME, constraints(lock, load_catalog().family))
    write_atomically(built / ("pip.ini" if os.name == "nt" else "pip.conf"), pip_configuration(final / NAME))
