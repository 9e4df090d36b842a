"""What the packages of an environment require of each other, in its Python and on its machine. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.requirements import Requirement

    from gpuinstall.doctor.contents import EnvironmentContents
    from gpuinstall.machine import Machine

SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
}
CPYTHON = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}


def requirements_from(
    roots: Iterable[str], contents: EnvironmentContents, machine: Machine
) -> Iterator[tuple[str, Requirement]]:
    """Follow what ``roots`` require, directly or not: each requirement with the name of the package that has it."""
    variables = _variables(contents, machine)
    waiting = [(name, frozenset[str]()) for name in roots if name in contents.packages]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        for asked in contents.packages[name].requires:
            if not _counts(asked, variables, extras):
                continue
            yield name, asked
            further = (canonicalize_name(asked.name), frozenset(asked.extras))
            if further[0] in contents.packages and further not in seen:
                seen.add(further)
                waiting.append(further)


def reached_from(roots: Iterable[str], contents: EnvironmentContents, machine: Machine) -> frozenset[str]:
    """Name the packages that are there of ``roots`` and of all that they require."""
    roots = list(roots)
    required = {canonicalize_name(asked.name) for _, asked in requirements_from(roots, contents, machine)}
    return frozenset((required | set(roots)) & contents.packages.keys())


def _counts(asked: Requirement, variables: Mapping[str, str], extras: frozenset[str]) -> bool:
    if asked.marker is None:
        return True
    return any(asked.marker.evaluate({**variables, "extra": extra}) for extra in ("", *extras))


def _variables(contents: EnvironmentContents, machine: Machine) -> dict[str, str]:
    arch = {"windows": {"x86_64": "AMD64"}}.get(machine.os, {}).get(machine.arch, machine.arch)
    python = contents.python or "3.12"
    return {
        **CPYTHON,
        **SYSTEMS[machine.os],
        "platform_machine": arch,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
