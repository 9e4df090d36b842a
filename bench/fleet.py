"""What a fleet costs the machine that drives it: the plan and the report of many nodes, and reading their records."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.harness import Pair, Row, paired, single
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
    from collections.abc import Callable, Iterator

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
RUN_NODES, RUN_S = 300_000, 4.0


def rows() -> Iterator[Row]:
    """Measure a plan of 100 000 nodes in 40 classes, its report as metrics, and the report of a run."""
    before_mb = _megabytes()
    start = time.process_time()
    plan = plan_fleet(node_classes(_surveyed())[0], Request(), load_catalog())
    took = time.process_time() - start
    took_mb = _megabytes() - before_mb
    yield single(f"fleet plan: {NODES} nodes, {len(plan.classes)} classes", took, PLAN_S)
    yield Row(
        "fleet plan: memory",
        f"{took_mb:.0f} MB",
        goal=f"< {PLAN_MB} MB",
        met=took_mb < PLAN_MB,
    )
    start = time.process_time()
    text = metrics(_reported(plan))
    took = time.process_time() - start
    size = f"{len(text) / 1e6:.1f} MB"
    yield single("fleet report: the same, as metrics", took, REPORT_S, beside=size)
    with _run_folder(recorded=False) as folder:
        took, used_mb = _read_apart(folder)
    name = f"fleet report: a run of {RUN_NODES} nodes"
    yield single(name, took, RUN_S, beside=f"{used_mb:.0f} MB")
    yield _beside_parsing().times("fleet report: the same, a record each", 1.5)


def _surveyed() -> Iterator[tuple[NodeName, dict[str, Any]]]:
    """Yield for every node a document of its own, as it would be read."""
    kinds = []
    for gpu, driver in islice(product(GPUS, DRIVERS), CLASSES):
        machine = machine_in_words((gpu,) * 8, driver, None, None)
        kinds.append(machine.to_dict())
    for number in range(NODES):
        kind = kinds[number % CLASSES]
        gpus = [{**gpu, "uuid": f"GPU-{number}"} for gpu in kind["gpus"]]
        yield NodeName(f"n{number}"), {**kind, "gpus": gpus}


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
    installed = {**states, **dict.fromkeys(nodes[::100], LOST)}
    steps = {"install": installed, "verify": states}
    return build_report(states, WrittenPlan(tuple(groups)), steps)


def _read_apart(folder: RunFolder) -> tuple[float, float]:
    """Return the seconds of a processor and the megabytes for the report of a run, in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        return apart.submit(_read_report, folder).result()


@contextmanager
def _run_folder(*, recorded: bool) -> Iterator[RunFolder]:
    """Lend the folder of a run of many nodes, if ``recorded`` with the record of a survey for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name))
        nodes = expand(f"n[1-{RUN_NODES}]")
        run = FleetRun("run", "local", nodes)
        folder.write_document("run", run.to_dict())
        survey = folder.path / "survey"
        survey.mkdir()
        for node in nodes if recorded else ():
            record = NodeRecord("run", node, "survey", status="ok")
            text = json.dumps(record.to_dict())
            (survey / f"{node}.json").write_text(text, encoding="utf-8")
        yield folder


def _read_report(folder: RunFolder) -> tuple[float, float]:
    before_mb = _most_megabytes()
    took = _processor_seconds(lambda: read_report(folder).to_dict())
    return took, _most_megabytes() - before_mb


def _beside_parsing() -> Pair:
    """Return the seconds of a processor for a report, and for nothing but reading and parsing its records."""
    with _run_folder(recorded=True) as folder:
        report = partial(_processor_seconds, lambda: read_report(folder).to_dict())
        parsing = partial(_processor_seconds, lambda: _parse_records(folder.path / "survey"))
        return paired(report, parsing, 3)


def _parse_records(folder: Path) -> None:
    for entry in os.scandir(folder):
        with open(entry.path, "rb") as file:  # noqa: PTH123  a Path takes longer to make
            json.loads(file.read())


def _processor_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _most_megabytes() -> float:
    """Return the most that this process has held; what getrusage(2) tells begins with its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    words = status.partition("VmHWM:")[2].split()
    return int(words[0]) / 1024


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
