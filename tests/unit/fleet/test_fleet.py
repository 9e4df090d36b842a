"""A step that is carried to nodes, by an engine of this test alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.fleet.documents import LockGroup, NodeRecord, Sha256
from gpuinstall.fleet.fleet import Fleet
from gpuinstall.fleet.hostlist import NodeName
from gpuinstall.fleet.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.fleet.reconcile import NodeState


@dataclass(frozen=True)
class FullDisk:
    """An engine whose nodes can build nothing."""

    folder: RunFolder

    def nodes(self, wanted: Sequence[str] | None) -> Mapping[NodeName, str]:
        return dict.fromkeys(map(NodeName, wanted or ()), "")

    def run(
        self,
        command: Sequence[str],
        nodes: Sequence[NodeName],
        seconds: float,  # noqa: ARG002
        *,
        together: bool = False,  # noqa: ARG002
    ) -> str:
        code = "no-space" if "--build" in command else "not-built"
        for node in nodes:
            run = self.folder.read().id
            self.folder.keep(NodeRecord(run, node, "install", status="failed", code=code))
        return ""


class Silence:
    """A watcher that shows nothing."""

    def show(self, step: str, states: Mapping[NodeName, NodeState]) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None: ...


def test_a_shared_build_that_failed_keeps_its_cause(tmp_path: Path) -> None:
    node = NodeName("n1")
    folder = RunFolder(tmp_path)
    run = folder.begin("local", (node,), {node: ""})
    group = LockGroup(
        name="torch-2.9.0-cpu",
        lock="pylock.cpu.toml",
        torch="2.9.0+cpu",
        backend="cpu",
        python="3.12",
        nodes=(node,),
        sha256=Sha256("0" * 64),
    )
    folder.write_document("plan", {"locks": [group.to_dict()], "uncovered": []})
    fleet = Fleet(folder, run, Silence())
    fleet.__dict__["engine"] = FullDisk(folder)
    fleet.install("shared")
    record = folder.record("install", node)
    assert record is not None
    assert record.code == "no-space"
