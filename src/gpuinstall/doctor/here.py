"""The platform this process runs on, read in a moment: enough to choose commands, nothing about GPUs."""

from __future__ import annotations

from gpuinstall.machine import Environment, Machine


def read_here() -> Machine:
    """Read system, distribution, container and WSL."""
    from gpuinstall.facts.container import read_container, read_wsl
    from gpuinstall.facts.host import read_host
    from gpuinstall.facts.source import ThisMachine

    source = ThisMachine()
    host = read_host(source)
    environment = Environment(wsl=read_wsl(source, host.release) is not None, container=read_container(source).engine)
    return Machine(os=host.os, arch=host.arch, environment=environment, distribution=host.distribution)
