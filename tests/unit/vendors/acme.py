"""A maker of GPUs that nobody has heard of, in full: its rules, its tag, its row in the catalogue, its machine."""

# ruff: noqa: ARG002  most rules have nothing to say

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gpuinstall.backend import SPELLINGS, Spelling
from gpuinstall.catalog.loader import parse_catalog
from gpuinstall.machine import Machine
from gpuinstall.vendors import VENDORS, Vendor
from gpuinstall.vendors.protocol import Code, Reason, Unusable
from tests.frozen import read_frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu


@dataclass(frozen=True)
class AcmeRules:
    """Acme's rules: a build runs on the architectures that it names, and Acme's kernel driver always fits."""

    machine: Machine
    catalog: Catalog

    vendor: ClassVar = "acme"
    name: ClassVar = "Acme"
    kind: ClassVar = "acme"
    software: ClassVar = "Acme"
    driver: ClassVar = "Acme's driver"
    code_reasons: ClassVar = ("no-acme-code",)
    no_code_causes: ClassVar = ("F37", "F38")
    driver_reasons: ClassVar = ()

    def platform_fault(self) -> Unusable | None:
        return None

    def driver_fault(self, gpus: Sequence[Gpu]) -> Unusable | None:
        return None

    def gpu_fault(self, gpu: Gpu) -> Unusable | None:
        return None

    def architecture(self, gpu: Gpu) -> str | None:
        return gpu.architecture

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        return (0,)

    def ever_served(self, gpu: Gpu) -> bool:
        return any(gpu.architecture in build.code for build in self.catalog.builds)

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        if gpu.architecture in build.code:
            return Code(str(gpu.architecture), "sass")
        return Reason("no-acme-code", f"no code for {gpu.architecture}, only for {', '.join(build.code)}")

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:
        return "has none"

    def predates(self, build: Build, gpu: Gpu) -> bool:
        return False

    def against_driver(self, build: Build) -> Reason | None:
        return None

    def driver_for(self, build: Build) -> str:
        return "any driver"

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:
        return None

    def preference(self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]) -> tuple[object, ...]:
        return ()

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:
        return "it is as good"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:
        return ()

    def floors(self, build: Build) -> Mapping[str, str]:
        return {}


def visible(devices: Sequence[str]) -> Mapping[str, str]:
    return {"ACME_VISIBLE": ",".join(devices)}


def register_acme(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a new maker does: one entry of the registry, and how its tags are written."""
    monkeypatch.setitem(VENDORS, "acme", Vendor("acme", AcmeRules, visible))
    monkeypatch.setitem(SPELLINGS, "acme", Spelling("acme", "[0-9]+"))


def acme_catalog() -> Catalog:
    """The catalogue with one row more: a build of torch 2.10.0 for one of Acme's architectures."""
    table = read_frozen("builds.toml")
    row = {"torch": "2.10.0", "tag": "acme1", "toolkit": "1.0", "linux_x86_64": ["anvil3", "high", "META"]}
    return parse_catalog({**table, "builds": [*table["builds"], row]}, read_frozen("drivers.toml"))


def acme_machine(*architectures: str) -> Machine:
    """A machine with Acme's GPUs, as its document says."""
    gpus = [
        {"index": index, "name": "Acme Anvil", "vendor": "acme", "architecture": name, "compute_capability": None}
        for index, name in enumerate(architectures)
    ]
    document = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64", "glibc": "2.36", "gpus": gpus}
    return Machine.from_dict(document)
