"""A maker's own rules for the choice of a build, which nothing else has to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.catalog import Build, Catalog


class Code(Value):
    """The code of a build that a GPU runs."""

    name: str
    """As the build lists it, ``sm_86``."""
    how: str
    """``sass``, or ``ptx``, which is compiled at first use."""


Preference = tuple[tuple[object, str], ...]
Toolkit = tuple[int, int] | None
"""The release of the maker's toolkit that a build was made with."""


class Rules(Value):
    """A maker's rules, bound to one machine and to the catalogue with the builds of its kind.

    A maker answers what differs from the defaults: a GPU runs the builds that name its architecture, and every driver
    runs every build. Pure: the rules look at nothing but what they are given.
    """

    machine: Machine
    catalog: Catalog

    vendor: ClassVar[str]
    """The maker's name in documents, ``nvidia``."""
    name: ClassVar[str]
    """The maker's name for people, ``NVIDIA``."""
    kind: ClassVar[str]
    """The kind of the backends that serve its GPUs, ``cuda``."""
    software: ClassVar[str]
    """What its builds are made for, for people: ``CUDA``."""
    code_reasons: ClassVar[tuple[str, ...]] = ("no-code",)
    """The slugs of the reasons that ``code`` gives for the chip's sake, the most hopeless first."""
    driver_reasons: ClassVar[tuple[str, ...]] = ()
    """The slugs of the reasons that another driver would help against, the most hopeless first."""
    no_code: ClassVar[str] = "F37"
    """The failure catalogue's entry for a GPU that a build has no code for."""
    architecture_source: ClassVar[str] = "its driver"
    """What tells which architecture a GPU has."""
    not_proven: ClassVar[str | None] = None
    """The warning for all its builds if nobody has run one on a GPU yet."""

    @property
    def driver(self) -> str:
        """The machine's driver as people name it: ``driver 535.183.01``."""
        return f"{self.name}'s driver"

    def platform_fault(self) -> Finding | None:
        """Return why no public build runs on this kind of machine, whatever its GPUs and its driver."""
        return None

    def own_builds(self) -> Iterator[str]:
        """Yield the command that installs the maker's own builds for these GPUs, which cannot be locked."""
        yield from ()

    def driver_fault(self, gpus: Sequence[Gpu]) -> Finding | None:
        """Return that the machine has no driver for these GPUs, or one of an unknown release."""
        return None

    def gpu_fault(self, gpu: Gpu) -> Finding | None:
        """Return why a GPU cannot be planned for: its architecture is unknown, or its driver ignores it."""
        if self.architecture(gpu) is not None:
            return None
        message = f"which code {gpu.label} runs is not known: {self.architecture_source} tells it"
        return Finding(
            "unknown-gpu",
            message,
            fixes=("gpuinstall probe   # on the machine itself",),
        )

    def architecture(self, gpu: Gpu) -> str | None:
        """Return the name of the code that a GPU runs, ``sm_89``; None if it is unknown."""
        return gpu.architecture

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """Return the names by which builds list the code for a GPU."""
        return (gpu.architecture,) if gpu.architecture else ()

    def chip_name(self, gpu: Gpu) -> str:
        """Return a GPU's chip for a sentence about code."""
        return gpu.architecture or gpu.label

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Return a key that sorts GPUs: the more capable, the higher."""
        return (0,)

    def ever_served(self, gpu: Gpu) -> bool:
        """Whether any build for this platform has code for a GPU under some driver; True if that is unknown."""
        builds = self.catalog.builds_for(self.machine.os, self.machine.arch)
        names = {*self.code_names(gpu)}
        if gpu.architecture is None:
            return True
        return any(not names.isdisjoint(build.code) for build in builds)

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Return the code of a build that a GPU runs under this driver, or why there is none.

        A build that ``lists_no_code`` is only looked at if it is forced: it is taken to have what the GPU needs.
        """
        names = self.code_names(gpu)
        for name in names:
            if name in build.code:
                return Code(name, "sass")
        if names and build.lists_no_code:
            return Code(str(gpu.architecture), "sass")
        if not build.code:
            return Reason(
                "no-code", f"which chips {build.name} has code for is not known"
            )
        return Reason(
            "no-code",
            f"no code for {self.chip_name(gpu)}, only for {', '.join(build.code)}",
        )

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:
        """Return what a build without code for some of the GPUs has: ``begins at sm_75``."""
        return "has none"

    def no_code_cause(self, code: Sequence[str], gpu: Gpu) -> str:
        """Return the entry for a GPU that none of a build's ``code`` is for."""
        return self.no_code

    def against_driver(self, build: Build) -> Reason | None:
        """Return why the driver does not run a build."""
        return None

    def driver_for(self, build: Build) -> str:
        """Return the driver that a build needs, for people: ``driver 580 or newer``."""
        return f"{self.name}'s driver"

    def driver_fix(
        self,
        build: Build,
        code: str,
        gpus: Sequence[Gpu],
    ) -> str | None:
        """Return what to do for GPUs about a build that was rejected with ``code``; None if no driver helps.

        Args:
            build: The build that came closest.
            code: The code of the reason against it.
            gpus: Those that it is for.
        """
        return None

    def preference(
        self,
        toolkit: Toolkit,
        codes: Sequence[Code | Reason],
        gpus: Sequence[Gpu],
    ) -> Preference:
        """Return a key that sorts builds of one torch that fit, by their toolkits and codes: the better, the lower.

        Each part of it has the words for a build that is better by it.

        Args:
            toolkit: The toolkit that a build was made with.
            codes: What each GPU runs of it, or why it runs nothing.
            gpus: Those GPUs, in the same order.
        """
        return ()

    def warnings(
        self,
        build: Build,
        gpus: Sequence[Gpu],
    ) -> tuple[Reason, ...]:
        """Return why a build runs on the GPUs, but not without reserve."""
        if self.not_proven:
            return (Reason("not-proven", self.not_proven),)
        return ()

    def floors(self, build: Build) -> Mapping[str, str]:
        """Return the oldest driver that runs a build, as a lock writes it: ``{"driver": "525.60.13"}``."""
        return {}

    @property
    def chips(self) -> Mapping[str, Any]:
        """The catalogue's table of the maker's chips."""
        return self.catalog.chips(self.vendor)

    def machine_fact(self, key: str) -> str | None:
        """Return a fact that the Machine document has below the maker's name; None if it is missing or no text."""
        value = self.machine.makers.get(self.vendor, {}).get(key)
        return value if isinstance(value, str) else None
