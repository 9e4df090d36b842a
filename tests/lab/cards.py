"""Machines with odd cards, each described once and played by libcuda, NVML, sysfs, /proc and /dev alike.

The command line runs on one in a mount namespace of its own, with the small torch, which opens its GPU through the
played libcuda.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.lab.driver import FakeDriver, environment
from tests.lab.recorded import card, module
from tests.lab.workshop import Workshop

COVERED = ("/sys/bus/pci/devices", "/sys/module", "/proc/driver")
COMMANDS = {
    "probe": "probe --json",
    "preflight": "doctor --venv {folder}/none --json",
    "plan": "plan torch --json",
    "verify": "verify --deep --python {python} --json",
    "doctor": "doctor --venv {venv} --json",
    "run --any": "run --any --venv {project}/.venv python -c '{started}'",
}
STARTED = 'import json, os, torch; print(json.dumps({"exit_code": 0, "torch": torch.__version__}))'
"""The program that ``run --any`` starts. If it starts none, there is no output."""
# What a machine shows in folders that others need too is put in anew.
MOUNTS = f"""set -e
for covered in {" ".join(COVERED)}; do mount --bind "$1$covered" "$covered"; done
nodes=$(ls "$1/dev")
mount -t tmpfs lab "$1/dev"
cp -a /dev/null /dev/zero /dev/urandom "$1/dev/"
for node in $nodes; do mknod -m 666 "$1/dev/$node" c 1 3; done
mount --bind "$1/dev" /dev
"""


@dataclass(frozen=True)
class Place:
    """A machine."""

    driver: FakeDriver
    """Its driver and cards. NVML and sysfs say the same, unless ``files`` has something else."""
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    torch: str = "2.14.1+cu130"
    """The torch of the environment that is verified and examined."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By check, what a library says of a product that it does not have for the card."""


def answers(
    place: Place, folder: Path, libraries: Path, venv: Path, workshop: Workshop
) -> dict[str, Any]:
    """Return the document of each command on a machine.

    Args:
        place: The machine.
        folder: Where its files lie.
        libraries: The compiled stand-ins.
        venv: The environment that is verified and examined.
        workshop: Has the locks and the environments among which ``run --any`` chooses.
    """
    (folder / "verdict.json").write_text(json.dumps({"*": {"refused": place.refused}}))
    variables = {
        "LAB_VERDICT": str(folder / "verdict.json"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": workshop.environment["XDG_STATE_HOME"],
    }
    place = replace(place, variables={**variables, **place.variables})
    lines = []
    for name, arguments in COMMANDS.items():
        command = arguments.format(
            folder=folder,
            python=venv / "bin" / "python",
            venv=venv,
            project=workshop.folder,
            started=STARTED,
        )
        streams = f'> "$1/{name}.json" 2> "$1/{name}.err"'
        # Without a document the status is all that there is.
        status = (
            f'[ -s "$1/{name}.json" ] || echo "{{\\"exit_code\\": $status}}" > "$1/{name}.json"'
        )
        lines.append(f"status=0; {sys.executable} -m gpuinstall {command} {streams} || status=$?")
        lines.append(status)
    done = run_on(place, folder, libraries, "\n".join(lines))
    assert done.returncode == 0, done.stderr
    documents = {}
    for name in COMMANDS:
        documents[name] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return documents


def run_on(
    place: Place, folder: Path, libraries: Path, commands: str
) -> subprocess.CompletedProcess[str]:
    """Run a shell on a machine; its ``$1`` is the folder that holds the machine's files."""
    variables = {**environment(place.driver, libraries, folder), **place.variables}
    return run_over(folder, {**_files_of(place.driver), **place.files}, commands, variables)


def run_over(
    folder: Path, files: Mapping[str, str], commands: str, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a shell that sees these files in place of this machine's own; its ``$1`` is the folder that holds them."""
    for covered in (*COVERED, "/dev"):
        (folder / covered.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.name in ("driver", "physfn"):
            target.symlink_to(text)
        else:
            target.write_text(text, encoding="utf-8")
    namespace = ["unshare", "--mount", "--propagation", "private"]
    return subprocess.run(
        [*namespace, "sh", "-c", MOUNTS + commands, "sh", str(folder)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def _files_of(driver: FakeDriver) -> dict[str, str]:
    """Return what the kernel shows of the machine: the bus, the module, the device nodes."""
    files = {"/dev/nvidiactl": "", "/dev/nvidia-uvm": "", **module(driver.driver)}
    for index, gpu in enumerate(driver.gpus):
        files[f"/dev/nvidia{index}"] = ""
        # What NVML gives no address of is part of the processor.
        if not dict(gpu.more).get("nvml_pci"):
            files |= card(index + 1, gpu.pci)
    return files


def told(documents: Mapping[str, Any]) -> dict[str, str]:
    """Return what each command came to, in a few words."""
    return {
        "probe": _probe(documents["probe"]),
        "preflight": _preflight(documents["preflight"]),
        "plan": _plan(documents["plan"]),
        "verify": _verify(documents["verify"]),
        "doctor": _doctor(documents["doctor"]),
        "run --any": _run(documents["run --any"]),
    }


def _probe(document: Mapping[str, Any]) -> str:
    count = len(document["data"]["gpus"])
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    return _with_problems(gpus, document["data"]["problems"])


def _preflight(document: Mapping[str, Any]) -> str:
    preflight = document["data"]["preflight"]
    states = _by_status(preflight["gpus"])
    return _with_problems(states or "not tried", preflight["problems"])


def _plan(document: Mapping[str, Any]) -> str:
    data = document["data"] or {}
    build = data.get("build")
    if not build:
        return f"exit {document['exit_code']}: {document['errors'][0]['code']}"
    indices = ",".join(str(gpu["index"]) for gpu in data["gpus"])
    return f"{build['torch']}+{build['backend']} for {indices}"


def _verify(document: Mapping[str, Any]) -> str:
    data = document["data"] or {}
    return f"exit {document['exit_code']}: {_by_status(data.get('devices', ()))}"


def _doctor(document: Mapping[str, Any]) -> str:
    status = f"exit {document['exit_code']}"
    for error in document["errors"]:
        for fix in error.get("fixes", ()):
            return f"{status}: `{fix}`"
    return status


def _run(document: Mapping[str, Any]) -> str:
    return document.get("torch") or f"exit {document['exit_code']}"


def _by_status(devices: Iterable[Mapping[str, Any]]) -> str:
    """Return the positions of the devices behind what they came to, as ``proven 0,2; failed 1``."""
    positions: dict[str, list[str]] = {}
    for device in devices:
        positions.setdefault(device["status"], []).append(str(device["index"]))
    parts = [f"{status} {','.join(indices)}" for status, indices in positions.items()]
    return "; ".join(parts)


def _with_problems(text: str, problems: Iterable[Mapping[str, Any]]) -> str:
    parts = [text]
    for problem in problems:
        note = "" if problem["blocking"] else " (note)"
        parts.append(f"{problem['code']}{note}")
    return "; ".join(parts)
