"""What a maker of GPUs brings to the probe, and the values that it gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, get_args

from gpuinstall.facts.container import JOBS
from gpuinstall.facts.steps import MachineFacts, Step, take
from gpuinstall.vendors import vendor_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.facts.source import Source
    from gpuinstall.finding import CheckResult, Finding
    from gpuinstall.machine import Driver, Gpu, Machine
    from gpuinstall.reporter import Reporter

ProofOutcome = Literal["proven", "memory-only", "unproven", "failed"]
OUTCOMES: tuple[ProofOutcome, ...] = get_args(ProofOutcome)

_SAID: dict[ProofOutcome, str] = {
    "proven": "a kernel ran on {}",
    "memory-only": "memory was set and read back on {}",
    "unproven": "not proven: {}",
    "failed": "failed: {}",
}

Evidence = TypeVar("Evidence")


@dataclass(frozen=True)
class VendorFindings:
    """What one maker's prober concludes: its GPUs and driver, what is wrong with them, what should be known.

    ``shows_gpu`` says whether any source shows one that this process was given, listed or not; ``facts`` are what the
    Machine document says below the maker's name.
    """

    gpus: tuple[Gpu, ...] = ()
    driver: Driver | None = None
    faults: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    shows_gpu: bool = False
    l4t: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuProof:
    """What one GPU showed before anything was downloaded; ``index`` is the machine's. Busy ones are ``unproven``."""

    index: int
    outcome: ProofOutcome


@dataclass(frozen=True)
class Preflight:
    """What the GPUs showed, what is wrong with them, and the seconds it took."""

    cards: tuple[GpuProof, ...] = ()
    problems: tuple[Finding, ...] = ()
    seconds: float = 0.0

    def with_outcome(self, outcome: ProofOutcome) -> tuple[int, ...]:
        """The indices of the GPUs that ended so."""
        return tuple(card.index for card in self.cards if card.outcome == outcome)

    @property
    def summary(self) -> str:
        """What came of it, in one line."""
        if len(self.with_outcome("proven")) == len(self.cards) > 1:
            return f"a kernel ran on {'both' if len(self.cards) == 2 else f'all {len(self.cards)}'} GPUs"
        groups = {text: self.with_outcome(outcome) for outcome, text in _SAID.items()}
        return " · ".join(text.format(format_gpus(gpus)) for text, gpus in groups.items() if gpus)

    def to_dict(self) -> dict[str, Any]:
        """Write what ``doctor --json`` shows of it."""
        return {
            "gpus": [{"index": card.index, "status": card.outcome} for card in self.cards],
            "problems": [problem.to_dict() for problem in self.problems],
            "seconds": round(self.seconds, 3),
        }


class GpuHealth(NamedTuple):
    """What is known of one GPU; ``link_rate`` is the most that its link carries in one direction, in GB/s."""

    checks: tuple[CheckResult, ...] = ()
    link_rate: float | None = None


class Prober(ABC, Generic[Evidence]):
    """One maker's half of the probe."""

    vendor: ClassVar[str]
    evidence: ClassVar[type[Any]]
    """What its steps gather, made of the facts of the whole machine."""
    steps: ClassVar[tuple[Step[Any], ...]]
    systems: ClassVar[frozenset[str]] = frozenset({"linux", "windows", "macos"})
    """Where the steps are taken."""
    job_variables: ClassVar[tuple[str, ...]] = ()
    """The variables in which a scheduler names the GPUs of a job by their place; the first one set counts."""

    def read(self, source: Source, facts: MachineFacts) -> Any:
        """Read what only this maker's machines have; the facts of the whole machine are given."""
        evidence = self.evidence(facts)
        return take(self.steps, evidence, source) if facts.host.os in self.systems else evidence

    @abstractmethod
    def answers(self, evidence: Evidence) -> bool:
        """Say whether the maker's driver answered."""

    @abstractmethod
    def conclude(self, evidence: Evidence) -> VendorFindings:
        """List the GPUs, and name what is wrong with them. Pure."""

    def preflight(self, machine: Machine, reporter: Reporter) -> Preflight:
        """Prove the driver on every usable GPU of this maker, before anything is downloaded.

        Without a kernel to run they stay unproven: kernels come with the build.
        """
        gpus = (gpu.index for gpu in machine.gpus if vendor_of(gpu, machine) == self.vendor)
        return Preflight(
            tuple(GpuProof(gpu, "unproven") for gpu in gpus if gpu not in machine.faulty)
        )

    def withheld(self, gpu: Gpu, ordinal: int, name: str, environ: Mapping[str, str]) -> str | None:
        """Say why this process may not use a GPU or the slice ``name`` of it: its job does not have it. Pure.

        ``ordinal`` is the GPU's place among those of its maker.
        """
        variable = next((name for name in self.job_variables if environ.get(name)), None)
        if variable is None or not any(environ.get(job) for job in JOBS):
            return None
        given = {part.partition(".")[0] for part in environ[variable].split(",")}
        return (
            None
            if str(ordinal) in given
            else f"not assigned to this job: {variable}={environ[variable]}"
        )

    def health(self, gpus: int) -> Mapping[int, GpuHealth]:
        """Ask the maker's library how its GPUs fare, by their indices; ``gpus`` decides how long it may take."""
        return {}


def format_gpus(gpus: tuple[int, ...]) -> str:
    """Name GPUs within a sentence."""
    *first, last = [str(gpu) for gpu in gpus] or ["the GPU"]
    if first:
        return f"GPUs {', '.join(first)} and {last}"
    return f"GPU {last}" if gpus else last
