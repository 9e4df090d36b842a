"""A fleet of four nodes, each a process with a driver of its own: three generations, and one whose driver is broken."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall import process
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.index import StandInIndex
from tests.lab.nodes import A100, BROKEN, CLASSES, H100, V100, Nodes
from tests.lab.projects import make_sdist
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

KILLER = ROOT / "tests" / "lab" / "killer"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInIndex]:
    wheels = catalog_index(
        tmp_path_factory.mktemp("index"), ["2.7.1", "2.14.1"], platforms=[LINUX], pythons=["3.11"]
    )
    with StandInIndex(wheels) as served:
        yield served


@pytest.fixture(scope="module")
def up(
    index: StandInIndex, libraries: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Nodes, dict[str, Any]]:
    """A fleet after ``fleet up``, and its report."""
    nodes = Nodes.played(tmp_path_factory.mktemp("fleet"), CLASSES, libraries, index.environment())
    return nodes, nodes.fleet("up", "--engine", "local", "--alone", "--python", "3.11", exit_code=7)


@pytest.fixture
def nodes(index: StandInIndex, libraries: Path, tmp_path: Path) -> Nodes:
    """Three nodes that nobody has looked at."""
    return Nodes.played(
        tmp_path / "fleet", {"n1": H100, "n2": A100, "n3": H100}, libraries, index.environment()
    )


def test_one_command_proves_every_node_that_can_be_and_says_what_is_wrong_with_the_rest(
    up: tuple[Nodes, dict[str, Any]],
) -> None:
    nodes, report = up

    assert report["hosts"] == {"failed": "n4", "ok": "n[1-3]"}
    assert nodes.states("verify", report) == dict.fromkeys(["n1", "n2", "n3"], "ok")
    assert report["nodes"]["n4"]["plan"]["code"] == "driver-library-mismatch"
    assert [(lock["backend"], lock["nodes"]) for lock in report["locks"]] == [("cu118", "n[1-3]")]


def test_the_lock_is_the_same_on_every_node(up: tuple[Nodes, dict[str, Any]]) -> None:
    nodes, report = up
    records = [
        json.loads(path.read_text()) for path in sorted((nodes.run_dir / "install").glob("*.json"))
    ]

    assert {record["data"]["sha256"] for record in records} == {report["locks"][0]["sha256"]}
    assert len({record["data"]["environment"] for record in records}) == 3


def test_what_is_done_is_not_done_again(up: tuple[Nodes, dict[str, Any]]) -> None:
    nodes, _ = up
    before = {path: path.read_text() for path in nodes.run_dir.glob("*/*.json")}
    report = nodes.fleet("up", "--resume", "--alone", exit_code=7)

    assert report["hosts"] == {"failed": "n4", "ok": "n[1-3]"}
    assert {path: path.read_text() for path in before} == before


@pytest.mark.heavy
def test_the_driver_is_mended_and_the_run_goes_on_with_that_node(
    index: StandInIndex, libraries: Path, tmp_path: Path
) -> None:
    nodes = Nodes.played(tmp_path / "a", {"n1": V100, "n4": BROKEN}, libraries, index.environment())
    nodes.fleet("up", "--engine", "local", "--alone", exit_code=7)
    mended = Nodes.played(tmp_path / "b", {"n4": V100}, libraries, index.environment())
    nodes.change("n4", **(mended.variables["n4"] or {}))
    (nodes.run_dir / "survey" / "n4.json").unlink()

    assert nodes.fleet("up", "--resume", "--alone")["hosts"] == {"ok": "n[1,4]"}


@pytest.mark.heavy
def test_one_node_of_each_kind_compiles_for_the_others(libraries: Path, tmp_path: Path) -> None:
    wheels = catalog_index(tmp_path / "index", ["2.14.1"], platforms=[LINUX], pythons=["3.11"])
    for tool in ("setuptools", "wheel", "packaging", "psutil", "ninja", "einops"):
        make_wheel(wheels / "simple", tool, "80.0")
    make_sdist(wheels / "simple", "flash-attn", "2.8.3", ["torch", "einops"], compiled=True)
    nvcc, compiled = tmp_path / "bin" / "nvcc", tmp_path / "compiled"
    nvcc.parent.mkdir()
    nvcc.write_text(
        "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.1'\n", encoding="utf-8"
    )
    nvcc.chmod(0o755)
    variables = {
        "PATH": f"{nvcc.parent}:{os.environ['PATH']}",
        "LAB_COMPILED": str(compiled),
        "MAX_JOBS": "1",
    }
    variables["LAB_COMPILES_FOR"] = "5"  # so that nodes which compile at once all do
    with StandInIndex(wheels) as served:
        drivers = {"n1": H100, "n2": H100, "n3": A100, "n4": H100}
        nodes = Nodes.played(
            tmp_path / "fleet", drivers, libraries, {**served.environment(), **variables}
        )
        for node in drivers:
            nodes.change(
                node,
                UV_CACHE_DIR=str(tmp_path / "uv" / node),
                XDG_CACHE_HOME=str(tmp_path / "xdg" / node),
            )
        words = (
            "torch",
            "flash-attn",
            "--build-extensions",
            "--python",
            "3.11",
            "--backend",
            "cu126",
            "--alone",
        )
        report = nodes.fleet("up", "--engine", "local", "--mode", "node", *words)

    assert report["hosts"] == {"ok": "n[1-4]"}
    lines = sorted(compiled.read_text(encoding="utf-8").splitlines())
    assert lines == ["torch 2.14.1+cu126 for 8.0", "torch 2.14.1+cu126 for 9.0"]


def test_a_second_run_in_the_same_folder_is_refused(up: tuple[Nodes, dict[str, Any]]) -> None:
    nodes, _ = up
    error = nodes.document("survey", "--engine", "local", exit_code=2)["errors"][0]

    assert (error["code"], "--resume" in error["hint"]) == ("run-begun", True)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("install", "{scratch}/*/*/.venv.gpuinstall/staging-*"),
        ("verify", "{run}/verify/n2.json"),
    ],
)
def test_a_node_that_is_killed_in_the_middle_is_lost_and_finished_later(
    nodes: Nodes, step: str, when: str
) -> None:
    pattern = when.format(scratch=nodes.folder / "n2" / "scratch", run=nodes.run_dir)
    nodes.change("n2", PYTHONPATH=str(KILLER), LAB_KILL_WHEN=pattern)
    report = nodes.fleet("up", "--engine", "local", "--alone", exit_code=7)

    assert report["nodes"]["n2"][step]["state"] == "lost"
    assert report["hosts"] == {"lost": "n2", "ok": "n[1,3]"}

    nodes.change("n2", LAB_KILL_WHEN="")
    assert nodes.fleet("up", "--resume", "--alone")["hosts"] == {"ok": "n[1-3]"}


def test_a_node_that_is_down_never_started(nodes: Nodes) -> None:
    nodes.take_down("n3")
    report = nodes.fleet("survey", "--engine", "local", exit_code=7)

    assert nodes.states("survey", report) == {"n1": "ok", "n2": "ok", "n3": "never started"}


@pytest.mark.heavy
def test_one_node_builds_what_all_share(nodes: Nodes) -> None:
    report = nodes.fleet("up", "--engine", "local", "--alone", "--mode", "shared")
    records = {
        path.stem: json.loads(path.read_text())["data"]
        for path in sorted((nodes.run_dir / "install").glob("*.json"))
    }

    assert report["hosts"] == {"ok": "n[1-3]"}
    assert [records[node]["change"] for node in ("n1", "n2", "n3")].count("built") == len(
        report["locks"]
    )
    assert {record["environment"] for record in records.values()} == {records["n1"]["environment"]}


@pytest.mark.heavy
def test_a_program_is_in_the_lock_of_all_nodes(nodes: Nodes) -> None:
    nodes.fleet("survey", "--engine", "local")
    notes = nodes.run_dir / "locks" / "notes" / "mine.txt"
    notes.parent.mkdir(parents=True)
    notes.touch()
    (lock,) = nodes.fleet("plan", "--python", "3.11", "cowsay")["locks"]
    assert notes.exists()
    text = (nodes.run_dir / "locks" / lock["name"] / lock["lock"]).read_text(encoding="utf-8")

    assert (lock["nodes"], lock["torch"]) == ("n[1-3]", "2.14.1+cu126")
    assert 'name = "cowsay"' in text


def test_hosts_are_printed_for_srun(up: tuple[Nodes, dict[str, Any]]) -> None:
    nodes, _ = up

    assert nodes.run("report", "--hosts", "ok").out == "n[1-3]\n"
    assert nodes.run("report", "--hosts", "lost").out == "\n"


def test_bad_nodes_are_reserved_first_and_drained_only_when_meant(
    up: tuple[Nodes, dict[str, Any]],
) -> None:
    nodes, _ = up
    reserved = nodes.run("report", "--scontrol").out
    drained = nodes.run("report", "--scontrol", "--yes").out

    assert reserved.startswith("scontrol create reservation ")
    assert "Nodes=n4" in reserved
    assert "DRAIN" not in reserved
    assert drained.startswith(reserved)
    assert "scontrol update NodeName=n4 State=DRAIN 'Reason=" in drained


def test_metrics_are_openmetrics(up: tuple[Nodes, dict[str, Any]], tmp_path: Path) -> None:
    nodes, _ = up
    nodes.run("report", "--openmetrics", str(tmp_path / "fleet.prom"))
    lines = (tmp_path / "fleet.prom").read_text(encoding="utf-8").splitlines()

    assert 'gpuinstall_nodes{state="ok"} 3' in lines
    assert 'gpuinstall_node_ok{node="n4",step="plan",code="driver-library-mismatch"} 0' in lines
    assert lines[-1] == "# EOF"


def test_a_prolog_answers_from_the_last_proof(up: tuple[Nodes, dict[str, Any]]) -> None:
    nodes, _ = up

    def answer(node: str, played: str | None = None) -> str:
        environment = {
            **nodes.workshop.environment,
            **(nodes.variables[played or node] or {}),
            "GPUINSTALL_NODE": node,
        }
        (proofs,) = (nodes.folder / "n1" / "scratch").glob("*")
        command = [
            "node",
            "verify",
            "--prolog",
            "--may-drain",
            *(["--root", str(proofs)] if played else []),
        ]
        done = process.run([*GPUINSTALL, *command], env=environment, cwd=nodes.folder)
        assert done.status == 0
        return done.out

    assert "passed 0.0 days ago" in answer("n1")
    assert "no proof yet" in answer("n4")
    assert "have changed since" in answer("n1", played="n2")


def test_a_folder_that_a_node_does_not_see_is_found_before_anything_is_done(nodes: Nodes) -> None:
    command = [
        "node",
        "survey",
        "--run-dir",
        str(nodes.folder / "elsewhere"),
        "--run",
        "0123",
        "--node",
        "n1",
    ]
    done = process.run([*GPUINSTALL, *command], env=nodes.workshop.environment, cwd=nodes.folder)
    record = json.loads(done.out)

    assert (done.status, record["code"]) == (2, "run-folder-not-shared")
    assert not (nodes.folder / "elsewhere").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("survey", "--engine", "slurm"), "no-srun"),
        (("survey", "--engine", "local", "--nodes", "n9"), "no-such-node"),
        (("survey", "--engine", "local", "--nodes", "n["), "hostlist-malformed"),
        (("survey", "--engine", "nomad"), "usage"),
        (("report",), "run-missing"),
        (("install",), "run-missing"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    nodes: Nodes, arguments: tuple[str, ...], code: str
) -> None:
    without_slurm = {**nodes.workshop.variables, "PATH": str(Path(sys.executable).parent)}
    apart = replace(nodes, workshop=replace(nodes.workshop, variables=without_slurm))
    error = apart.document(*arguments, exit_code=2)["errors"][0]

    assert error["code"] == code
    assert "\n" not in error["message"]


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ("raise ModuleNotFoundError", "no-ray"),
        (
            "is_initialized = bool\ndef init(**_): raise ConnectionError('none found')",
            "no-ray-cluster",
        ),
    ],
)
def test_without_ray_and_without_its_cluster_each_way_out_is_named(
    nodes: Nodes, found: str, code: str
) -> None:
    (nodes.folder / "path").mkdir()
    (nodes.folder / "path" / "ray.py").write_text(found, encoding="utf-8")
    variables = {**nodes.workshop.variables, "PYTHONPATH": str(nodes.folder / "path")}
    there = replace(nodes, workshop=replace(nodes.workshop, variables=variables))
    error = there.document("survey", "--engine", "ray", exit_code=2)["errors"][0]

    assert error["code"] == code
    assert {"no-ray": "pip install", "no-ray-cluster": "ray start --head"}[code] in error["hint"]


@pytest.mark.heavy
def test_a_step_that_comes_too_early_names_the_one_before_it(nodes: Nodes) -> None:
    nodes.fleet("survey", "--engine", "local")
    error = nodes.document("install", exit_code=2)["errors"][0]

    assert (error["code"], error["hint"]) == (
        "step-missing",
        f"gpuinstall fleet plan --run-dir {nodes.run_dir}",
    )


@pytest.mark.heavy
def test_nodes_with_another_release_of_the_tool_are_found_before_anything_is_installed(
    nodes: Nodes,
) -> None:
    nodes.fleet("survey", "--engine", "local")
    record = json.loads((nodes.run_dir / "survey" / "n2.json").read_text())
    (nodes.run_dir / "survey" / "n2.json").write_text(json.dumps({**record, "tool": "0.0.1"}))
    error = nodes.document("up", "--resume", exit_code=2)["errors"][0]

    assert error["code"] == "mixed-tools"
    assert "0.0.1 on n2" in error["message"]


@pytest.mark.heavy
def test_without_a_driver_nodes_write_their_records_all_the_same(nodes: Nodes) -> None:
    """As Ansible or a Job of Kubernetes start them."""
    for name, variables in nodes.variables.items():
        environment = {**nodes.workshop.environment, **(variables or {})}
        command = ["node", "survey", "--run-dir", str(nodes.run_dir), "--node", name]
        assert process.run([*GPUINSTALL, *command], env=environment, cwd=nodes.folder).ok

    assert nodes.fleet("report")["hosts"] == {"ok": "n[1-3]"}
