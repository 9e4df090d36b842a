"""Conversion of requirements in tests from and to text."""

from collections.abc import Iterable

from gpuinstall.base.requirement import Constraint, Requirement, parse_line
from gpuinstall.sources.requirements_file import RequirementsFile


def required(*texts: str) -> tuple[Requirement, ...]:
    """Return parsed requirements; ``-c`` precedes a constraint."""
    return tuple(map(parse_line, texts))


def constrained(*texts: str) -> tuple[Constraint, ...]:
    """Return parsed constraints."""
    return tuple(requirement.constraint for requirement in required(*texts))


def listed(lines: Iterable[str]) -> RequirementsFile:
    """Return the contents of a requirements file with some lines."""
    return RequirementsFile.from_lines(required(*lines))


def written(requirements: Iterable[Requirement]) -> tuple[str, ...]:
    """Return the lines of requirements and constraints."""
    return tuple(requirement.line for requirement in requirements)
