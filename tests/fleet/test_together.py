"""Nodes proven together by a real torch: an all-reduce over four processes, one of which stands still or dies."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall.environments.environment import Marker
from gpuinstall.fleet.documents import LockGroup, NodeRecord, Sha256
from gpuinstall.fleet.hostlist import NodeName, expand
from gpuinstall.fleet.run_folder import RunFolder
from tests.lab import faulty_rank
from tests.lab.environments import copied, cpu_torch, packages
from tests.lab.nodes import Nodes
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.heavy, pytest.mark.network]
NAMES = expand("n[1-4]")
DIGEST = Sha256("0" * 64)


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a real torch, whose ranks read ``faults.json`` beside it."""
    folder = copied(
        cpu_torch(tmp_path_factory), tmp_path_factory.mktemp("together") / DIGEST[:16] / ".venv"
    )
    faulty_rank.put_into(packages(folder), folder.parent / "faults.json")
    mark(folder)
    return folder


def mark(venv: Path) -> None:
    """Let it be the environment of the plan's lock."""
    Marker("an-id", "pylock.cpu.toml", DIGEST, "3.11", "2.13.0+cpu", "cpu", "a-machine", {}).write(
        venv
    )


@pytest.fixture
def nodes(venv: Path, tmp_path: Path) -> Nodes:
    """Four nodes that are installed and verified one by one."""
    nodes = Nodes(tmp_path, Workshop(tmp_path, tmp_path / "caches"), {name: {} for name in NAMES})
    nodes.write()
    nodes.run_dir.mkdir()
    proven_one_by_one(RunFolder(nodes.run_dir), "local", venv, NAMES)
    return nodes


def proven_one_by_one(
    folder: RunFolder, engine: str, venv: Path, names: tuple[NodeName, ...]
) -> None:
    """Write what a run holds once every node has been verified alone."""
    run = folder.begin(engine, names, {})
    group = LockGroup(
        "torch-2.13.0-cpu", "pylock.cpu.toml", "2.13.0+cpu", "cpu", "3.11", names, DIGEST
    )
    folder.write_document("plan", {"locks": [group.to_dict()]})
    for name in names:
        for step, data in told(venv).items():
            folder.keep(NodeRecord(run.id, name, step, status="ok", data=data))


def told(venv: Path) -> dict[str, dict[str, Any]]:
    machine = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64", "gpus": []}
    done = {"sha256": DIGEST, "environment": str(venv), "verdict": "passed"}
    return {"survey": {"machine": machine, "gigabits": 8}, "install": done, "verify": done}


def spoil(venv: Path, **faults: str) -> None:
    (venv.parent / "faults.json").write_text(json.dumps(faults), encoding="utf-8")


def test_good_nodes_pass_and_their_bandwidth_stands_beside_their_links(
    nodes: Nodes, venv: Path
) -> None:
    spoil(venv)
    (group,) = nodes.fleet("verify", "--root", str(venv.parent.parent))["together"]

    assert (group["good"], group["backend"], group["culprits"]) == ("n[1-4]", "gloo", [])
    assert group["gb_s"] > 0
    assert group["link_gb_s"] == 1.0


@pytest.mark.parametrize(("fault", "said"), [("hang", "hung"), ("die", "died: ended by SIGKILL")])
def test_the_rank_that_spoils_it_is_named_and_the_others_are_proven(
    nodes: Nodes, venv: Path, fault: str, said: str
) -> None:
    spoil(venv, n3=fault)
    start = time.monotonic()
    with nodes.start("verify", "--root", str(venv.parent.parent)) as verifying:
        named = next(
            time.monotonic() - start
            for line in verifying.stderr or ()
            if f"Together    n3: rank 2 {said}" in line
        )
        verifying.communicate()
    report = nodes.fleet("report", exit_code=7)
    (group,) = report["together"]

    assert named < 30
    assert verifying.returncode == 7
    assert [culprit["nodes"] for culprit in group["culprits"]] == [["n3"]]
    assert said in group["culprits"][0]["why"]
    assert group["good"] == "n[1-2,4]"
    assert report["hosts"] == {"failed": "n3", "ok": "n[1-2,4]"}
