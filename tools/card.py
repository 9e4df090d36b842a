"""``make card``: what gpuinstall says and does on this machine's GPUs, as documents and one page in .card/evidence.

It asks no server, changes no setting of a card and nothing outside .card but its own caches. Each step is a command of
gpuinstall, or a small program in the Python that has torch; a step that fails is part of the evidence, and the next one
is still taken.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".card"
EVIDENCE = FOLDER / "evidence"
LIMIT_S = 150
"""The longest that a step may take: nine steps of this kind are the eight minutes that the whole is given, at worst."""
MOST_COPIED = 16 * 1024**3
"""The largest environment that is copied, in bytes: a CUDA build with its libraries is half of it."""

FACTS = """
import json, torch
cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
print(json.dumps({
    "torch": str(torch.__version__), "cuda": torch.version.cuda,
    "architectures": torch.cuda.get_arch_list() if cards else [],
    "gpus": [{"name": card.name, "compute_capability": f"{card.major}.{card.minor}",
              "memory_mib": card.total_memory // 1024**2, "uuid": f"GPU-{card.uuid}"} for card in cards],
}))
"""
FOREIGN_KERNEL = (
    "__global__ void fill(int *at) { *at = 7; }\n#include <cstdio>\nint main() { int *at; cudaMalloc(&at, 4);\n"
)
FOREIGN_KERNEL += (
    "fill<<<1, 1>>>(at); cudaError_t error = cudaDeviceSynchronize(); error = error ? error : cudaGetLastError();\n"
)
FOREIGN_KERNEL += 'fprintf(stderr, "CUDA error: %s\\n", cudaGetErrorString(error)); return error != 0; }\n'
STUB = "int cuInit(unsigned flags) { return 34; }\nint cuDriverGetVersion(int *version) { *version = 0; return 34; }\n"


@dataclass(frozen=True)
class Step:
    """What was run, what it printed, and how long it took; ``status`` is None where it ran out of time."""

    name: str
    command: tuple[str, ...]
    status: int | None
    output: str
    errors: str
    seconds: float
    expected: str = ""

    @property
    def document(self) -> dict[str, Any]:
        """The document that a command of ours printed; empty where it printed none."""
        try:
            read: dict[str, Any] = json.loads(self.output)
        except ValueError:
            return {}
        return read


@dataclass
class Card:
    """The run: the Python that has torch, and the steps taken so far."""

    python: Path
    steps: list[Step] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def run(self, name: str, *command: str | Path, more: Mapping[str, str] | None = None, expected: str = "") -> Step:
        """Run a program to its end, and keep what came of it."""
        words, start = tuple(map(str, command)), monotonic()
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1", **(more or {})}
        try:
            done = subprocess.run(
                words, env=environment, cwd=FOLDER, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
            step = Step(name, words, done.returncode, done.stdout, done.stderr, monotonic() - start, expected)
        except subprocess.TimeoutExpired:
            step = Step(name, words, None, "", f"no end after {LIMIT_S} s", monotonic() - start, expected)
        self.steps.append(step)
        sys.stdout.write(f"{name:24}{step.status!s:>5}{step.seconds:8.1f} s\n")
        return step

    def tool(self, name: str, *words: str | Path, more: Mapping[str, str] | None = None, expected: str = "") -> Step:
        """Run a command of gpuinstall for its document."""
        return self.run(name, sys.executable, "-m", "gpuinstall", *words, "--json", more=more, expected=expected)

    def program(self, name: str, code: str, more: Mapping[str, str] | None = None) -> Step:
        """Run a program in the Python that has torch."""
        return self.run(name, self.python, "-c", code, more=more)


def main() -> None:
    """Take every step; exit with 1 where no GPU was proven."""
    start = monotonic()
    shutil.rmtree(FOLDER / "work", ignore_errors=True)
    shutil.rmtree(EVIDENCE, ignore_errors=True)
    EVIDENCE.mkdir(parents=True)
    card = Card(Path(sys.argv[1]) if len(sys.argv) > 1 else python_with_torch())
    probe = card.tool("probe", "probe")
    card.tool("probe, recorded", "probe", "--record", EVIDENCE / "machine")
    card.tool("probe of the recording", "probe", "--machine", EVIDENCE / "machine")
    query = "--query-gpu=name,uuid,driver_version,compute_cap,memory.total"
    card.run("nvidia-smi", "nvidia-smi", query, "--format=csv,noheader") if shutil.which("nvidia-smi") else (
        card.missing.append("nvidia-smi is not on PATH")
    )
    facts = card.program("torch", FACTS)
    card.tool("doctor and preflight", "doctor", "--venv", FOLDER / "none")
    card.tool("plan", "plan", "torch")
    verified = card.tool("verify", "verify", "--python", card.python)
    card.tool("verify --deep", "verify", "--python", card.python, "--deep")
    bench = ("--bench", "--save", EVIDENCE / "bench.json")
    card.tool("verify --bench", "verify", "--python", card.python, *bench)
    provoke_messages(card)
    put_into_a_copy(card, verified)
    write_page(card, compared(probe, facts), monotonic() - start)
    proven = [step for step in card.steps if step.name == "verify" and step.document.get("exit_code") == 0]
    devices = [device for step in proven for device in step.document["data"]["devices"] if device["index"] is not None]
    sys.exit(0 if any(device["status"] == "passed" for device in devices) else 1)


def python_with_torch() -> Path:
    """The first Python on PATH that imports torch; exit where there is none."""
    for folder in os.get_exec_path():
        python = Path(folder) / "python3"
        if (
            python.is_file()
            and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0
        ):
            return python
    sys.exit("no python3 on PATH imports torch; name one: make card TORCH_PYTHON=/path/to/python")


def provoke_messages(card: Card) -> None:
    """Provoke what can be provoked safely on a card, and ask ``explain`` what it is."""
    work = FOLDER / "work"
    work.mkdir(parents=True, exist_ok=True)
    cuda = "import torch; torch.zeros(1).cuda()"
    steps = {
        "": card.program("out of memory", "import torch; torch.empty(1 << 50, device='cuda', dtype=torch.int8)"),
        "F15": card.program("a hidden GPU", cuda, {"CUDA_VISIBLE_DEVICES": "-1"}),
    }
    if compiler := shutil.which("cc"):
        (work / "stub.c").write_text(STUB, encoding="utf-8")
        built = card.run(
            "a stub of libcuda", compiler, "-shared", "-fPIC", work / "stub.c", "-o", work / "libcuda.so.1"
        )
        if built.status == 0:
            inherited = os.environ.get("LD_LIBRARY_PATH", "")
            steps["F01"] = card.program("a stub in front", cuda, {"LD_LIBRARY_PATH": f"{work}:{inherited}"})
    else:
        card.missing.append("no C compiler: no stub of libcuda was tried")
    if nvcc := shutil.which("nvcc") or next(Path("/usr/local").glob("cuda*/bin/nvcc"), None):
        (work / "foreign.cu").write_text(FOREIGN_KERNEL, encoding="utf-8")
        code = ["-gencode", f"arch=compute_{other_architecture(card)},code=sm_{other_architecture(card)}"]
        if card.run("a foreign kernel, built", nvcc, *code, work / "foreign.cu", "-o", work / "foreign").status == 0:
            steps["F37"] = card.run("a foreign kernel", work / "foreign")
    else:
        card.missing.append("nvcc is not here: no kernel of another architecture was tried")
    for failure, step in steps.items():
        text = work / f"{failure}.txt"
        text.write_text(step.errors or step.output, encoding="utf-8")
        card.tool(f"explain: {step.name}", "explain", text, expected=failure)


def other_architecture(card: Card) -> str:
    """An architecture whose machine code none of the GPUs here runs, as nvcc writes it."""
    gpus = next(step for step in card.steps if step.name == "probe").document.get("data", {}).get("gpus", [])
    majors = {(gpu["compute_capability"] or "0").partition(".")[0] for gpu in gpus}
    return next(code for code in ("80", "75", "90") if code[0] not in majors)


def put_into_a_copy(card: Card, verified: Step) -> None:
    """Put a package into a copy of the environment, then one that breaks torch, which has to be undone."""
    torch = (verified.document.get("data") or {}).get("environment", {}).get("torch")
    prefix = Path(card.run("prefix", card.python, "-c", "import sys; print(sys.prefix)").output.strip())
    size = int(subprocess.run(["du", "-sbL", prefix], capture_output=True, text=True, check=False).stdout.split()[0])
    if not (torch and (prefix / "pyvenv.cfg").is_file()):
        card.missing.append(f"{prefix} is no virtual environment with torch: nothing was put into a copy")
        return
    if size > min(MOST_COPIED, shutil.disk_usage(FOLDER).free // 2):
        card.missing.append(f"{prefix} has {size} bytes: too many to copy here")
        return
    copy, served = FOLDER / "work" / "copy", FOLDER / "work" / "index"
    if card.run("a copy", "cp", "-a", prefix, copy).status != 0:
        return
    version = card.run(
        "its Python", card.python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2])"
    ).output.strip()
    backend = torch.partition("+")[2] or "cpu"
    make_wheel(served / "whl" / backend, "torch", torch, f"{version}-{version}-manylinux_2_28_x86_64")
    make_wheel(served / "simple", "card-note", "1.0", modules={"card_note.py": ""})
    broken = {"card_note.py": "", "card_note.pth": "import sys; sys.modules['torch'] = None\n"}
    make_wheel(served / "simple", "card-note", "2.0", modules=broken)
    with StandInIndex(served) as index:
        into = ("install", "--into", "--python", copy / "bin" / "python", f"torch=={torch}")
        more = {**index.environment(), "XDG_CACHE_HOME": str(FOLDER / "work" / "cache")}
        card.tool("install --into", *into, "card-note==1.0", more=more)
        card.tool("--into, undone", *into, "card-note==2.0", more=more, expected="exit 5")
    after = card.run(
        "what is there", copy / "bin" / "python", "-c", "import torch, card_note; print(torch.__version__)"
    )
    if after.output.strip() != torch:
        card.missing.append(f"after the undoing torch was not {torch}: {after.errors[-200:]}")
    shutil.rmtree(copy)


def compared(probe: Step, facts: Step) -> list[str]:
    """Say where the probe and torch differ on a GPU: name, capability, UUID, or memory by more than a twentieth."""
    if not facts.document.get("gpus"):
        return ["torch listed no GPU to compare with the probe's."]
    gpus = {gpu["uuid"]: gpu for gpu in probe.document.get("data", {}).get("gpus", [])}
    differences = []
    for seen in facts.document["gpus"]:
        gpu = gpus.get(seen["uuid"])
        if gpu is None:
            differences.append(f"{seen['uuid']} is not among the probe's GPUs")
            continue
        same = all(gpu[key] == seen[key] for key in ("name", "compute_capability"))
        close = abs((gpu["memory_mib"] or 0) - seen["memory_mib"]) <= seen["memory_mib"] / 20
        differences += [] if same and close else [f"the probe says {gpu}, torch {seen}"]
    if not differences:
        return ["The probe and torch say the same of every GPU."]
    return ["The probe and torch differ:", "", *(f"- {text}" for text in differences)]


def write_page(card: Card, comparison: Sequence[str], seconds: float) -> None:
    """Write each step's output as a file, and the page that lists them."""
    lines = ["# A card", "", f"`make card`, {seconds:.0f} s. What each step printed lies beside this page.", ""]
    lines += ["| step | exit | seconds | came to |", "|---|---|---|---|"]
    for position, step in enumerate(card.steps):
        name = f"{position:02}-{''.join(letter if letter.isalnum() else '-' for letter in step.name)}"
        suffix = "json" if step.document else "txt"
        (EVIDENCE / f"{name}.{suffix}").write_text(step.output + step.errors * (not step.document), encoding="utf-8")
        lines.append(f"| [{step.name}]({name}.{suffix}) | {step.status} | {step.seconds:.1f} | {outcome(step)} |")
    lines += ["", *comparison, "", *(f"- {text}" for text in card.missing)]
    (EVIDENCE / "card.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def outcome(step: Step) -> str:
    """What a step came to, in a few words."""
    document, data = step.document, step.document.get("data") or {}
    if causes := data.get("causes"):
        return f"{causes[0]['id']} at {causes[0]['confidence']:.2f}, expected {step.expected}"
    if "causes" in data:
        return f"nothing recognised, expected {step.expected}"
    if devices := data.get("devices"):
        checks = [check["status"] for device in devices for check in device["checks"]]
        return f"{data['status']}: {checks.count('passed')} passed, {checks.count('failed')} failed"
    if document:
        text = next((error["message"] for error in document["errors"]), document["status"])
    else:
        text = (step.errors or step.output).strip().rpartition("\n")[2]
    return f"{text[:120].replace('|', '/')}{f', expected {step.expected}' if step.expected else ''}"


if __name__ == "__main__":
    main()
