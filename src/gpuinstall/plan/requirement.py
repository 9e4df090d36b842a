"""One requirement, parsed as far as the choice needs, a bare name without loading a parser; and its marker, judged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    from gpuinstall.machine import Machine

_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
_PROCESSORS = {
    ("linux", "arm64"): "aarch64",
    ("macos", "aarch64"): "arm64",
    ("windows", "x86_64"): "AMD64",
    ("windows", "aarch64"): "ARM64",
    ("windows", "arm64"): "ARM64",
}
_MINORS = range(7, 30)


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
    """Parse one requirement; raise UsageError for a malformed one, and for the package that is called otherwise."""
    if misnamed := re.match(r"\s*pytorch(?![\w.-])", text, re.IGNORECASE):
        hint = f"say {'torch' + text[misnamed.end() :]!r}"
        raise UsageError("requirement-misnamed", "the package is called torch, not pytorch", hint=hint)
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


def holds(marker: Marker, machine: Machine) -> bool:
    """Say whether a marker holds on a machine, with whatever Python (which is still to be chosen)."""
    processor = _PROCESSORS.get((machine.os, machine.arch), machine.arch)
    values = {**_SYSTEMS[machine.os], "platform_machine": processor}
    pythons = ({"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in _MINORS)
    return any(marker.evaluate({**values, **python}) for python in pythons)
