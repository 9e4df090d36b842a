"""A maker of GPUs joins the probe by its prober alone, and a step by one entry."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import Reporter, SilentReporter
from gpuinstall.machine import probe
from gpuinstall.machine.nvidia.evidence import NvidiaEvidence
from gpuinstall.machine.nvidia.prober import NVIDIA_STEPS, NvidiaProber
from gpuinstall.machine.prober import GpuProof, Preflight, Prober, VendorFindings
from gpuinstall.machine.steps import MachineFacts, Step, take
from tests.lab.recorded import card, no_libcuda, no_nvml, recording


@dataclass(frozen=True)
class AcmeEvidence:
    facts: MachineFacts
    version: str | None = None


class AcmeProber(Prober[AcmeEvidence]):
    """A maker whose driver is one file."""

    vendor = "amd"
    evidence = AcmeEvidence
    steps = (Step("version", lambda source, _: source.text("/sys/module/acme/version")),)

    def answers(self, evidence: AcmeEvidence) -> bool:
        return evidence.version is not None

    def conclude(self, evidence: AcmeEvidence) -> VendorFindings:
        cards = [device for device in evidence.facts.devices if device.vendor == 0x1002]
        fault = Finding("acme-driver-missing", "Acme's driver is missing")
        return VendorFindings(
            gpus=tuple(
                Gpu(index, "Acme One", pci_id=device.id) for index, device in enumerate(cards)
            ),
            faults=(fault,) if cards and evidence.version is None else (),
            shows_gpu=bool(cards),
        )

    def preflight(self, machine: Machine, reporter: Reporter) -> Preflight:  # noqa: ARG002
        return Preflight(tuple(GpuProof(gpu.index, "proven") for gpu in machine.gpus))


@pytest.fixture(autouse=True)
def _acme(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(probe, "PROBERS", (NvidiaProber(), AcmeProber()))


def test_another_makers_gpu_is_listed_and_no_longer_unsupported(tmp_path):
    files = (
        card(3, "1002:744c", "acme")
        | no_nvml()
        | no_libcuda()
        | {"/sys/module/acme/version": "1.0\n"}
    )
    machine = probe.read_machine(source=recording(tmp_path, files))
    assert [gpu.name for gpu in machine.gpus] == ["Acme One"]
    assert machine.problems == ()


def test_another_makers_fault_is_the_machines(tmp_path):
    files = card(3, "1002:744c", None) | no_nvml() | no_libcuda()
    machine = probe.read_machine(source=recording(tmp_path, files))
    assert [problem.code for problem in machine.blocking] == ["acme-driver-missing"]


def test_every_makers_gpus_are_proven():
    machine = Machine(
        os="linux",
        arch="x86_64",
        gpus=(Gpu(0, "Acme One"),),
        problems=(Finding("no-nvidia", "none"),),
    )
    assert probe.preflight(machine, SilentReporter()).cards == (GpuProof(0, "proven"),)


@dataclass(frozen=True)
class Read:
    first: str = ""
    second: str = ""
    third: str = ""


def test_a_step_sees_the_facts_of_those_before_it_and_neighbours_are_read_at_once(
    tmp_path,
):
    steps: tuple[Step[Read], ...] = (
        Step("first", lambda source, _: source.text("/fact")),
        Step("second", lambda _, facts: f"{facts.first}+{facts.third}", together=True),
        Step("third", lambda _, facts: f"{facts.first}-{facts.second}", together=True),
        Step("first", lambda _, facts: facts.second + facts.third),
    )
    facts = take(steps, Read(), recording(tmp_path, {"/fact": "1"}))
    assert facts == Read("1+1-", "1+", "1-")


def test_every_fact_is_read_by_a_step():
    assert {step.fact for step in probe.MACHINE_STEPS} == {
        fact.name for fact in fields(MachineFacts)
    }
    assert {step.fact for step in NVIDIA_STEPS} == {
        fact.name for fact in fields(NvidiaEvidence)
    } - {"facts"}
