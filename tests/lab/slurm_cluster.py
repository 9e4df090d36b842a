"""A real Slurm cluster on this machine, from the outside: commands on its controller, nodes that die and come back."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall.process import Finished
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.driver import build, describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Self

    from tests.lab.driver import FakeDriver

SCRIPTS = Path(__file__).parent / "slurm"
SERVE = (
    "import json,time; from pathlib import Path; from tests.lab.index import StandInIndex; "
    "served = StandInIndex(Path('/mnt/index')); p = Path('/mnt/index.part'); "
    "p.write_text(json.dumps(served.environment())); p.rename('/mnt/index.json'); time.sleep(1e6)"
)

BASE = Path(os.environ.get("GPUINSTALL_SLURM_LAB", "/tmp/gpuinstall-slurm-lab"))  # noqa: S108  root's own
NEEDS_CLUSTER = [
    pytest.mark.heavy,
    pytest.mark.root,
    pytest.mark.skipif(
        not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("unshare") is None,
        reason="needs root and unshare: every node of the cluster is a set of namespaces",
    ),
    pytest.mark.skipif(
        not (BASE / "base.tar").exists(),
        reason=f"needs Slurm's packages: tests/lab/slurm/base.sh {BASE} (GPUINSTALL_SLURM_LAB names another folder)",
    ),
]


@dataclass
class SlurmCluster:
    """Below ``folder``: ``share`` is what every node has at /mnt. ``drivers`` are played by node, None: no GPU."""

    folder: Path
    drivers: Mapping[str, FakeDriver | None]
    index: Path | None = None
    scratch: Mapping[str, str] = field(default_factory=dict)
    configuration: str = ""
    """The site's own lines of slurm.conf."""

    @property
    def share(self) -> Path:
        """What the nodes share."""
        return self.folder / "share"

    def __enter__(self) -> Self:
        self._only = (self.folder / "lock").open("w")
        flock(
            self._only, LOCK_EX
        )  # one cluster at a time: tests that run side by side would end each other's
        shutil.rmtree(self.share, ignore_errors=True)
        for name in ("gpus", "scratch", "do", "project"):
            (self.share / name).mkdir(parents=True)
        (self.share / "slurm.conf").write_text(self.configuration, encoding="utf-8")
        build(self.share / "libraries")
        for node, driver in self.drivers.items():
            if driver is not None:
                (self.share / "gpus" / f"{node}.txt").write_text(describe(driver), encoding="utf-8")
        for node, size in self.scratch.items():
            (self.share / "scratch" / node).write_text(size, encoding="utf-8")
        if self.index:
            shutil.copytree(self.index, self.share / "index")
        words = [
            "bash",
            str(SCRIPTS / "cluster.sh"),
            str(self.folder),
            str(len(self.drivers)),
            str(SCRIPTS / "agent.sh"),
        ]
        self._running = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_for(self.share / "ready", 120)
        self._count = 0
        if self.index:
            self.start(f"cd {ROOT} && {shlex.quote(GPUINSTALL[0])} -c {shlex.quote(SERVE)}", {})
            self._wait_for(self.share / "index.json", 60)
        return self

    def __exit__(self, *_: object) -> None:
        (self.share / "stop").touch()
        self._running.kill()
        self._running.wait()
        self._only.close()

    def run(self, command: str, *arguments: str, seconds: float = 600) -> Finished:
        """Run ``gpuinstall COMMAND …`` on the controller, and wait."""
        return self.ended(self.gpuinstall(command, *arguments), seconds)

    def document(self, command: str, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run it with ``--json``; return its data."""
        done = self.run(command, *arguments, "--json")
        assert done.status == exit_code, done.out + done.err
        data: dict[str, Any] = json.loads(done.out)["data"]
        return data

    def gpuinstall(self, command: str, *arguments: str) -> Path:
        """Start ``gpuinstall COMMAND …`` on the controller."""
        return self.start(shlex.join([*GPUINSTALL, command, *arguments]), self.variables)

    def inside(self, *options: str) -> str:
        """The words that run gpuinstall in an allocation of its own."""
        return shlex.join(["salloc", "--quiet", "--exclusive", *options, *GPUINSTALL])

    @property
    def variables(self) -> dict[str, str]:
        """The environment of what runs in the cluster."""
        told = json.loads((self.share / "index.json").read_text("utf-8")) if self.index else {}
        libraries = os.pathsep.join(f"/mnt/libraries/{room}" for room in ("nvml", "cuda"))
        own = {
            "LAB_GPUS": "/etc/lab/gpus.txt",
            "LD_LIBRARY_PATH": libraries,
            "HOME": "/root",
            "COLUMNS": "120",
        }
        return {
            **told,
            **own,
            "XDG_CACHE_HOME": "/root/.lab-cache",
            "UV_CACHE_DIR": "/root/.lab-cache/uv",
        }

    def start(self, line: str, variables: Mapping[str, str]) -> Path:
        """Start a line of shell on the controller, in the folder ``project`` that all share."""
        self._count += 1
        script = self.share / "do" / f"{self._count:03d}.sh"
        said = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        part = script.with_suffix(".part")
        part.write_text(f"cd /mnt/project\n{said}{line}\n", encoding="utf-8")
        part.rename(script)
        return script

    def ended(self, script: Path, seconds: float = 600) -> Finished:
        """Wait for what was started."""
        self._wait_for(script.with_name(f"{script.name}.status"), seconds)
        out, err, status = (
            script.with_name(f"{script.name}.{kind}").read_text("utf-8")
            for kind in ("out", "err", "status")
        )
        return Finished((script.name,), int(status), out, err)

    def hear(self, script: Path, text: str, seconds: float = 300) -> None:
        """Wait until what was started has said ``text``."""
        said = script.with_name(f"{script.name}.err")
        deadline = time.monotonic() + seconds
        while not (said.exists() and text in said.read_text("utf-8")):
            assert time.monotonic() < deadline, f"{text} was never said"
            time.sleep(0.1)

    def kill(self, node: str) -> None:
        """End every process of a node at once."""
        (self.share / f"kill-{node}").touch()

    def revive(self, node: str, seconds: float = 60) -> None:
        """Let a node come up again, and wait until Slurm has seen it."""
        (self.share / f"kill-{node}").unlink(missing_ok=True)
        self.ended(
            self.start(
                f"until sinfo -hN -n {node} -o %T | grep -qE '^idle$'; do sleep 0.3; done", {}
            ),
            seconds,
        )

    def wait_for(self, pattern: str, seconds: float = 300) -> None:
        """Wait until a file appears in what the nodes share."""
        until = time.monotonic() + seconds
        while not list(self.share.glob(pattern)):
            assert time.monotonic() < until, f"no {pattern} within {seconds} s"
            time.sleep(0.02)

    def _wait_for(self, path: Path, seconds: float) -> None:
        self.wait_for(str(path.relative_to(self.share)), seconds)
