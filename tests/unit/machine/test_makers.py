"""A maker of GPUs joins the probe by its prober alone."""

from dataclasses import dataclass

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.machine import probe
from gpuinstall.machine.facts import MachineFacts
from gpuinstall.machine.nvidia.prober import NvidiaProber
from gpuinstall.machine.prober import GpuProof, Preflight, Prober, VendorFindings
from tests.lab.recorded import card, no_libcuda, no_nvml, recording


@dataclass(frozen=True)
class AcmeEvidence:
    facts: MachineFacts
    version: str | None = None


class AcmeProber(Prober[AcmeEvidence]):
    """A maker whose driver is one file."""

    vendor = "amd"

    def read(self, source, facts):
        return AcmeEvidence(facts, source.text("/sys/module/acme/version"))

    def answers(self, evidence):
        return evidence.version is not None

    def conclude(self, evidence):
        cards = [device for device in evidence.facts.devices if device.vendor == 0x1002]
        fault = Finding("acme-driver-missing", "Acme's driver is missing")
        return VendorFindings(
            gpus=tuple(
                Gpu(index, "Acme One", pci_id=device.id) for index, device in enumerate(cards)
            ),
            problems=(fault,) if cards and evidence.version is None else (),
            shows_gpu=bool(cards),
        )

    def preflight(self, machine, reporter):  # noqa: ARG002
        return Preflight(tuple(GpuProof(gpu.index, "proven") for gpu in machine.gpus))


@pytest.fixture(autouse=True)
def _acme(monkeypatch):
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
