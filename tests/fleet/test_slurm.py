"""A fleet on a real Slurm cluster of eight nodes on this machine: three generations of GPUs, and a broken driver."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall.fleet.run_folder import RunFolder
from tests.fleet.test_together import DIGEST, NAMES, mark, proven_one_by_one
from tests.lab import faulty_rank
from tests.lab.environments import cpu_torch, packages
from tests.lab.nodes import A100, BROKEN, H100, V100
from tests.lab.releases import LINUX, catalog_index
from tests.lab.slurm_cluster import BASE, NEEDS_CLUSTER, SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.driver import FakeDriver

DRIVERS: dict[str, FakeDriver | None] = {
    "n1": H100,
    "n2": H100,
    "n3": A100,
    "n4": V100,
    "n5": H100,
    "n6": A100,
    "n7": A100,
    "n8": BROKEN,
}
OWN = "/var/tmp"  # noqa: S108  each node's own, in its own layer
pytestmark = NEEDS_CLUSTER


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Eight nodes; the disk of n7 is all but full."""
    wheels = tmp_path_factory.mktemp("index")
    catalog_index(wheels, ["2.7.1", "2.14.1"], platforms=[LINUX], pythons=["3.11"])
    with SlurmCluster(BASE, DRIVERS, wheels, {"n7": "64k"}) as running:
        yield running


@pytest.fixture(scope="module")
def torch(cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a real torch that the nodes share, whose ranks read ``faults.json`` beside it."""
    real = cpu_torch(tmp_path_factory)
    folder = shutil.copytree(real, cluster.share / "torch" / DIGEST[:16] / ".venv", symlinks=True)
    faulty_rank.put_into(packages(folder), "/mnt/faults.json")
    (cluster.share / "torch").chmod(0o700)
    mark(folder)
    return folder


def up(nodes: str, run: str, *more: str) -> tuple[str, ...]:
    where = ("--engine", "slurm", "--nodes", nodes) if "--resume" not in more else ()
    return ("fleet", "up", *where, "--run-dir", f"/mnt/{run}", "--alone", "--python", "3.11", *more)


def states(report: dict[str, Any], step: str) -> dict[str, str]:
    return {node: steps[step]["state"] for node, steps in report["nodes"].items() if step in steps}


def test_eight_nodes_of_three_classes_one_with_a_broken_driver_one_with_a_full_disk(
    cluster: SlurmCluster,
) -> None:
    report = cluster.document(*up("n[1-8]", "all"), exit_code=7)

    assert report["hosts"] == {"failed": "n[7-8]", "ok": "n[1-6]"}
    assert report["nodes"]["n8"]["plan"]["code"] == "driver-library-mismatch"
    assert report["nodes"]["n7"]["install"]["code"] in {"no-space", "not-writable"}
    assert [(lock["backend"], lock["nodes"]) for lock in report["locks"]] == [("cu118", "n[1-7]")]


@pytest.mark.parametrize("step", ["install", "verify"])
def test_a_node_that_dies_in_the_middle_is_lost_and_finished_when_it_is_back(
    cluster: SlurmCluster, step: str
) -> None:
    run = f"dying-in-{step}"
    words = up("n[1-4]", run, "--root", f"{OWN}/{run}")
    started = cluster.gpuinstall(*words, "--json")
    cluster.wait_for(f"{run}/{step}/n2.json")
    cluster.kill("n2")
    ended = cluster.ended(started)
    report = cluster.document("fleet", "report", "--run-dir", f"/mnt/{run}", exit_code=7)

    assert ended.status == 7
    assert report["hosts"] == {"lost": "n2", "ok": "n[1,3-4]"}
    assert report["nodes"]["n2"][step]["state"] == "lost"

    cluster.revive("n2")
    report = cluster.document(*up("", run, "--resume", "--root", f"{OWN}/{run}"))
    assert report["hosts"] == {"ok": "n[1-4]"}


@pytest.mark.parametrize(
    ("faults", "culprits", "good"),
    [
        ({}, [], "n[1-4]"),
        ({"n3": "hang"}, [["n3"]], "n[1-2,4]"),
        ({"n2": "die"}, [["n2"]], "n[1,3-4]"),
    ],
    ids=["sound", "one hangs", "one dies"],
)
def test_a_real_torch_sums_over_the_nodes_and_who_spoils_it_is_named_in_half_a_minute(
    cluster: SlurmCluster, torch: Path, faults: dict[str, str], culprits: list[list[str]], good: str
) -> None:
    (cluster.share / "faults.json").write_text(json.dumps(faults), encoding="utf-8")
    run = f"together-{len(list(cluster.share.glob('together-*')))}"
    (cluster.share / run).mkdir()
    proven_one_by_one(
        RunFolder(cluster.share / run),
        "slurm",
        Path("/mnt") / torch.relative_to(cluster.share),
        NAMES,
    )
    start = time.monotonic()
    verifying = cluster.gpuinstall(
        "fleet", "verify", "--run-dir", f"/mnt/{run}", "--root", "/mnt/torch", "--json"
    )
    for node in faults:
        cluster.hear(verifying, f"Together    {node}: rank")
    named = time.monotonic() - start
    ended = cluster.ended(verifying)
    report = json.loads(ended.out)["data"]
    (group,) = report["together"]

    assert ended.status == (7 if faults else 0)

    assert ([culprit["nodes"] for culprit in group["culprits"]], group["good"]) == (culprits, good)
    assert (group["backend"], report["hosts"]["ok"]) == ("gloo", good)
    assert named < 30


def test_two_runs_at_once_on_the_same_nodes_both_end_well(cluster: SlurmCluster) -> None:
    root = ("--root", f"{OWN}/both")
    both = [
        cluster.gpuinstall(*up("n[1-4]", f"run-{name}", *root), "--json") for name in ("a", "b")
    ]

    assert [cluster.ended(one).status for one in both] == [0, 0]
    third = cluster.run(*up("n[1-4]", "run-a", *root))
    assert (third.status, "already contains a run" in third.err) == (2, True)


def test_a_node_that_slurm_calls_drained_never_started_and_keeps_nobody_waiting(
    cluster: SlurmCluster,
) -> None:
    cluster.ended(cluster.start("scontrol update NodeName=n5 State=DRAIN Reason=test", {}))
    report = cluster.document(
        "fleet",
        "survey",
        "--engine",
        "slurm",
        "--nodes",
        "n[4-5]",
        "--run-dir",
        "/mnt/down",
        exit_code=7,
    )
    cluster.ended(cluster.start("scontrol update NodeName=n5 State=RESUME", {}))

    assert states(report, "survey") == {"n4": "ok", "n5": "never started"}
    assert "drained" in report["nodes"]["n5"]["survey"]["message"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), "no-allocation"), (("--nodes", "n[7-9]"), "no-such-node")],
)
def test_what_slurm_cannot_do_is_one_line(
    cluster: SlurmCluster, arguments: tuple[str, ...], code: str
) -> None:
    done = cluster.run(
        "fleet", "survey", "--engine", "slurm", *arguments, "--run-dir", "/mnt/none", "--json"
    )

    assert (done.status, f'"code": "{code}"' in done.out) == (2, True)


def test_a_folder_that_the_nodes_do_not_share_is_found_before_anything_is_installed(
    cluster: SlurmCluster,
) -> None:
    done = cluster.run(
        "fleet", "up", "--engine", "slurm", "--nodes", "n[1-2]", "--run-dir", "/root/own", "--json"
    )

    assert (done.status, '"code": "run-folder-not-shared"' in done.out) == (2, True), (
        done.out + done.err
    )


def test_a_run_inside_an_allocation_takes_its_nodes(cluster: SlurmCluster) -> None:
    words = cluster.inside("-N2", "--nodelist=n[3-4]")
    line = f"{words} fleet survey --engine slurm --run-dir /mnt/inside --json"
    done = cluster.ended(cluster.start(line, cluster.variables))

    assert done.status == 0, done.err
    assert '"ok": "n[3-4]"' in done.out
