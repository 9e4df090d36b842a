"""A fleet on a real Ray cluster of four raylets on this machine; one of them is killed in the middle."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.lab.index import StandInIndex
from tests.lab.nodes import A100, Nodes
from tests.lab.releases import LINUX, catalog_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray: pip install 'ray>=2.40'"
)
NAMES = ("r1", "r2", "r3", "r4")
HOLD = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "node_name": "r1"})
nodes = {name: cluster.add_node(num_cpus=1, node_name=name) for name in ("r2", "r3", "r4")}
cluster.wait_for_nodes()
print("address", cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(nodes[line.strip()], allow_graceful=False)
cluster.shutdown()
"""


@pytest.fixture
def cluster(libraries: Path, tmp_path: Path) -> Iterator[tuple[Nodes, subprocess.Popen[str]]]:
    """Four raylets of one machine, which is played to have two A100s."""
    wheels = catalog_index(tmp_path / "index", ["2.14.1"], platforms=[LINUX], pythons=["3.11"])
    with StandInIndex(wheels) as index:
        nodes = Nodes.played(tmp_path / "fleet", {"r1": A100}, libraries, index.environment())
        played = nodes.variables["r1"] or {}
        variables = {**nodes.workshop.environment, **played, "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
        words = [sys.executable, "-c", HOLD]
        with subprocess.Popen(
            words,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as held:
            address = next(
                line.split()[1] for line in held.stdout or () if line.startswith("address")
            )
            told = {**nodes.workshop.variables, **played, "RAY_ADDRESS": address}
            yield replace(nodes, workshop=replace(nodes.workshop, variables=told)), held
            if held.stdin:
                held.stdin.close()


@pytest.mark.heavy
def test_the_same_course_on_ray_and_a_raylet_that_dies_takes_nobody_with_it(
    cluster: tuple[Nodes, subprocess.Popen[str]],
) -> None:
    nodes, held = cluster
    assert nodes.fleet("survey", "--engine", "ray")["hosts"] == {"ok": "r[1-4]"}
    nodes.fleet("plan", "--python", "3.11")

    def kill() -> None:
        while not (nodes.run_dir / "install" / "r3.json").exists():
            time.sleep(0.02)
        print("r3", file=held.stdin, flush=True)

    killing = threading.Thread(target=kill)
    killing.start()
    report = nodes.fleet("install", exit_code=7)
    killing.join()
    assert report["hosts"] == {"lost": "r3", "ok": "r[1-2,4]"}
    report = nodes.fleet("verify", "--alone", exit_code=7)
    assert nodes.states("verify", report) == dict.fromkeys(("r1", "r2", "r4"), "ok")
