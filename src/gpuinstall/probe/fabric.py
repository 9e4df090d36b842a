"""The NVSwitch fabric of HGX and DGX machines: its switches on the bus, and the daemon that brings it up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.probe.source import Source

PID_FILE = "/run/nvidia-fabricmanager/nv-fabricmanager.pid"
LOG = "/var/log/fabricmanager.log"
LOG_BYTES = 65536


@dataclass(frozen=True)
class Fabric:
    """``running`` says whether the daemon has left its process id, ``fault`` is the last error of its log."""

    switches: int = 0
    running: bool = False
    fault: str | None = None

    def __str__(self) -> str:
        """The fabric in a few words."""
        daemon = f"nv-fabricmanager is {'running' if self.running else 'not running'}"
        facts = (f"{self.switches} NVSwitches" if self.switches else "no NVSwitch on the bus", daemon, self.fault)
        return " · ".join(fact for fact in facts if fact)


def read_fabric(source: Source, switches: int) -> Fabric:
    """Read the daemon's traces; the log is root's on most machines."""
    return Fabric(switches, bool(source.text(PID_FILE)), parse_log(source.text(LOG, LOG_BYTES) or ""))


def parse_log(text: str) -> str | None:
    """Find the last error: ``[Nov 20 2026 07:14:02] [ERROR] [tid 812] …``."""
    errors = re.findall(r"^\[[^\]\n]*\] \[(?:ERROR|CRITICAL)\] (?:\[tid [0-9]+\] )?(.+)$", text, re.MULTILINE)
    return str(errors[-1]).strip() if errors else None
