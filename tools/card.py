"""``make card``: what gpuinstall says and does on this machine's GPUs, as documents and one page in .card/evidence.

``python3 tools/card.py [PYTHON]`` does the same, and needs nothing but a Python; the other one is that which has torch.

A GPU is often to be had for ten minutes, and the machine goes when they are over. So each step's output, and the page,
are written as soon as the step has ended; the steps come in the order of their worth and share one budget; a step that
fails, or is ended with all that it started, is part of the evidence, and the next one is taken all the same. No server
is asked, but an index where gpuinstall's own wheels are not in .card/wheels; no setting of a card is changed, and
nothing outside .card but caches.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".card"
EVIDENCE = FOLDER / "evidence"
BUDGET_S = 540
"""What all steps together may take."""
LIMIT_S = 150
"""The longest that a step may take, but for the last, which has what is left."""
LEAST_S = 5
"""With less left, no step is begun."""
GRACE_S = 5
"""How long a step that is to end may take to end what it has started."""
MOST_COPIED = 16 * 1024**3
"""The largest environment that is copied, in bytes: a CUDA build with its libraries is half of it."""
PYTHONS = (
    "/opt/conda/bin/python",
    "/opt/venv/bin/python",
    "/venv/bin/python",
    "/workspace/venv/bin/python",
)
"""Where images have a Python with torch that is not on PATH."""

FACTS = """
import json, torch
cards = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
print(json.dumps({
    "torch": str(torch.__version__), "cuda": torch.version.cuda,
    "architectures": torch.cuda.get_arch_list() if cards else [],
    "gpus": [{"name": card.name, "compute_capability": f"{card.major}.{card.minor}",
              "memory_mib": card.total_memory // 1024**2,
              "uuid": f"GPU-{card.uuid}" if hasattr(card, "uuid") else None} for card in cards],
}))
"""
FOREIGN_KERNEL = r"""
__global__ void fill(int *at) { *at = 7; }
#include <cstdio>
int main() {
    int *at;
    cudaMalloc(&at, 4);
    fill<<<1, 1>>>(at);
    cudaError_t error = cudaDeviceSynchronize();
    error = error ? error : cudaGetLastError();
    fprintf(stderr, "CUDA error: %s\n", cudaGetErrorString(error));
    return error != 0;
}
"""
STUB = "int cuInit(unsigned flags) { return 34; }\nint cuDriverGetVersion(int *version) { *version = 0; return 34; }\n"
# PYTHONPATH would show the torch that is tested our own packages.
START = f"""
import runpy, sys
sys.path[:0] = {[str(ROOT / "src"), str(FOLDER / "tool")]!r}
runpy.run_module("gpuinstall", run_name="__main__", alter_sys=True)
"""
VERSIONS = """
import json, sys
from importlib.metadata import version
tag = "cp%d%d" % sys.version_info[:2]
print(json.dumps({"prefix": sys.prefix, "tag": tag, "torch": version("torch")}))
"""
THERE = """
import torch
from importlib.metadata import PackageNotFoundError, version
try:
    note = version("card-note")
except PackageNotFoundError:
    note = "not there"
print(f"torch {torch.__version__}, card-note {note}")
"""
COPY = "import shutil; shutil.copytree({prefix!r}, {copy!r}, symlinks=True)"


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
            read = json.loads(self.output)
        except ValueError:
            return {}
        return read if isinstance(read, dict) else {}

    @property
    def data(self) -> dict[str, Any]:
        """What the document is about; empty where a command was refused."""
        data: dict[str, Any] = self.document.get("data") or {}
        return data

    @property
    def file(self) -> str:
        """The name of the file with its output, without the step's number."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.name)
        return f"{plain}.{'json' if self.document else 'txt'}"


@dataclass
class Card:
    """The run: the Python that has torch (None: there is none), and the steps taken so far."""

    python: Path | None
    started: float = field(default_factory=monotonic)
    steps: list[Step] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What could not be done or written, and why."""

    @property
    def left(self) -> float:
        """The seconds that are left of the budget."""
        return BUDGET_S - (monotonic() - self.started)

    def run(
        self,
        name: str,
        *command: str | Path,
        more: Mapping[str, str] | None = None,
        expected: str = "",
        limit: float = LIMIT_S,
    ) -> Step:
        """Run a program to its end, and write what came of it; what has no time left is not begun."""
        words = tuple(map(str, command))
        start = monotonic()
        limit = min(limit, self.left)
        if limit < LEAST_S:
            self.miss(f"{name}: no time was left")
            return Step(name, words, None, "", "no time was left", 0.0, expected)
        environment = {**os.environ, "NO_COLOR": "1", **(more or {})}
        status: int | None = 126
        output = ""
        try:
            status, output, errors = ended(words, environment, limit)
        except OSError as error:
            errors = str(error)
        step = Step(name, words, status, output, errors, monotonic() - start, expected)
        self.steps.append(step)
        text = step.output
        if not step.document:
            text += step.errors
        self.write(f"{len(self.steps) - 1:02}-{step.file}", text)
        write_page(self)
        say(f"{name:24}{step.status!s:>5}{step.seconds:8.1f} s")
        return step

    def tool(self, name: str, *words: str | Path, limit: float = LIMIT_S, **how: Any) -> Step:
        """Run a command of gpuinstall for its document."""
        return self.run(name, sys.executable, "-c", START, *words, "--json", limit=limit, **how)

    def program(self, name: str, code: str, more: Mapping[str, str] | None = None) -> Step:
        """Run a program in the Python that has torch."""
        return self.run(name, self.python or sys.executable, "-c", code, more=more)

    def first(self, name: str) -> Step | None:
        """The step of this name."""
        return next((step for step in self.steps if step.name == name), None)

    def miss(self, text: str) -> None:
        """Note what could not be done."""
        self.missing.append(text)
        write_page(self)

    def write(self, name: str, text: str) -> None:
        """Write a file of the evidence; a disk that is full is noted."""
        new = EVIDENCE / f".{name}"
        try:
            new.write_text(text, encoding="utf-8")
            new.replace(EVIDENCE / name)
        except OSError as error:
            with suppress(OSError):
                new.unlink()
                if (EVIDENCE / name).exists():
                    # Its own room is left for it, on a disk that is full.
                    (EVIDENCE / name).write_text(text, encoding="utf-8")
            self.missing.append(f"{name} could not be written: {error.strerror}")
            say(f"{name}: {error.strerror}\n{text[:2000]}")


def main() -> None:
    """Take every step; exit with 1 where no GPU was proven."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), interrupted)
    shutil.rmtree(FOLDER / "work", ignore_errors=True)
    shutil.rmtree(EVIDENCE, ignore_errors=True)
    EVIDENCE.mkdir(parents=True)
    card = Card(Path(sys.argv[1]) if sys.argv[1:] else None)
    write_page(card)
    with removed(FOLDER / "work"):
        provide_tool(card)
        card.python = card.python or python_with_torch(card)
        take_steps(card)
    verified = card.first("verify")
    devices = verified.data.get("devices", ()) if verified else ()
    proven = any(device["status"] == "passed" and device["name"] != "CPU" for device in devices)
    sys.exit(0 if proven else 1)


def interrupted(*_: object) -> None:
    """End with all that was started; what was written stays."""
    end_children()
    sys.exit(143)


def take_steps(card: Card) -> None:
    """Take the steps in the order of their worth."""
    card.tool("probe", "probe")
    card.tool("preflight", "doctor", "--venv", FOLDER / "none", expected="exit 5, no environment")
    if card.python:
        card.program("torch", FACTS)
        verified = card.tool("verify", "verify", "--python", card.python)
        card.tool("verify --deep", "verify", "--python", card.python, "--deep")
        card.tool("doctor", "doctor", "--venv", card.python.parent.parent)
        put_into_a_copy(card, verified)
    card.tool("plan", "plan", "torch")
    query = "--query-gpu=name,uuid,driver_version,compute_cap,memory.total"
    card.run("nvidia-smi", "nvidia-smi", query, "--format=csv,noheader")
    card.run("nvidia-smi -q", "nvidia-smi", "-q", "-x")
    if card.python:
        provoke_messages(card)
        card.tool("verify --bench", "verify", "--python", card.python, "--bench", limit=BUDGET_S)


def provide_tool(card: Card) -> None:
    """Have what gpuinstall requires: installed already, else unpacked from .card/wheels, else by pip."""
    if find_spec("uv") and find_spec("rich") and find_spec("requests"):
        return
    tool = FOLDER / "tool"
    lock = ROOT / "lockfiles" / "tool.txt"
    wheels = sorted(FOLDER.glob("wheels/*.whl"))
    if not wheels:
        words = ("-q", "--no-deps", "--require-hashes", "--target", tool, "-r", lock)
        card.run("pip install", sys.executable, "-m", "pip", "install", *words)
        return
    allowed = set(re.findall(r"sha256:([0-9a-f]{64})", lock.read_text(encoding="utf-8")))
    for wheel in wheels:
        if sha256(wheel.read_bytes()).hexdigest() not in allowed:
            card.miss(f"{wheel.name} is none of {lock.name}'s files")
            continue
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tool)
    for script in tool.glob("*.data/scripts/*"):
        (tool / "bin").mkdir(exist_ok=True)
        shutil.copy2(script, tool / "bin")
        (tool / "bin" / script.name).chmod(0o755)


def python_with_torch(card: Card) -> Path | None:
    """Find the first Python that imports torch: this one, those on PATH, those of images."""
    pythons = [sys.executable]
    for folder in os.get_exec_path():
        pythons += [f"{folder}/python3", f"{folder}/python"]
    pythons += PYTHONS
    for python in dict.fromkeys(map(Path, pythons)):
        with suppress(OSError):
            if not python.is_file():
                continue
            status, _, _ = ended((str(python), "-c", "import torch"), os.environ, 60)
            if status == 0:
                return python
    card.miss("no Python here imports torch; name one: make card TORCH_PYTHON=/path/to/python")
    return None


def ended(
    words: Sequence[str], environment: Mapping[str, str], seconds: float
) -> tuple[int | None, str, str]:
    """Run a program to its end, or end it and all that it has started; return its status and both outputs."""
    program = subprocess.Popen(
        words,
        env=environment,
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, errors = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        end_children()
        return None, "", f"no end after {seconds:.0f} s"
    return program.returncode, output, errors


def end_children() -> None:
    """End all that this process has started, which may be in sessions of their own: first as a person would."""
    started = descendants(os.getpid())
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in started:
            with suppress(OSError):
                os.kill(process, number)
        deadline = monotonic() + GRACE_S
        while any(map(is_running, started)) and monotonic() < deadline:
            sleep(0.05)


def is_running(process: int) -> bool:
    """Whether a process has not ended, collected by its parent or not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    # The name in parentheses may hold blanks.
    state = stat.rpartition(")")[2].split()[0]
    return state not in "ZX"


def descendants(process: int) -> set[int]:
    """Return the processes that a process has started, and those that these have."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parent = stat.read_text().rpartition(")")[2].split()[1]
            parents[int(stat.parent.name)] = int(parent)
    generation = {process}
    started: set[int] = set()
    while generation:
        generation = {child for child, parent in parents.items() if parent in generation}
        started |= generation
    return started


@contextmanager
def removed(folder: Path) -> Iterator[None]:
    """Remove a folder after the block, however it ends."""
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def say(text: str) -> None:
    """Print a line at once, for whoever watches; a terminal that has gone is no reason to end."""
    with suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def provoke_messages(card: Card) -> None:
    """Provoke what can be provoked safely on a card, and ask ``explain`` what it is."""
    work = FOLDER / "work"
    try:
        work.mkdir(parents=True, exist_ok=True)
        (work / "stub.c").write_text(STUB, encoding="utf-8")
        (work / "foreign.cu").write_text(FOREIGN_KERNEL, encoding="utf-8")
    except OSError as error:
        card.miss(f"no error was provoked: {error.strerror}")
        return
    cuda = "import torch; torch.zeros(1).cuda()"
    steps = {
        "none": card.program(
            "out of memory", "import torch; torch.empty(1 << 50, device='cuda', dtype=torch.int8)"
        ),
        "F15": card.program("a hidden GPU", cuda, {"CUDA_VISIBLE_DEVICES": "-1"}),
    }
    compiler = shutil.which("cc")
    if compiler:
        words = (compiler, "-shared", "-fPIC", work / "stub.c", "-o", work / "libcuda.so.1")
        built = card.run("a stub of libcuda", *words)
        if built.status == 0:
            inherited = os.environ.get("LD_LIBRARY_PATH", "")
            steps["F01"] = card.program(
                "a stub in front", cuda, {"LD_LIBRARY_PATH": f"{work}:{inherited}"}
            )
    else:
        card.miss("no C compiler: no stub of libcuda was tried")
    nvcc = shutil.which("nvcc") or next(Path("/usr/local").glob("cuda*/bin/nvcc"), None)
    if nvcc:
        kernel = work / "foreign"
        other = other_architecture(card)
        code = ("-gencode", f"arch=compute_{other},code=sm_{other}")
        built = card.run("a foreign kernel, built", nvcc, *code, work / "foreign.cu", "-o", kernel)
        if built.status == 0:
            steps["F37"] = card.run("a foreign kernel", kernel)
    else:
        card.miss("nvcc is not here: no kernel of another architecture was tried")
    for failure, step in steps.items():
        text = work / f"{failure}.txt"
        with suppress(OSError):
            text.write_text(step.errors or step.output, encoding="utf-8")
        card.tool(f"explain: {step.name}", "explain", text, expected=failure)


def other_architecture(card: Card) -> str:
    """An architecture whose machine code none of the GPUs here runs, as nvcc writes it."""
    probe = card.first("probe")
    gpus = probe.data.get("gpus", ()) if probe else ()
    majors = {(gpu["compute_capability"] or "0").partition(".")[0] for gpu in gpus}
    return next(code for code in ("80", "75", "90") if code[0] not in majors)


def put_into_a_copy(card: Card, verified: Step) -> None:
    """Put a package into a copy of the environment, then one that breaks torch, which has to be undone."""
    sys.path.insert(0, str(ROOT))
    sys.path.append(str(FOLDER / "tool"))
    from tests.lab.index import StandInIndex
    from tests.lab.wheels import make_wheel

    versions = card.program("versions", VERSIONS).document
    if not versions:
        return
    torch = verified.data.get("environment", {}).get("torch")
    prefix = Path(versions["prefix"])
    if not (torch and (prefix / "pyvenv.cfg").is_file()):
        card.miss(f"{prefix} is no virtual environment with torch: nothing was put into a copy")
        return
    try:
        size = bytes_below(prefix)
        most = min(MOST_COPIED, shutil.disk_usage(FOLDER).free // 2)
        if size > most:
            sizes = f"{size / 10**9:.1f} GB, and {most / 10**9:.1f} GB may be copied"
            card.miss(f"{prefix} has {sizes}: nothing was put into a copy")
            return
        copy = FOLDER / "work" / "copy"
        served = FOLDER / "work" / "index"
        served.mkdir(parents=True)
        # What has the version of the installed one is not installed again: its file here is empty.
        tags = f"{versions['tag']}-{versions['tag']}-manylinux_2_28_x86_64"
        backend = torch.partition("+")[2] or "cpu"
        make_wheel(served / "whl" / backend, "torch", versions["torch"], tags)
        make_wheel(served / "simple", "torch", versions["torch"], tags)
        make_wheel(served / "simple", "card-note", "1.0", modules={"card_note.py": ""})
        broken = {"card_note.py": "", "card_note.pth": "import sys; sys.modules['torch'] = None\n"}
        make_wheel(served / "simple", "card-note", "2.0", modules=broken)
    except OSError as error:
        card.miss(f"nothing was put into a copy: {error.strerror}")
        return
    if card.program("a copy", COPY.format(prefix=str(prefix), copy=str(copy))).status != 0:
        return
    with StandInIndex(served) as index:
        into = ("install", "--into", "--python", copy / "bin" / "python")
        more = {**index.environment(), "XDG_CACHE_HOME": str(FOLDER / "work" / "cache")}
        installed = card.tool("install --into", *into, "card-note==1.0", more=more)
        card.tool("--into, undone", *into, "card-note==2.0", more=more, expected="exit 5")
    # An installation whose kernels fail is undone, too.
    note = "1.0" if installed.status == 0 else "not there"
    card.run(
        "what is there",
        copy / "bin" / "python",
        "-c",
        THERE,
        more={"PYTHONPATH": ""},
        expected=f"torch {torch}, card-note {note}",
    )
    shutil.rmtree(copy, ignore_errors=True)


def bytes_below(folder: Path) -> int:
    """Return the size of all files below a folder, of a linked one as often as it is met."""
    paths = (Path(place) / name for place, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in paths if path.is_file())


def compared(card: Card) -> list[str]:
    """Say where the probe and torch differ on a GPU: name, capability, UUID, or memory by more than a twentieth."""
    probe = card.first("probe")
    facts = card.first("torch")
    if probe is None or facts is None:
        return []
    if not facts.document.get("gpus"):
        return ["torch listed no GPU to compare with the probe's."]
    gpus = probe.data.get("gpus", [])
    differences = []
    for place, seen in enumerate(facts.document["gpus"]):
        gpu = counterpart(gpus, seen, place)
        if gpu is None:
            differences.append(f"{seen['uuid'] or place} is not among the probe's GPUs")
            continue
        is_same = all(gpu[key] == seen[key] for key in ("name", "compute_capability"))
        distance = abs((gpu["memory_mib"] or 0) - seen["memory_mib"])
        if not is_same or distance > seen["memory_mib"] / 20:
            differences.append(f"the probe says {gpu}, torch {seen}")
    if not differences:
        return ["The probe and torch say the same of every GPU."]
    return ["The probe and torch differ:", "", *(f"- {text}" for text in differences)]


def counterpart(
    gpus: Sequence[dict[str, Any]], seen: Mapping[str, Any], place: int
) -> dict[str, Any] | None:
    """Return the probe's GPU that torch sees at a place: by its UUID, if both have one."""
    for gpu in gpus:
        if seen["uuid"] and gpu["uuid"] == seen["uuid"]:
            return gpu
    # torch before 2.5 and a Jetson's NVML have no UUID to go by.
    if place < len(gpus) and None in (seen["uuid"], gpus[place]["uuid"]):
        return gpus[place]
    return None


def write_page(card: Card) -> None:
    """Write the page that lists the steps so far."""
    seconds = monotonic() - card.started
    lines = [
        "# What gpuinstall says on this machine",
        "",
        machine_in_words(card),
        "",
        f"Made by `make card`, which had taken {seconds:.0f} s of at most {BUDGET_S:g} s. Each step's name leads to what it",
        "printed. *Ended*: the step was stopped, as its time was over. F01 and the like are causes that `gpuinstall explain`",
        "finds in a message, with how sure it is of them; some messages were provoked on purpose, to see whether it does.",
        "",
        "| step | exit | seconds | came to |",
        "|---|---|---|---|",
    ]
    for position, step in enumerate(card.steps):
        status = "ended" if step.status is None else step.status
        link = f"[{step.name}]({position:02}-{step.file})"
        lines.append(f"| {link} | {status} | {step.seconds:.1f} | {outcome(step)} |")
    lines += ["", *compared(card), "", *(f"- {text}" for text in card.missing)]
    card.write("card.md", "\n".join(lines) + "\n")


def machine_in_words(card: Card) -> str:
    """Say which GPUs and which driver the probe has found, and what stands against them."""
    probe = card.first("probe")
    if probe is None or not probe.data:
        return "The machine was not read yet, or could not be."
    cards = [
        f"{gpu['name']} ({gpu['compute_capability']}, {gpu['memory_mib'] or 'unknown'} MiB)"
        for gpu in probe.data["gpus"]
    ]
    gpus = [f"{cards.count(name)} × {name}" for name in dict.fromkeys(cards)]
    driver = probe.data.get("driver") or {}
    problems = [problem["code"] for problem in probe.data["problems"]]
    return (
        f"GPUs: {', '.join(gpus) or 'none'}. Driver: {driver.get('version') or 'none'}. "
        f"Problems: {', '.join(problems) or 'none'}."
    )


def outcome(step: Step) -> str:
    """What a step came to, in a few words, and what was expected if that is known."""
    last_line = (step.errors or step.output).strip().rpartition("\n")[2]
    text = answer(step) or status(step.document) or last_line or "no output"
    text = shortened(text).replace("|", "/")
    return f"{text}, expected {step.expected}" if step.expected else text


def answer(step: Step) -> str:
    """What a command of ours found: a cause, checks, a build, proofs; empty where it says none of these."""
    data = step.data
    if data.get("causes"):
        cause = data["causes"][0]
        return f"{cause['id']} at {cause['confidence']:.2f}"
    if "causes" in data:
        return "nothing recognised"
    if data.get("devices"):
        checks: list[str] = []
        for device in data["devices"]:
            checks += [check["status"] for check in device.get("checks", ())]
        passed = checks.count("passed")
        failed = checks.count("failed")
        return f"{data.get('status')}: {passed} passed, {failed} failed"
    if data.get("build"):
        return f"torch {data['build']['torch']}+{data['build']['backend']}"
    if step.name == "preflight":
        proofs = (data.get("preflight") or {}).get("gpus", ())
        return ", ".join(f"GPU {proof['index']} {proof['status']}" for proof in proofs)
    return ""


def status(document: Mapping[str, Any]) -> str:
    """What a document says of itself: its first error, or its status; of torch, how many GPUs it lists."""
    if "gpus" in document:
        return f"torch {document['torch']}, GPUs: {len(document['gpus'])}"
    for error in document.get("errors", ()):
        return str(error["message"])
    return str(document.get("status", ""))


def shortened(text: str) -> str:
    """Return a text of at most 120 letters: what a message of PyTorch is about often stands at its end."""
    return text if len(text) <= 120 else f"{text[:58]} … {text[-58:]}"


if __name__ == "__main__":
    main()
