"""What a fleet costs the machine that drives it: the plan and the report of many nodes, and reading their records."""

from __future__ import annotations

import json
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Pair, Row, single
from gpuinstall import Request, load_catalog
from gpuinstall.fleet.classes import node_classes
from gpuinstall.fleet.documents import FleetRun, LockGroup, NodeRecord, Sha256, WrittenPlan
from gpuinstall.fleet.fleet_plan import plan_fleet
from gpuinstall.fleet.hostlist import NodeName, expand
from gpuinstall.fleet.reconcile import LOST, OK
from gpuinstall.fleet.report import build_report, metrics, read_report
from gpuinstall.fleet.run_folder import RunFolder
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.fleet.fleet_plan import FleetPlan

NODES, CLASSES = 100_000, 40
GPUS = ("V100", "T4", "A100 SXM4 80GB", "L40S", "H100 SXM", "B200")
DRIVERS = (
    "470.256.02",
    "525.60.13",
    "535.183.01",
    "550.144.03",
    "570.86.10",
    "580.95.05",
    "610.43.02",
)
PLAN_S, PLAN_MB, REPORT_S = 2.0, 300, 5.0
FEW, MANY = 500, 5_000
RUN_NODES, RUN_S = 300_000, 4.0


def rows() -> Iterator[Row]:
    """Measure a plan of 100 000 nodes in 40 classes, its report as metrics, and the reading of a node's record."""
    before = _megabytes()
    start = time.process_time()
    plan = plan_fleet(node_classes(_surveyed())[0], Request(), load_catalog())
    took, took_mb = time.process_time() - start, _megabytes() - before
    name = f"fleet plan: {NODES} nodes, {len(plan.classes)} classes"
    yield single(name, took, PLAN_S)
    yield Row(
        "fleet plan: memory", f"{took_mb:.0f} MB", goal=f"< {PLAN_MB} MB", met=took_mb < PLAN_MB
    )
    start = time.process_time()
    text = metrics(_reported(plan))
    took = time.process_time() - start
    yield single(
        "fleet report: the same, as metrics", took, REPORT_S, beside=f"{len(text) / 1e6:.1f} MB"
    )
    few, many = _reading(FEW), _reading(MANY)
    yield Pair(many, few).times(f"fleet: reading a record, of {MANY} and of {FEW}")
    took, used_mb = _read_apart(recorded=False)
    name = f"fleet report: a run of {RUN_NODES} nodes"
    yield single(name, took, RUN_S, beside=f"{used_mb:.0f} MB")
    took, used_mb = _read_apart(recorded=True)
    yield single("fleet report: the same, a record each", took, beside=f"{used_mb:.0f} MB")


def _surveyed() -> Iterator[tuple[NodeName, dict[str, Any]]]:
    """Every node has a document of its own, as it would be read."""
    kinds = [
        machine_in_words((gpu,) * 8, driver, None, None).to_dict()
        for gpu, driver in list(product(GPUS, DRIVERS))[:CLASSES]
    ]
    for number in range(NODES):
        kind = kinds[number % CLASSES]
        yield (
            NodeName(f"n{number}"),
            {**kind, "gpus": [{**gpu, "uuid": f"GPU-{number}"} for gpu in kind["gpus"]]},
        )


def _reported(plan: FleetPlan) -> Any:
    groups = [
        LockGroup(
            *(group.build.name, "pylock.toml", str(group.build.torch), "cu126", group.python),
            plan.nodes(group.classes),
            Sha256("0" * 64),
        )
        for group in plan.groups
    ]
    nodes = plan.nodes(range(len(plan.classes)))
    states = dict.fromkeys(nodes, OK)
    taken = {"install": {**states, **dict.fromkeys(nodes[::100], LOST)}, "verify": states}
    return build_report(states, WrittenPlan(tuple(groups)), taken)


def _reading(count: int) -> float:
    """Seconds for each node's survey, of so many."""
    _, document = next(_surveyed())
    with tempfile.TemporaryDirectory() as name:
        folder, nodes = RunFolder(Path(name)), expand(f"n[1-{count}]")
        for node in nodes:
            folder.keep(NodeRecord("run", node, "survey", status="ok", data={"machine": document}))
        start = time.process_time()
        list(folder.records("survey", nodes))
        return (time.process_time() - start) / count


def _read_apart(*, recorded: bool) -> tuple[float, float]:
    """Seconds of a processor and megabytes for the report of a run, in a process of its own."""
    with (
        tempfile.TemporaryDirectory() as name,
        ProcessPoolExecutor(1, get_context("spawn")) as apart,
    ):
        folder, nodes = RunFolder(Path(name)), expand(f"n[1-{RUN_NODES}]")
        folder.write_document("run", FleetRun("run", "local", nodes).to_dict())
        (folder.path / "survey").mkdir()
        for node in nodes if recorded else ():
            document = NodeRecord("run", node, "survey", status="ok").to_dict()
            (folder.path / "survey" / f"{node}.json").write_text(
                json.dumps(document), encoding="utf-8"
            )
        return apart.submit(_read_report, folder).result()


def _read_report(folder: RunFolder) -> tuple[float, float]:
    before, start = _most_megabytes(), time.process_time()
    read_report(folder).to_dict()
    return time.process_time() - start, _most_megabytes() - before


def _most_megabytes() -> float:
    """The most that this process has held; what getrusage(2) says begins with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
