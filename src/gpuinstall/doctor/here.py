"""The platform this process runs on, read in a moment: enough to choose commands, nothing about GPUs."""

from __future__ import annotations

from gpuinstall.machine import Environment, Machine


def read_here() -> Machine:
    """Read system, distribution, container and WSL."""
    from gpuinstall.probe.container import read_surroundings
    from gpuinstall.probe.host import read_host
    from gpuinstall.probe.source import ThisMachine
    from gpuinstall.probe.wsl import read_wsl

    source = ThisMachine()
    host = read_host(source)
    environment = Environment(
        wsl=read_wsl(source, host.release) is not None, container=read_surroundings(source).container
    )
    return Machine(os=host.os, arch=host.arch, environment=environment, distribution=host.distribution)
