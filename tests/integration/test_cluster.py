"""Tests of the commands in docs/cluster.md with Slurm and Ray."""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec

import pytest

from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.driver import A100, H100, FakeDriver, environment
from tests.lab.index import SimulatedIndex
from tests.lab.processes import succeed
from tests.lab.releases import LINUX, catalog_index
from tests.lab.slurm_cluster import needs_slurm, run_on_slurm
from tests.lab.workshop import Workshop

HEALTHY = FakeDriver((H100, H100))
NODES = {
    "n1": HEALTHY,
    "n2": FakeDriver((A100, A100), driver="535.183.01", cuda=12020),
    "n3": replace(HEALTHY, cu_init=803),
    "n4": None,
}
"""The nodes of the Slurm cluster, the last of which never responds."""


def block(section, language):
    """Return the first code block in a section of docs/cluster.md."""
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def check_report(screen, failed_command):
    """Check that ``report`` prints the state of each node."""
    assert [
        line for line in screen.splitlines() if line.startswith(("1 node", "error"))
    ] == [
        "1 node      2 × NVIDIA H100 80GB HBM3 (sm_90, 80 GB) · driver 580.95.05 · pylock.cu126.toml · passed: n1",
        "1 node      2 × NVIDIA A100-SXM4-80GB (sm_80, 80 GB) · driver 535.183.01 · pylock.cu126.toml · passed: n2",
        "1 node      2 × NVIDIA H100 80GB HBM3 (sm_90, 80 GB) · driver 580.95.05: n3",
        f"error: n3: {failed_command}: the NVIDIA kernel module and the driver's libraries differ",
        "error: n4: no record",
    ]
    assert "do    sudo reboot" in screen


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    minor = "{}.{}".format(*sys.version_info)
    folder = tmp_path_factory.mktemp("index")
    return catalog_index(
        folder, ["2.7.1", "2.14.1"], platforms=[LINUX], pythons=[minor]
    )


@needs_slurm
def test_documented_slurm_commands_work(wheels):
    job = f"salloc --quiet --nodes=3 sh -c {shlex.quote(block('Slurm', 'sh'))}\n"
    done = run_on_slurm(NODES, wheels, job)

    assert done.status == 7, done.out + done.err
    check_report(done.out, "probe")


HOLD = """
import json, sys
from ray.cluster_utils import Cluster

cluster = Cluster()
nodes = {}
for name, lab in json.loads(sys.argv[1]).items():
    own = {"LAB_GPUS": lab}
    nodes[name] = cluster.add_node(node_name=name, num_cpus=1, num_gpus=2, env_vars=own)
cluster.wait_for_nodes()
cluster.remove_node(nodes["n4"], allow_graceful=False)
print("address", cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
"""Script that starts one raylet per node and kills the raylet of n4."""


@pytest.fixture
def ray_nodes(wheels, libraries, tmp_path):
    """Create the shared folder of a running cluster, with a lock."""
    played = {
        name: environment(driver or HEALTHY, libraries, tmp_path)
        for name, driver in NODES.items()
    }
    command = tmp_path / "bin" / "gpuinstall"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(GPUINSTALL)} "$@"\n', "utf-8")
    command.chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    with SimulatedIndex(wheels) as index:
        shared = {
            **index.environment(),
            "LD_LIBRARY_PATH": played["n1"]["LD_LIBRARY_PATH"],
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "COLUMNS": "120",
        }
        workshop = Workshop(folder, tmp_path / "caches", shared)
        workshop.document("lock", "torch", "--target", "cu126")
        files = {name: variables["LAB_GPUS"] for name, variables in played.items()}
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, json.dumps(files)],
            # Paths of Ray's sockets in this folder may have at most 107 bytes.
            env=workshop.environment | {"TMPDIR": tempfile.gettempdir()},
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as cluster:
            assert cluster.stdin
            assert cluster.stdout
            lines = (line.split() for line in cluster.stdout)
            address = next(words[1] for words in lines if words[:1] == ["address"])
            yield replace(workshop, variables={**shared, "RAY_ADDRESS": address})
            cluster.stdin.close()


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: lockfiles/heavy.txt")
def test_documented_ray_code_works(ray_nodes):
    code = block("Ray", "python")
    succeed(
        [sys.executable, "-c", code], env=ray_nodes.environment, cwd=ray_nodes.folder
    )
    report = ray_nodes.run("report", "records", "--nodes", "n1,n2,n3,n4")

    assert report.status == 7, report.out + report.err
    check_report(report.out, "sync")
