"""What each tool decides of machines by its own rule, against the plan, for many locks."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog import load_catalog
from gpuinstall.errors import UsageError
from gpuinstall.export.needs import MachineNeeds, machine_needs
from gpuinstall.export.tools import MACHINE_TOOLS, Property, words_for
from gpuinstall.finding import Rejection
from gpuinstall.lock.fit import fit
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.probe import read_recording
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.versions import ComputeCapability, DriverVersion
from tests.lab.tool_rules import RULES, feature_of, offers_of
from tests.unit.export.locks import lock, wheel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.lock.lock import Lock

MACHINES = Path(__file__).resolve().parents[2] / "data" / "machines"

BUILDS = [
    "2.15.0 cu132",
    "2.15.0 cu130",
    "2.14.1 cu132",
    "2.14.1 cu130",
    "2.14.1 cu126",
    "2.13.0 cu129",
    "2.10.0 cu129",
    "2.10.0 cu128",
    "2.8.0 cu129",
    "2.7.1 cu128",
    "2.7.1 cu126",
    "2.7.1 cu118",
    "2.6.0 cu124",
    "2.5.1 cu121",
    "2.3.1 cu121",
    "2.3.1 cu118",
    "2.14.1 cu130-linux-aarch64",
    "2.14.1 cu126-linux-aarch64",
    "2.14.1 rocm7.2",
    "2.14.1 xpu",
]

PROPERTY_OF = {
    "no-code": Property.GPUS,
    "no-cudnn-code": Property.GPUS,
    "other-platform": Property.ARCH,
    "driver-too-old": Property.DRIVER,
    "driver-too-old-for-ptx": Property.DRIVER,
    "driver-older-than-gpu": Property.DRIVER,
    "driver-dropped-gpu": Property.LAST_DRIVER,
    "no-build-ever": Property.GPUS,
    "no-build-for-platform": Property.GPUS,
}
"""The property of a machine for which a plan refuses it, by the code of its reason."""

HEALTH = {"gpu-lost", "open-module-on-old-gpu", "jetson"}
"""The reasons of a plan that are no property of a kind of machine: a fault of this one, or a Linux of its own."""


class Judgement(NamedTuple):
    """What a tool and the plan say of one machine and one lock."""

    tool: str
    lock: str
    machine: str
    is_let_in: bool
    refusal: str | None
    """The code of the plan's reason; None: it runs."""
    is_sayable: bool
    """Whether the tool has words for what the plan refuses it for."""


def locks() -> list[Lock]:
    made = []
    for build in BUILDS:
        torch, target = build.split()
        backend, _, system = target.partition("-")
        arch = "aarch64" if "aarch64" in system else "x86_64"
        name = target.replace(".", "-")
        package = wheel("torch", f"{torch}+{backend}", f"cp312-cp312-manylinux_2_28_{arch}")
        made.append(lock(name, package))
    return made


def recorded_machines() -> dict[str, Machine]:
    machines = {}
    for folder in sorted(MACHINES.iterdir()):
        machines[folder.name] = read_recording(folder, SilentReporter())
    return machines


def machines_of_every_kind() -> dict[str, Machine]:
    """A machine for each kind of NVIDIA's GPUs and each driver at which a table changes, and the one before it."""
    catalog = load_catalog()
    releases = {f"{branch}.10.01" for branch, _ in catalog.drivers.branches}
    for floor in (*catalog.drivers.floors.values(), *catalog.drivers.first_drivers.values()):
        releases.add(str(floor.linux) if len(floor.linux.parts) > 1 else f"{floor.linux}.20.01")
    machines = {}
    for code in machine_needs(locks()[:1], catalog)[0].known_codes:
        gpu = Gpu(0, compute_capability=ComputeCapability.parse(code))
        for release in sorted(releases):
            driver = Driver(DriverVersion.parse(release))
            machines[f"{code} {release}"] = Machine("linux", "x86_64", gpus=(gpu,), driver=driver)
    return machines


def judgements(machines: Mapping[str, Machine], made: Sequence[Lock]) -> Iterator[Judgement]:
    """Yield what every tool that has words for a lock says of every machine."""
    catalog = load_catalog()
    for one in made:
        needs = machine_needs([one], catalog)[0]
        texts = words_by_tool(needs)
        for name, machine in machines.items():
            verdict = fit(one, machine, Request(()), catalog)
            refusal = verdict.reason.code if isinstance(verdict, Rejection) else None
            for tool, text in texts.items():
                rule = RULES[tool]
                is_let_in = any(rule(text, offer) for offer in offers_of(machine))
                is_sayable = _is_sayable(tool, needs, machine, refusal)
                yield Judgement(tool, one.name, name, is_let_in, refusal, is_sayable)


def _is_sayable(tool: str, needs: MachineNeeds, machine: Machine, refusal: str | None) -> bool:
    if refusal not in PROPERTY_OF:
        return False
    reason = PROPERTY_OF[refusal]
    release = machine.driver and machine.driver.version
    if reason is Property.DRIVER and release:
        # A tool that knows a driver by its CUDA knows its branch.
        floors = [gpus.driver.branch for gpus in needs.gpus if gpus.driver]
        reason = Property.RELEASE if release.branch in floors else Property.DRIVER
    row = next(row for row in MACHINE_TOOLS if row.name == tool)
    return reason in row.says[str(needs.maker)]


def words_by_tool(needs: MachineNeeds) -> dict[str, str]:
    features = {feature_of(code): code for code in needs.known_codes}
    texts = {}
    for tool in MACHINE_TOOLS:
        with suppress(UsageError):
            texts[tool.name] = words_for(tool, needs, features if tool.needs_features else {})
    return texts
