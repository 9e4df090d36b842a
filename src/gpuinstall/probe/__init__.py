"""What this machine is: ordered steps, each a small reader and a pure parser, each fact with its source."""

from gpuinstall.probe.probe import read_machine

__all__ = ["read_machine"]
