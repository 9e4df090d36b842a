"""Which packages of a resolution decide: what was requested, and what that consists of."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import parse_requirement, requirement_names
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.plan.companions import PAIRED
from gpuinstall.wheels.companions import load_members

if TYPE_CHECKING:
    from gpuinstall.lock.code_rows import CodeRows
    from gpuinstall.lock.resolution import Resolution


class PackageRoles:
    """What the packages of a resolution are to what was requested."""

    def __init__(self, resolution: Resolution, rows: CodeRows) -> None:
        self._resolution = resolution
        self._rows = rows
        self.requested = requirement_names(resolution.choice.requirements)

    def decides(self, package: str) -> bool:
        """Whether a package was requested, or is the core of what was and no part that it does without."""
        if package in self.requested:
            return True
        if self.has_fallback(package):
            return False
        # tensorrt-cu13-libs is what tensorrt consists of.
        if any(package.startswith(f"{name}-cu") for name in self.requested):
            return True
        members = load_members()
        return members.names(package) or package in members.stated or package in self.pinned

    @cached_property
    def pinned(self) -> frozenset[str]:
        """The packages of which a requested one requires one version: they are what it consists of."""
        pinned = set()
        for file in self._resolution.files:
            if file.package not in self.requested or file.package in PAIRED:
                continue
            for text in self._rows.requires_of(file):
                with suppress(UsageError):
                    requirement = parse_requirement(str(text))
                    is_extra = "extra" in str(requirement.marker)
                    if "==" in str(requirement.specifier) and not is_extra:
                        pinned.add(requirement.name)
        return frozenset(pinned)

    def has_fallback(self, package: str) -> bool:
        """Whether what was requested is known to do without a package."""
        row = load_extensions().rows.get(package)
        return bool(row and row.optional_for & {*self.requested, "*"})
