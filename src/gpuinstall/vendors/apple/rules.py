"""Apple's rules: every build for macOS on Apple silicon runs on its GPU; the release of macOS is the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from packaging.version import Version

from gpuinstall.vendors.protocol import Code, Reason, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine

METAL = (("2.9", "14.0"), ("2.5", "13.0"), ("1.12", "12.3"))
"""The oldest macOS whose Metal a torch uses, from which release on; its wheel may install on an older one.

Sources: pytorch/pytorch#162921 and #163515 (14), #133141 and #139425 (13), #76291 and torch's own message (12.3).
"""


@dataclass(frozen=True)
class AppleRules:
    """The rules for one Mac."""

    machine: Machine
    catalog: Catalog

    vendor: ClassVar = "apple"
    name: ClassVar = "Apple"
    kind: ClassVar = "cpu"
    software: ClassVar = "macOS"
    code_reasons: ClassVar = ("no-code",)
    no_code_causes: ClassVar = ("F33", "F33")
    driver_reasons: ClassVar = ("macos-too-old",)

    @property
    def driver(self) -> str:
        """The release of macOS."""
        return f"macOS {self._macos or 'of unknown release'}"

    def platform_fault(self) -> Unusable | None:
        """Say nothing: what is not macOS has no code for the GPU."""
        return None

    def driver_fault(self, gpus: Sequence[Gpu]) -> Unusable | None:  # noqa: ARG002
        """Say nothing: macOS is there."""
        return None

    def gpu_fault(self, gpu: Gpu) -> Unusable | None:  # noqa: ARG002
        """Say nothing: one that macOS does not list with Metal is not planned for."""
        return None

    def architecture(self, gpu: Gpu) -> str | None:
        """What macOS compiles for it, ``metal 3``."""
        return gpu.architecture

    def rank(self, gpu: Gpu) -> tuple[int, ...]:  # noqa: ARG002
        """A Mac has one."""
        return (0,)

    def ever_served(self, gpu: Gpu) -> bool:  # noqa: ARG002
        """Say whether this is a Mac with Apple silicon."""
        return any(self._has_code(build) for build in self.catalog.builds_for(self.machine.os, self.machine.arch))

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:  # noqa: ARG002
        """Find the code for Metal, which every build for Apple silicon has."""
        return Code("mps", "sass") if self._has_code(build) else Reason("no-code", "no code for Metal")

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:  # noqa: ARG002
        """Say that a build has no code for Metal."""
        return "has none"

    def predates(self, build: Build, gpu: Gpu) -> bool:  # noqa: ARG002
        """Say no: macOS compiles for the GPU that is there."""
        return False

    def against_driver(self, build: Build) -> Reason | None:
        """Keep the release of macOS that the wheel's platform tag asks for, and torch's own use of Metal."""
        if self._macos is None or _numbers(self._macos) >= _numbers(self._floor(build)):
            return None
        return Reason("macos-too-old", f"it needs {self.driver_for(build)}; this is {self.driver}")

    def driver_for(self, build: Build) -> str:
        """The macOS that a build needs."""
        return f"macOS {self._floor(build)} or newer"

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:  # noqa: ARG002
        """Update macOS."""
        if code not in self.driver_reasons:
            return None
        return f"update to {self.driver_for(build)}: softwareupdate --list   # System Settings > General"

    def preference(self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]) -> tuple[object, ...]:  # noqa: ARG002
        """There is one build of each torch."""
        return ()

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:  # noqa: ARG002
        """There is one build of each torch."""
        return "it is as good"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:  # noqa: ARG002
        """Warn of what nobody has tried."""
        proof = (
            "the build for macOS runs on the GPU by MPS, not proven on a Mac yet: verify decides (send probe --record)"
        )
        return (Reason("not-proven", proof),)

    def floors(self, build: Build) -> Mapping[str, str]:
        """The oldest macOS."""
        return {"macos": self._floor(build)}

    @property
    def _macos(self) -> str | None:
        said = self.machine.makers.get(self.vendor, {}).get("macos")
        return said if isinstance(said, str) and re.match(r"[0-9]", said) else None

    @staticmethod
    def _floor(build: Build) -> str:
        metal = next(macos for first, macos in METAL if build.torch >= Version(first))
        return max(build.macos or metal, metal, key=_numbers)

    @staticmethod
    def _has_code(build: Build) -> bool:
        return (build.os, build.arch) == ("macos", "arm64")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", version)]
