"""Rules for Macs, whose GPU driver is part of macOS."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from packaging.version import Version

from gpuinstall.base.advice import Advice, Hint
from gpuinstall.base.finding import Reason
from gpuinstall.base.vendors import APPLE
from gpuinstall.base.versions import version_key
from gpuinstall.machine.protocol import Code, Rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build

METAL = (
    ("2.9", "14.0"),
    ("2.5", "13.0"),
    ("1.12", "12.3"),
)
"""The first torch versions that require a newer macOS for Metal.

The wheels of these versions can be installed on an older macOS. Sources:
pytorch/pytorch#162921 and #163515 (14), #133141 and #139425 (13), #76291 and torch's
own message (12.3).
"""


class AppleRules(Rules):
    """Rules for the GPU of one Mac."""

    vendor = APPLE.name
    name = APPLE.label
    kind = APPLE.kind
    software = "macOS"
    no_code = "F33"
    driver_reasons = ("macos-too-old",)
    torch_device = "mps"
    # Unsupported operations must fail instead of silently running on the CPU.
    variables: ClassVar = {"PYTORCH_ENABLE_MPS_FALLBACK": "0"}

    @property
    def driver(self) -> str:
        """The release of macOS."""
        return f"macOS {self._macos or 'of unknown release'}"

    def is_ever_supported(self, gpu: Gpu) -> bool:
        """Return whether this is a Mac with Apple silicon."""
        builds = self.catalog.builds_for(self.machine.os, self.machine.arch)
        return any(_has_code(build) for build in builds)

    def find_code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Return Metal code, which every torch build for Apple silicon has."""
        if _has_code(build):
            return Code("mps", "sass")
        return Reason("no-code", "no code for Metal")

    def find_driver_rejection(self, build: Build) -> Reason | None:
        """Reject a build if its wheel tag or Metal needs a newer macOS."""
        if self._macos is None or version_key(self._macos) >= version_key(
            _oldest_macos(build)
        ):
            return None
        return Reason(
            "macos-too-old",
            f"it requires {self._format_required_driver(build)}",
        )

    def _format_required_driver(self, build: Build) -> str:
        """Return the minimum macOS version for messages."""
        return f"macOS {_oldest_macos(build)} or newer"

    def find_driver_fix(
        self,
        build: Build,
        code: str,
        gpus: Sequence[Gpu],
    ) -> tuple[Hint, ...]:
        """Return the command that updates macOS."""
        if code not in self.driver_reasons:
            return ()
        note = f"Update to {self._format_required_driver(build)}; also in System Settings > General"
        return (Advice("softwareupdate", ("--list",), note=note),)

    def find_minimum_drivers(self, build: Build) -> Mapping[str, str]:
        """Return the minimum macOS version for lock files."""
        return {"macos": _oldest_macos(build)}

    @property
    def _macos(self) -> str | None:
        release = self.read_machine_fact("macos")
        if release and release[0].isdecimal():
            return release
        return None


def _has_code(build: Build) -> bool:
    return build.os == "macos" and build.arch == "arm64"


def _oldest_macos(build: Build) -> str:
    metal = next(macos for first, macos in METAL if build.torch >= Version(first))
    return max(build.macos or metal, metal, key=version_key)
