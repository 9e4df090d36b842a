"""The commands that mend a failure, for the platform it happened on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.circumstances import of_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.failures.circumstances import Circumstances
    from gpuinstall.machine import Machine

PARTICULAR = ("wsl", "windows", "container", "conda", "macos")
PACKAGERS = {
    "apt": ("ubuntu", "debian", "mint", "pop", "raspbian", "elementary", "zorin", "kali"),
    "dnf": ("fedora", "red hat", "rhel", "rocky", "alma", "centos", "amazon", "oracle", "nobara"),
    "pacman": ("arch", "manjaro", "endeavour", "cachyos", "garuda", "omarchy"),
}


def repair(
    fix: Mapping[str, tuple[str, ...]], machine: Machine | None, circumstances: Circumstances
) -> tuple[str, ...]:
    """Choose the commands of the most particular platform that ``fix`` knows, then those that hold anywhere."""
    platforms = tuple(_platforms(machine, circumstances))
    own: tuple[str, ...] = next((fix[platform] for platform in platforms if platform in fix), ())
    if not own and "linux" in platforms:
        own = _each_packager(fix)
    return tuple(dict.fromkeys((*own, *fix.get("any", ())))) or fix.get("linux", ())


def packager(distribution: str | None) -> str | None:
    """Name the package manager of a distribution such as ``Ubuntu 22.04``."""
    name = (distribution or "").lower()
    return next((tool for tool, names in PACKAGERS.items() if any(known in name for known in names)), None)


def _platforms(machine: Machine | None, circumstances: Circumstances) -> Iterator[str]:
    """Name the platforms that apply, the most particular first: what the text says goes before where we run."""
    particular = [name for name in PARTICULAR if circumstances.hold(name)]
    if machine and not particular and not circumstances.hold("native-linux"):
        particular = [name for name in PARTICULAR if name in of_machine(machine)]
    yield from particular
    if not {"windows", "macos"}.intersection(particular):
        if machine and (tool := packager(machine.distribution)):
            yield tool
        yield "linux"


def _each_packager(fix: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(f"{tool}: {' && '.join(_bare(fix[tool]))}" for tool in PACKAGERS if tool in fix)


def _bare(commands: tuple[str, ...]) -> list[str]:
    return [command.partition("   #")[0] for command in commands]
