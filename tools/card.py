"""``make card``: what gpuinstall says and does on this machine's GPUs, as documents and one page in .card/evidence.

``python3 tools/card.py [PYTHON]`` does the same, and needs nothing but a Python with pip; the other one is that which has
torch. A GPU is often to be had for ten minutes, and the machine goes when they are over: each step's output, and the
page, are written as soon as the step has ended, the steps come in the order of their worth and share one budget, and one
that fails or is ended is part of the evidence. No setting of a card is changed, and nothing outside .card but caches.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".card"
BUDGET_S = 540
"""What all steps together may take."""
LIMIT_S = 150
"""The longest that a step may take, but for the last, which has what is left."""
LEAST_S = 5
"""With less left, no step is begun; as long has a step that is to end to end what it has started."""
PYTHONS = ("python3", "/opt/conda/bin/python", "/opt/venv/bin/python", "/venv/bin/python")
"""Where images have a Python with torch."""

# PYTHONPATH would show the torch that is tested our own packages.
START = """
import runpy, sys
sys.path[:0] = sys.argv.pop(1).split(":")
runpy.run_module("gpuinstall", run_name="__main__", alter_sys=True)
"""
FACTS = """
import json, torch
cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
print(json.dumps({"torch": torch.__version__, "gpus": [
    {"name": card.name, "compute_capability": f"{card.major}.{card.minor}", "memory_mib": card.total_memory >> 20}
    for card in cards]}))
"""
# What is put into a copy of the environment: a note, then one that breaks torch, which has to be undone.
COPY = """
import shutil, sys
from importlib.metadata import version
shutil.copytree(sys.prefix, sys.argv[1], symlinks=True)
print(version("torch"), "cp%d%d" % sys.version_info[:2])
"""
THERE = """
import torch
from importlib.metadata import version
print("torch", torch.__version__, "note", version("card-note"))
"""
BROKEN = "import sys; sys.modules['torch'] = None\n"
PROVOKED = {
    "out of memory": ("import torch; torch.empty(1 << 50, device='cuda', dtype=torch.int8)", {}),
    "a hidden GPU": ("import torch; torch.zeros(1).cuda()", {"CUDA_VISIBLE_DEVICES": "-1"}),
}
"""Programs that fail, each with its variables."""


class Step(NamedTuple):
    """What was run, what it printed, and how long it took; the status is None where it ran out of time."""

    name: str
    file: str
    status: int | None
    output: str
    errors: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The document that it printed; empty where it printed none."""
        with suppress(ValueError):
            document = json.loads(self.output)
            return document if isinstance(document, dict) else {}
        return {}

    @property
    def outcome(self) -> str:
        """What it came to, in a few words."""
        document = self.document
        data = document.get("data") or {}
        if data.get("causes"):
            return f"{data['causes'][0]['id']} at {data['causes'][0]['confidence']:.2f}"
        if data.get("build"):
            return f"torch {data['build']['torch']}+{data['build']['backend']}"
        proofs = data.get("devices") or (data.get("preflight") or {}).get("gpus")
        if proofs:
            return ", ".join(f"GPU {proof['index']} {proof['status']}" for proof in proofs)
        if "gpus" in document:
            return f"torch {document['torch']}, GPUs: {len(document['gpus'])}"
        for error in document.get("errors", ()):
            return str(error["message"])
        text = document.get("status") or (self.errors or self.output).strip().rpartition("\n")[2]
        return text[-120:].replace("|", "/")


class Card:
    """The run: the Python that has torch, and the steps taken so far."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.start = monotonic()
        self.steps: list[Step] = []
        self.running: subprocess.Popen[str] | None = None

    def run(
        self,
        name: str,
        *command: str | Path,
        variables: Mapping[str, str] | None = None,
        limit: float | None = None,
    ) -> Step:
        """Run a program to its end, or end it, and write what came of it; what has no time left is not begun."""
        start = monotonic()
        limit = min(limit or LIMIT_S, BUDGET_S - (start - self.start))
        status: int | None = None
        output, errors = "", "no time was left"
        if limit >= LEAST_S:
            try:
                status, output, errors = self._ended(command, variables or {}, limit)
            except OSError as error:
                status, errors = 126, str(error)
        plain = "".join(letter if letter.isalnum() else "-" for letter in name)
        file = f"{len(self.steps):02}-{plain}.txt"
        step = Step(name, file, status, output, errors, monotonic() - start)
        self.steps.append(step)
        write(file, output if step.document else output + errors)
        self.write_page()
        say(f"{name:24}{status!s:>5}{step.seconds:8.1f} s")
        return step

    def _ended(
        self, command: tuple[str | Path, ...], variables: Mapping[str, str], limit: float
    ) -> tuple[int | None, str, str]:
        self.running = subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, "NO_COLOR": "1", **variables},
            cwd=FOLDER,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        try:
            output, errors = self.running.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end()
            return None, "", f"no end after {limit:.0f} s"
        return self.running.returncode, output, errors

    def end(self) -> None:
        """End what is running as a person would, so that it ends what it has started; then by force."""
        if self.running and self.running.poll() is None:
            self.running.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.running.communicate(timeout=LEAST_S)
            self.running.kill()

    def tool(self, name: str, *words: str | Path, **how: Any) -> Step:
        """Run a command of gpuinstall for its document."""
        path = f"{ROOT / 'src'}:{FOLDER / 'tool'}"
        return self.run(name, sys.executable, "-c", START, path, *words, "--json", **how)

    def write_page(self) -> None:
        """Write the page that lists the steps so far."""
        lines = [
            "# What gpuinstall says on this machine",
            "",
            "| step | exit | seconds | came to |",
        ]
        lines.append("|---|---|---|---|")
        for step in self.steps:
            status = "ended" if step.status is None else step.status
            link = f"[{step.name}]({step.file})"
            lines.append(f"| {link} | {status} | {step.seconds:.1f} | {step.outcome} |")
        write("card.md", "\n".join(lines) + "\n")


def write(name: str, text: str) -> None:
    """Write a file of the evidence in one step; on a disk that is full, its beginning is printed instead."""
    new = FOLDER / "evidence" / f".{name}"
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(FOLDER / "evidence" / name)
    except OSError as error:
        new.unlink(missing_ok=True)
        say(f"{name}: {error.strerror}\n{text[:2000]}")


def say(text: str) -> None:
    """Print a line at once, for whoever watches; a terminal that has gone is no reason to end."""
    with suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def main() -> None:
    """Take every step; exit with 1 where no GPU was proven."""
    card = Card(Path(sys.argv[1]) if sys.argv[1:] else python_with_torch())

    def interrupted(*_: object) -> None:
        card.end()
        sys.exit(143)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    for folder in ("evidence", "work"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
        (FOLDER / folder).mkdir(parents=True)
    if not (find_spec("uv") and find_spec("rich") and find_spec("requests")):
        provide_tool(card)
    proven = take_steps(card)
    shutil.rmtree(FOLDER / "work", ignore_errors=True)
    sys.exit(0 if proven else 1)


def python_with_torch() -> Path:
    """Return the first Python that imports torch, else this one."""
    for name in (sys.executable, *PYTHONS):
        python = shutil.which(name)
        if python and subprocess.run([python, "-c", "import torch"], check=False).returncode == 0:
            return Path(python)
    say("no Python here imports torch; name one: make card TORCH_PYTHON=/path/to/python")
    return Path(sys.executable)


def provide_tool(card: Card) -> None:
    """Install what gpuinstall requires: from .card/wheels if they are there, each file by its hash."""
    lock = ROOT / "lockfiles" / "tool.txt"
    words: list[str | Path] = ["install", "-q", "--no-deps", "--require-hashes", "-r", lock]
    words += ["--target", FOLDER / "tool"]
    if (FOLDER / "wheels").is_dir():
        words += ["--no-index", "--find-links", FOLDER / "wheels"]
    card.run("pip install", sys.executable, "-m", "pip", *words)


def take_steps(card: Card) -> bool:
    """Take the steps in the order of their worth; return whether a GPU was proven."""
    python = card.python
    card.tool("probe", "probe")
    card.tool("preflight", "doctor", "--venv", FOLDER / "none")
    card.run("torch", python, "-c", FACTS)
    verified = card.tool("verify", "verify", "--python", python, "--require-gpu")
    card.tool("verify --deep", "verify", "--python", python, "--deep")
    card.tool("doctor", "doctor", "--venv", python.parent.parent)
    card.tool("plan", "plan", "torch")
    card.run("nvidia-smi", "nvidia-smi", "-q", "-x")
    for name, (code, variables) in PROVOKED.items():
        provoked = card.run(name, python, "-c", code, variables=variables)
        text = FOLDER / "evidence" / provoked.file
        card.tool(f"explain: {name}", "explain", text)
    put_into_a_copy(card)
    card.tool("verify --bench", "verify", "--python", python, "--bench", limit=BUDGET_S)
    return verified.status == 0


def put_into_a_copy(card: Card) -> None:
    """Put a package into a copy of the environment, then one that breaks torch, which has to be undone."""
    sys.path[:0] = [str(ROOT), str(FOLDER / "tool")]
    from tests.lab.index import StandInIndex
    from tests.lab.wheels import make_wheel

    copy = FOLDER / "work" / "copy"
    copied = card.run("a copy", card.python, "-c", COPY, copy)
    if copied.status != 0:
        return
    version, tag = copied.output.split()
    pages = FOLDER / "work" / "index" / "simple"
    # What has the version of the installed one is not installed again: its file here is empty.
    make_wheel(pages, "torch", version, f"{tag}-{tag}-manylinux_2_28_x86_64")
    make_wheel(pages, "card-note", "1.0", modules={"card_note.py": ""})
    broken = {"card_note.py": "", "card_note.pth": BROKEN}
    make_wheel(pages, "card-note", "2.0", modules=broken)
    with StandInIndex(pages.parent) as index:
        into = ("install", "--into", "--python", copy / "bin" / "python")
        variables = {**index.environment(), "XDG_CACHE_HOME": str(FOLDER / "work" / "cache")}
        card.tool("install --into", *into, "card-note==1.0", variables=variables)
        card.tool("--into, undone", *into, "card-note==2.0", variables=variables)
    card.run("what is there", copy / "bin" / "python", "-c", THERE)


if __name__ == "__main__":
    main()
