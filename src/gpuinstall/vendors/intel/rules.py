"""Intel's rules: a build is for the chips that the documentation of its release names; the stack is there or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.vendors.intel.chips import chip_of
from gpuinstall.vendors.protocol import Code, Reason, Unusable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine


@dataclass(frozen=True)
class IntelRules:
    """The rules for one machine, by the rows of ``gpus_intel.toml``."""

    machine: Machine
    catalog: Catalog

    vendor: ClassVar = "intel"
    name: ClassVar = "Intel"
    kind: ClassVar = "xpu"
    software: ClassVar = "XPU"
    code_reasons: ClassVar = ("no-code",)
    no_code_causes: ClassVar = ("F37", "F38")
    driver_reasons: ClassVar = ()

    @property
    def driver(self) -> str:
        """What programs compute through."""
        said = self.machine.makers.get(self.vendor, {}).get("level_zero")
        return f"Level Zero {said}" if isinstance(said, str) else "Level Zero"

    def platform_fault(self) -> Unusable | None:
        """Say nothing: platforms without builds have none for any chip."""
        return None

    def driver_fault(self, gpus: Sequence[Gpu]) -> Unusable | None:  # noqa: ARG002
        """Say nothing: whether Level Zero is there is the probe's to find."""
        return None

    def gpu_fault(self, gpu: Gpu) -> Unusable | None:
        """Say that the chip is not known: Level Zero tells it."""
        if gpu.architecture is not None:
            return None
        message = f"which code {gpu.label} runs is not known: Level Zero tells it"
        return Unusable(Reason("unknown-gpu", message), "gpuinstall probe   # on the machine itself")

    def architecture(self, gpu: Gpu) -> str | None:
        """The version of its architecture, ``xe 20.1.0``."""
        return gpu.architecture

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """A card before a processor's graphics, those before what torch is not for."""
        chip = chip_of(self._table, gpu.architecture)
        return (0 if chip is None else 1 if chip.integrated else 2,)

    def ever_served(self, gpu: Gpu) -> bool:
        """Say whether a build for this platform is for the chip."""
        chip = chip_of(self._table, gpu.architecture)
        builds = self.catalog.builds_for(self.machine.os, self.machine.arch)
        return gpu.architecture is None or any(chip and {*chip.names} & {*build.code} for build in builds)

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Find the chip among those that a build is for."""
        chip = chip_of(self._table, gpu.architecture)
        name = next((name for name in (chip.names if chip else ()) if name in build.code), None)
        if name or (chip and build.lists_no_code):
            return Code(name or str(gpu.architecture), "sass")
        if not build.code:
            return Reason("no-code", f"which chips {build.name} is for is not known")
        return Reason(
            "no-code", f"it is not for {chip.name if chip else gpu.architecture}, only for {', '.join(build.code)}"
        )

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:  # noqa: ARG002
        """Say that a build is not for a chip."""
        return "is not for it"

    def predates(self, build: Build, gpu: Gpu) -> bool:  # noqa: ARG002
        """What a build is for has no order that says which is the older."""
        return False

    def against_driver(self, build: Build) -> Reason | None:  # noqa: ARG002
        """No Level Zero is known to be too old."""
        return None

    def driver_for(self, build: Build) -> str:  # noqa: ARG002
        """No release is known to be the oldest for a build."""
        return "Intel's compute runtime"

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:  # noqa: ARG002
        """No driver helps against what the rules reject."""
        return None

    def preference(self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]) -> tuple[object, ...]:  # noqa: ARG002
        """There is one build of each torch."""
        return ()

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:  # noqa: ARG002
        """There is one build of each torch."""
        return "it is as good"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:  # noqa: ARG002
        """Warn of what nobody has tried."""
        proof = "builds for Intel's GPUs are not proven on a card yet: verify decides (please send probe --record)"
        return (Reason("not-proven", proof),)

    def floors(self, build: Build) -> Mapping[str, str]:  # noqa: ARG002
        """No oldest driver is known."""
        return {}

    @property
    def _table(self) -> Mapping[str, Any]:
        return self.catalog.chips[self.kind]
