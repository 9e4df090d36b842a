"""The add-ons of an application, with what they ask for: custom nodes of ComfyUI, extensions of a web UI."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import marker_holds, parse_requirement
from gpuinstall.environments.application import application_of
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.sources.requirements_file import read_requirements

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.requirement import ParsedRequirement


class AddOn(NamedTuple):
    """What one add-on asks for."""

    name: str
    """Of its folder."""

    file: Path
    requirements: tuple[ParsedRequirement, ...]


def read_add_ons(
    environment: Path,
    machine: Machine,
    python: str | None,
) -> tuple[AddOn, ...]:
    """Return the add-ons of the application that an environment belongs to; what cannot be read is left out.

    Args:
        environment: Its folder.
        machine: Where it is; what a marker leaves out there is not asked for.
        python: The version of its Python, ``X.Y``.
    """
    application = application_of(environment)
    if application is None:
        return ()
    add_ons = []
    for name, file in application.requirements().items():
        with suppress(UsageError, OSError):
            wanted = []
            for requirement in map(parse_requirement, read_requirements(file).requirements):
                marker = requirement.marker
                if not marker or marker_holds(marker, machine, python or RUNNING_PYTHON):
                    wanted.append(requirement)
            add_ons.append(AddOn(name, file, tuple(wanted)))
    return tuple(add_ons)
