"""Interface of vendor rules, which decide which builds a GPU can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.base.advice import Advice, Hint, make_command
from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Build, Catalog


class Code(Value):
    """Code in a build that a GPU can run."""

    name: str
    """The name of the code in the build's list, such as ``sm_86``."""
    how: str
    """The kind of code: ``sass``, or ``ptx``, which the driver compiles."""


Preference = tuple[tuple[object, str], ...]
Toolkit = tuple[int, int] | None
"""The version of the vendor's toolkit that a build was compiled with."""


class Rules(Value):
    """A vendor's rules for one machine and a catalog of builds.

    The rules perform no I/O. By default, a GPU runs every build that lists its
    architecture, with any driver.
    """

    machine: Machine
    catalog: Catalog

    vendor: ClassVar[str]
    """The vendor's name in JSON documents: ``nvidia``."""
    name: ClassVar[str]
    """The vendor's name in messages: ``NVIDIA``."""
    kind: ClassVar[str]
    """The kind of torch backend, such as ``cuda``."""
    software: ClassVar[str]
    """The name of the GPU platform in messages, such as ``CUDA``."""
    code_reasons: ClassVar[tuple[str, ...]] = ("no-code",)
    """Rejection reasons that depend on the chip, most severe first."""
    driver_reasons: ClassVar[tuple[str, ...]] = ()
    """Rejection reasons that another driver would fix, most severe first."""
    no_code: ClassVar[str] = "F37"
    """The ID of the failure if a build has no code for a GPU."""
    idle_causes: ClassVar[tuple[str, str]] = ("F33", "F24")
    """The failure IDs if torch was built for the CPU or another vendor."""
    needs_architecture: ClassVar[bool] = True
    """Whether GPUs of unknown architecture are ignored."""
    torch_device: ClassVar[str]
    """The device type in torch, such as ``cuda``."""
    variables: ClassVar[Mapping[str, str]]
    """Environment variables that select GPUs. ``{}`` is their list."""
    prefix: ClassVar[str] = ""
    """The text before the list of GPUs in these environment variables."""
    no_device: ClassVar[str] = ""
    """The value of these environment variables that selects no GPU."""
    misleading_variables: ClassVar[tuple[str, ...]] = ()
    """Environment variables that hide GPUs or change results."""

    @property
    def driver(self) -> str:
        """The machine's driver for messages: ``driver 535.183.01``."""
        return f"{self.name}'s driver"

    def find_platform_fault(self) -> Finding | None:
        """Return the reason why no public build runs on this platform."""
        return None

    def list_install_commands(self) -> Iterator[Advice]:
        """Yield commands that install the vendor's own builds."""
        yield from ()

    def find_driver_fault(self, gpus: Sequence[Gpu]) -> Finding | None:
        """Return a finding if the GPU driver is missing or unknown."""
        return None

    def find_gpu_fault(self, gpu: Gpu) -> Finding | None:
        """Return a finding if a GPU is unknown or no build supports it."""
        if gpu.architecture is not None:
            return None
        return Finding(
            "unknown-gpu",
            f"the architecture of {gpu.label} is unknown",
            fixes=(make_command("probe", note="on the machine itself"),),
        )

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """Return the names that builds may list for a GPU's code."""
        return (gpu.architecture,) if gpu.architecture else ()

    def get_chip_name(self, gpu: Gpu) -> str:
        """Return the name of a GPU's chip for messages about code."""
        return gpu.architecture or gpu.label

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Return a sort key that is higher for more capable GPUs."""
        return (0,)

    def is_ever_supported(self, gpu: Gpu) -> bool:
        """Return whether any build for this platform may support a GPU."""
        builds = self.catalog.builds_for(self.machine.os, self.machine.arch)
        names = {*self.code_names(gpu)}
        if gpu.architecture is None:
            return True
        return any(not names.isdisjoint(build.code) for build in builds)

    def find_code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Return a build's code that a GPU can run with this driver.

        A build with ``lists_no_code`` is a candidate only if the user forces it, and is then assumed to support the
        GPU.
        """
        names = self.code_names(gpu)
        for name in names:
            if name in build.code:
                return Code(name, "sass")
        if names and build.lists_no_code:
            return Code(str(gpu.architecture), "sass")
        if not build.code:
            return Reason("no-code", f"the GPU code of {build.name} is unknown")
        return Reason(
            "no-code",
            f"no code for {self.get_chip_name(gpu)}, only for {', '.join(build.code)}",
        )

    def find_no_code_cause(self, code: Sequence[str], gpu: Gpu) -> str:
        """Return the failure ID if a build's code does not support a GPU."""
        return self.no_code

    def find_driver_rejection(self, build: Build) -> Reason | None:
        """Return why the driver cannot run a build, or None."""
        return None

    def find_driver_fix(
        self,
        build: Build,
        code: str,
        gpus: Sequence[Gpu],
    ) -> tuple[Hint, ...]:
        """Return the instructions for a driver that runs a rejected build.

        Args:
            build: The best rejected build.
            code: The code of the rejection reason.
            gpus: The GPUs.
        """
        return ()

    def create_preference_key(
        self,
        toolkit: Toolkit,
        codes: Sequence[Code | Reason],
        gpus: Sequence[Gpu],
    ) -> Preference:
        """Return a sort key that is lower for better compatible builds.

        Each component of the sort key includes the explanation to print if that
        component decides between two builds.

        Args:
            toolkit: The build's toolkit.
            codes: The code that each GPU runs, or the reason why it has none.
            gpus: The GPUs in the same order.
        """
        return ()

    def list_warnings(
        self,
        build: Build,
        gpus: Sequence[Gpu],
    ) -> tuple[Reason, ...]:
        """Return warnings about a build that the GPUs can run.

        By default, none of the vendor's builds was tested on a GPU yet.
        """
        message = f"builds for {self.name} GPUs have not been tested on hardware yet"
        probe = make_command("probe", "--json", note="please send its output")
        return (Reason("not-proven", message, fixes=(make_command("verify"), probe)),)

    def find_minimum_drivers(self, build: Build) -> Mapping[str, str]:
        """Return the minimum driver of a build, as recorded in lock files.

        The result is, for example, ``{"driver": "525.60.13"}``.
        """
        return {}

    @property
    def chips(self) -> Mapping[str, Any]:
        """The catalog's table of the vendor's chips."""
        return self.catalog.chips(self.vendor)

    def read_machine_fact(self, key: str) -> str | None:
        """Return a text from the vendor's table of the Machine document."""
        value = self.machine.makers.get(self.vendor, {}).get(key)
        return value if isinstance(value, str) else None
