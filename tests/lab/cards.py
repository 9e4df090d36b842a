"""Machines with odd cards, each described once and played by libcuda, NVML, sysfs, /proc, /dev and nvidia-smi alike.

The command line runs on one in a mount namespace of its own, with the small torch, which opens its GPU through the
played libcuda.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.lab.driver import FakeDriver, environment, uuid_of
from tests.lab.recorded import bus, card, module
from tests.lab.smi_table import Shown, as_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COVERED = ("/sys/bus/pci/devices", "/sys/module", "/proc/driver")
COMMANDS = {
    "probe": "probe --json",
    "preflight": "doctor --venv {folder}/none --json",
    "plan": "plan torch --json",
    "verify": "verify --deep --python {python} --json",
    "doctor": "doctor --venv {venv} --json",
}
# What a machine shows in folders that others need too is put in anew.
SCRIPT = """set -e
for covered in {covered}; do mount --bind "$1$covered" "$covered"; done
nodes=$(ls "$1/dev")
mount -t tmpfs lab "$1/dev"
cp -a /dev/null /dev/zero /dev/urandom "$1/dev/"
for node in $nodes; do mknod -m 666 "$1/dev/$node" c 1 3; done
mount --bind "$1/dev" /dev
{commands}
"""


@dataclass(frozen=True)
class Place:
    """A machine: its driver and cards, further files, variables, and whether NVML and sysfs are as the driver says."""

    driver: FakeDriver
    files: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


def files_of(driver: FakeDriver) -> dict[str, str]:
    """Return what the kernel shows of the machine: the bus, the module, the device nodes."""
    files = module(driver.driver) | {f"/dev/{name}": "" for name in ("nvidiactl", "nvidia-uvm")}
    for index, gpu in enumerate(driver.gpus):
        files[f"/dev/nvidia{index}"] = ""
        # What NVML gives no address of is part of the processor.
        if not dict(gpu.more).get("nvml_pci"):
            files |= card(index + 1, gpu.pci)
    return files


def smi_of(driver: FakeDriver) -> str:
    """Return what nvidia-smi prints: the cards that NVML reaches, and a line for each other."""
    reached, refused = [], []
    for index, gpu in enumerate(driver.gpus):
        if gpu.nvml_error:
            words = {15: "GPU is lost", 16: "GPU requires reset"}.get(
                gpu.nvml_error, "Unknown Error"
            )
            refused.append(
                f"Unable to determine the device handle for gpu {bus(index + 1)}: {words}"
            )
        else:
            memory = f"{gpu.memory_mib} MiB" if gpu.memory_mib else "N/A"
            reached.append(
                Shown(gpu.name, f"0000{bus(index + 1)}", gpu.uuid or uuid_of(index), memory)
            )
    number = f"{driver.cuda // 1000}.{driver.cuda % 1000 // 10}"
    return "\n".join([*as_log(driver.driver, number, reached), *refused, ""])


def answers(place: Place, folder: Path, libraries: Path, venv: Path) -> dict[str, Any]:
    """Return the document of each command on a machine."""
    for covered in (*COVERED, "/dev"):
        (folder / covered.lstrip("/")).mkdir(parents=True)
    for path, text in {**files_of(place.driver), **place.files}.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.name in ("driver", "physfn"):
            target.symlink_to(text)
        else:
            target.write_text(text, encoding="utf-8")
    smi = folder / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    (folder / "smi.txt").write_text(smi_of(place.driver), encoding="utf-8")
    smi.write_text(f'#!/bin/sh\n[ "$1" = -q ] && exec cat {folder}/smi.txt\n', encoding="utf-8")
    smi.chmod(0o755)
    python = venv / "bin" / "python"
    lines = []
    for name, arguments in COMMANDS.items():
        command = arguments.format(folder=folder, python=python, venv=venv)
        lines.append(
            f'{sys.executable} -m gpuinstall {command} > "$1/{name}.json" 2> "$1/{name}.err" || true'
        )
    script = SCRIPT.format(covered=" ".join(COVERED), commands="\n".join(lines))
    played = environment(place.driver, libraries, folder)
    variables = {
        **os.environ,
        **played,
        **place.variables,
        "PATH": f"{smi.parent}:{os.environ['PATH']}",
    }
    words = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        str(folder),
    ]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    documents = {}
    for name in COMMANDS:
        text = (folder / f"{name}.json").read_text(encoding="utf-8")
        assert text, (folder / f"{name}.err").read_text(encoding="utf-8")
        documents[name] = json.loads(text)
    return documents


def told(documents: Mapping[str, Any]) -> dict[str, str]:
    """Return what each command came to, in a few words."""
    return {name: _TOLD[name](document) for name, document in documents.items()}


def _probe(document: Mapping[str, Any]) -> str:
    gpus = document["data"]["gpus"]
    return _with_problems(f"{len(gpus)} GPU{'s' * (len(gpus) != 1)}", document["data"]["problems"])


def _preflight(document: Mapping[str, Any]) -> str:
    preflight = document["data"]["preflight"]
    states: dict[str, list[str]] = {}
    for gpu in preflight["gpus"]:
        states.setdefault(gpu["status"], []).append(str(gpu["index"]))
    parts = [f"{status} {','.join(indices)}" for status, indices in states.items()]
    return _with_problems("; ".join(parts) or "not tried", preflight["problems"])


def _plan(document: Mapping[str, Any]) -> str:
    build = (document["data"] or {}).get("build")
    if build:
        served = ",".join(str(gpu["index"]) for gpu in document["data"]["gpus"])
        return f"{build['torch']}+{build['backend']} for {served}"
    return f"exit {document['exit_code']}: {document['errors'][0]['code']}"


def _verify(document: Mapping[str, Any]) -> str:
    states: dict[str, list[str]] = {}
    for device in (document["data"] or {}).get("devices", ()):
        states.setdefault(device["status"], []).append(str(device["index"]))
    parts = [f"{status} {','.join(indices)}" for status, indices in states.items()]
    return f"exit {document['exit_code']}: {'; '.join(parts)}"


def _doctor(document: Mapping[str, Any]) -> str:
    first = next((fix for error in document["errors"] for fix in error.get("fixes", ())), None)
    return f"exit {document['exit_code']}" + (f": `{first}`" if first else "")


def _with_problems(text: str, problems: Any) -> str:
    named = [
        problem["code"] if problem["blocking"] else f"{problem['code']} (note)"
        for problem in problems
    ]
    return "; ".join([text, *named])


_TOLD = {
    "probe": _probe,
    "preflight": _preflight,
    "plan": _plan,
    "verify": _verify,
    "doctor": _doctor,
}
