"""What a maker of GPUs says of its own, so that nobody else has to know it: ``Rules`` for the choice of a build, and
``Toolchain`` for what compiles code for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine


class Reason(NamedTuple):
    """A slug for programs and a sentence for people; a reason, a warning or the cause of a refusal."""

    code: str
    message: str


class Code(NamedTuple):
    """The code of a build that a GPU runs, such as ``sm_86``, and how: ``sass``, or ``ptx``, compiled at first use."""

    name: str
    how: str


class Unusable(NamedTuple):
    """Why a machine or a GPU cannot be used, and what would help."""

    reason: Reason
    fix: str | None


class Rules(Protocol):
    """A maker's rules, bound to one machine and one catalogue. Pure: they know what they are given."""

    @property
    def catalog(self) -> Catalog:
        """The catalogue, with the builds of its kind."""

    @property
    def vendor(self) -> str:
        """The maker's name in documents, ``nvidia``."""

    @property
    def name(self) -> str:
        """The maker's name for people, ``NVIDIA``."""

    @property
    def kind(self) -> str:
        """The kind of the backends that serve its GPUs, ``cuda``."""

    @property
    def software(self) -> str:
        """What its builds are made for, for people: ``CUDA``."""

    @property
    def code_reasons(self) -> tuple[str, ...]:
        """The slugs of the reasons that ``code`` gives for the chip's sake, the most hopeless first."""

    @property
    def driver_reasons(self) -> tuple[str, ...]:
        """The slugs of the reasons that another driver would help against, the most hopeless first."""

    @property
    def no_code_causes(self) -> tuple[str, str]:
        """The failure catalogue's entries for a GPU that is older, and one that is newer, than all a build has."""

    @property
    def driver(self) -> str:
        """The machine's driver as people name it: ``driver 535.183.01``."""

    def platform_fault(self) -> Unusable | None:
        """Say why no public build runs on this kind of machine, whatever its GPUs and its driver."""

    def driver_fault(self, gpus: Sequence[Gpu]) -> Unusable | None:
        """Say that the machine has no driver for these GPUs, or none that is known."""

    def gpu_fault(self, gpu: Gpu) -> Unusable | None:
        """Say why a GPU cannot be planned for: it is not known what it is, or its driver ignores it."""

    def architecture(self, gpu: Gpu) -> str | None:
        """The name of the code that a GPU runs, ``sm_89``; None where it is not known."""

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Sort GPUs: the more capable, the higher."""

    def ever_served(self, gpu: Gpu) -> bool:
        """Say whether any build for this platform has code for a GPU under some driver; True where that is unknown."""

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Find the code of a build that a GPU runs under this driver, or say why there is none.

        One that ``lists_no_code`` is asked for only where it is forced: it is taken to have what the GPU needs.
        """

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:
        """Say of a build without code for some of the GPUs what it has: ``begins at sm_75``."""

    def predates(self, build: Build, gpu: Gpu) -> bool:
        """Say whether all that a build has is for older GPUs than this one."""

    def against_driver(self, build: Build) -> Reason | None:
        """Say why the driver does not run a build."""

    def driver_for(self, build: Build) -> str:
        """The driver that a build needs, for people: ``driver 580 or newer``."""

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:
        """What to do for GPUs about a build that was rejected with ``code``; None where no driver helps."""

    def preference(self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]) -> tuple[object, ...]:
        """Sort builds of one torch that fit: the better, the lower."""

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:
        """Say what the build of the better preference has over the other's."""

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:
        """Warn of a build that runs on the GPUs, but not without reserve."""

    def floors(self, build: Build) -> Mapping[str, str]:
        """The oldest driver that runs a build, as a lock writes it: ``{"driver": "525.60.13"}``."""


class Compiler(NamedTuple):
    """A compiler that was found: its path, and the version of its toolkit, ``12.6`` (empty where it says none)."""

    path: str
    version: str


class Toolchain(Protocol):
    """A maker's compiler; torch takes the one of its own toolkit."""

    @property
    def compiler(self) -> str:
        """What people call it, ``nvcc``."""

    @property
    def software(self) -> str:
        """What its versions are of, ``CUDA``."""

    def find(self, environ: Mapping[str, str]) -> Compiler | None:
        """Find the compiler that torch would take."""

    def serves(self, compiler: str, wanted: str) -> bool:
        """Say whether torch of one toolkit takes the compiler of another."""

    def wheels(self, wanted: str) -> tuple[str, ...]:
        """The requirements that bring the compiler of a toolkit as wheels; none where there are no such wheels."""

    def home_in(self, site_packages: str, versions: Mapping[str, str]) -> str | None:
        """The folder of the toolkit that such wheels make, where they are among ``versions``."""

    def from_wheels(self, versions: Mapping[str, str]) -> Compiler | None:
        """The compiler that the packages of an environment bring."""

    def settings(self, home: str) -> Mapping[str, str]:
        """The variables with which torch finds a toolkit."""

    def fix(self, wanted: str, machine: Machine) -> str | None:
        """How to have the compiler of a toolkit on a machine, as commands."""
