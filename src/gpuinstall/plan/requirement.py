"""One requirement, parsed only as far as the choice needs; a bare name is read without loading a parser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version


class Asked(NamedTuple):
    """A requirement: its normalised name, extras as in ``[opt-einsum]``, specifier (None: any version), its text."""

    name: str
    text: str
    extras: str = ""
    specifier: SpecifierSet | None = None
    url: str | None = None
    marker: Marker | None = None

    def allows(self, version: Version | str) -> bool:
        """Say whether a version satisfies it."""
        return self.specifier is None or self.specifier.contains(version)

    def narrowed(self, other: Asked) -> Asked:
        """Join two requirements of one package."""
        extras = self.extras or other.extras
        if self.specifier is None or other.specifier is None:
            return (self if other.specifier is None else other)._replace(extras=extras)
        both = self.specifier & other.specifier
        return self._replace(text=f"{self.name}{extras}{both}", extras=extras, specifier=both)


def parse_requirement(text: str) -> Asked:
    """Parse one requirement; raise UsageError for a malformed one."""
    if re.fullmatch(r"\s*[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?\s*", text, re.ASCII):
        return Asked(normalised(text.strip()), text.strip())
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        parsed = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise UsageError("requirement-malformed", f"{text!r} is not a requirement: {reason}") from None
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return Asked(normalised(parsed.name), str(parsed), extras, parsed.specifier or None, parsed.url, parsed.marker)


def parse_specifier(text: str) -> SpecifierSet:
    """Parse a specifier; raise ValueError for a malformed one."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


def normalised(name: str) -> str:
    """Write a package's name as the indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()
