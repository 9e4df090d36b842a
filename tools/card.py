"""Collect evidence on this machine's GPUs in .card/evidence (``make card``).

``python3 tools/card.py [PYTHON]`` does the same and needs only a Python with pip.
``PYTHON`` is the interpreter with torch. A GPU may be available for only ten minutes.
Therefore the output and the page are written after each step, the most important steps
run first, and all steps share one time limit. A failed or interrupted step is part of
the evidence. GPU settings are not changed, and only .card and caches are written.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".card"
BUDGET_S = 540
"""The time limit of all steps together."""
LIMIT_S = 60
"""The time limit of one step."""
END_S = 5
"""The time that a step has to stop its processes after its limit."""

# With PYTHONPATH, the tested torch would also import these packages.
START = """
import runpy, sys
sys.path[:0] = sys.argv.pop(1).split(":")
runpy.run_module("gpuinstall", run_name="__main__", alter_sys=True)
"""
FACTS = """
import torch
count = torch.cuda.device_count()
for index in range(count):
    print(torch.cuda.get_device_properties(index))
print(f"torch {torch.__version__}, GPUs: {count}")
"""
# Copy the environment, for a harmless package and a package that breaks torch and must be rolled back. A Python outside
# a virtual environment is the system's, whose prefix is /usr, so it is not copied.
COPY = """
import os, shutil, sys
from importlib.metadata import distributions

def copy(source, target):
    # CUDA's libraries take gigabytes, and no step writes into them.
    if os.path.getsize(source) > 1_000_000:
        try:
            return os.link(source, target)
        except OSError:
            pass
    return shutil.copy2(source, target)

if sys.prefix == sys.base_prefix:
    sys.exit("not copied: this Python is in no virtual environment")
shutil.copytree(sys.prefix, sys.argv[1], symlinks=True, copy_function=copy)
names = {"torch", "torchvision", "torchaudio", "triton"}
pins = {"%s==%s" % (d.name, d.version) for d in distributions() if d.name in names}
print(*sorted(pins), "cp%d%d" % sys.version_info[:2])
"""
# On the GPU, this product has a relative error of 0.001, which verify must report.
PLANTED = "bmm = lambda a, b, exact=bmm: exact(a, b) * (1.001 if a.is_cuda else 1)\n"
THERE = """
import torch
from importlib.metadata import version
print("torch", torch.__version__, "note", version("card-note"))
"""
BROKEN = "import sys; sys.modules['torch'] = None\n"
HIDDEN = "import torch; torch.zeros(1).cuda()"


class Step(NamedTuple):
    """A command and its result; the status is None after a timeout."""

    name: str
    file: str
    status: int | None
    output: str
    seconds: float


class Card:
    """A run: the Python with torch, and the finished steps."""

    def __init__(self, python: Path) -> None:
        self.python = python
        self.start = monotonic()
        self.steps: list[Step] = []
        self.running: subprocess.Popen[bytes] | None = None
        self.is_interrupted = False

    def run(self, name: str, *command: str | Path, **variables: str) -> Step:
        """Run a program within the time left and write its result."""
        start = monotonic()
        limit = min(LIMIT_S, BUDGET_S - (start - self.start))
        status: int | None = None
        output = "no time was left"
        if limit > 0:
            status, output = self._ended(command, variables, limit)
        plain = re.sub(r"\W", "-", name)
        step = Step(
            name,
            f"{len(self.steps):02}-{plain}.txt",
            status,
            output,
            monotonic() - start,
        )
        self.steps.append(step)
        write(step.file, output)
        self.write_page()
        # Continue if the terminal is closed.
        with suppress(OSError):
            print(f"{name:24}{status!s:>5}{step.seconds:8.1f} s", flush=True)  # noqa: T201
        return step

    def _ended(
        self,
        command: tuple[str | Path, ...],
        variables: Mapping[str, str],
        limit: float,
    ) -> tuple[int | None, str]:
        # Write to a file, because the output before a timeout shows where it hangs.
        path = FOLDER / "work" / "output.txt"
        try:
            with path.open("w", encoding="utf-8") as stream:
                self.running = subprocess.Popen(
                    list(map(str, command)),
                    env={**os.environ, "NO_COLOR": "1", **variables},
                    cwd=FOLDER,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                )
            if self.is_interrupted:
                self.interrupt()
            self.running.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            self.end()
            said = path.read_text(encoding="utf-8", errors="replace")
            return None, f"{said}no end after {limit:.0f} s"
        except OSError as error:
            return 126, str(error)
        return self.running.returncode, path.read_text(
            encoding="utf-8", errors="replace"
        )

    def end(self) -> None:
        """Interrupt the running program, then kill it."""
        if self.running and self.running.poll() is None:
            self.running.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.running.wait(timeout=END_S)
            self.running.kill()

    def interrupt(self, *_: object) -> None:
        """End the running program and this run."""
        self.is_interrupted = True
        if self.running and self.running.poll() is None:
            self.end()
            sys.exit(143)

    def tool(self, name: str, *words: str | Path, **variables: str) -> Step:
        """Run a command of gpuinstall for its document."""
        path = f"{ROOT / 'src'}:{FOLDER / 'tool'}"
        command = (sys.executable, "-c", START, path, *words, "--json", "--quiet")
        return self.run(name, *command, **variables)

    def write_page(self) -> None:
        """Write the finished steps as a table for docs/evidence.md."""
        lines = [
            "# What gpuinstall says on this machine",
            "",
            "| step | exit | seconds |",
            "|---|---|---|",
        ]
        for step in self.steps:
            status = "ended" if step.status is None else step.status
            lines.append(
                f"| [{step.name}]({step.file}) | {status} | {step.seconds:.1f} |"
            )
        write("card.md", "\n".join(lines) + "\n")


def write(name: str, text: str) -> None:
    """Write an evidence file atomically."""
    new = FOLDER / "evidence" / f".{name}"
    new.write_text(text, encoding="utf-8")
    new.replace(FOLDER / "evidence" / name)


def main() -> None:
    """Run every step, and exit with 1 if no GPU was verified."""
    card = Card(Path(sys.argv[1] if sys.argv[1:] else sys.executable))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, card.interrupt)
    for folder in ("evidence", "work"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)
        (FOLDER / folder).mkdir(parents=True)
    if not all(map(find_spec, ("uv", "click", "requests"))):
        provide_tool(card)
    is_proven = run_steps(card)
    shutil.rmtree(FOLDER / "work", ignore_errors=True)
    with suppress(OSError):
        print((FOLDER / "evidence" / "card.md").read_text(encoding="utf-8"))  # noqa: T201
    sys.exit(not is_proven)


def provide_tool(card: Card) -> None:
    """Install the dependencies by hash, from .card/wheels if it exists."""
    lock = ROOT / "lockfiles" / "tool.txt"
    words: list[str | Path] = [
        "install",
        "-q",
        "--no-deps",
        "--require-hashes",
        "-r",
        lock,
    ]
    words += ["--target", FOLDER / "tool"]
    if (FOLDER / "wheels").is_dir():
        words += ["--no-index", "--find-links", FOLDER / "wheels"]
    card.run("pip install", sys.executable, "-m", "pip", *words)


def run_steps(card: Card) -> bool:
    """Run the steps by importance, and return whether a GPU was verified."""
    python = card.python
    # Steps that need a GPU are first.
    card.tool("probe", "probe")
    card.run("nvidia-smi", "nvidia-smi", "-q", "-x")
    card.tool("preflight", "doctor")
    verified = card.tool("verify", "verify", "--python", python, "--require-gpu")
    card.tool("verify --deep", "verify", "--python", python, "--deep")
    card.run("torch", python, "-c", FACTS)
    damage_environment_copy(card)
    card.tool("verify --bench", "verify", "--python", python, "--bench")
    card.tool("doctor", "doctor", "--venv", python.parent.parent)
    card.tool("plan", "plan", "torch")
    hidden = card.run("a hidden GPU", python, "-c", HIDDEN, CUDA_VISIBLE_DEVICES="")
    card.tool("explain", "explain", FOLDER / "evidence" / hidden.file)
    return verified.status == 0


def damage_environment_copy(card: Card) -> None:
    """Add a wrong kernel and a package that breaks torch to a copy."""
    sys.path[:0] = [str(ROOT), str(FOLDER / "tool")]
    from tests.lab.index import SimulatedIndex
    from tests.lab.wheels import make_wheel

    copy = FOLDER / "work" / "copy"
    copied = card.run("a copy", card.python, "-c", COPY, copy)
    if copied.status != 0:
        return
    # Warnings precede the printed line.
    *pins, tag = copied.output.splitlines()[-1].split()
    verify_wrong_kernel(card, copy)
    pages = FOLDER / "work" / "index" / "simple"
    # An installed version is not installed again, so its file is empty.
    for folder in (pages, pages.with_name("whl") / "cu130"):
        for pin in pins:
            name, version = pin.split("==")
            make_wheel(folder, name, version, f"{tag}-{tag}-manylinux_2_28_x86_64")
    make_wheel(pages, "card-note", "1.0", modules={"card_note.py": ""})
    make_wheel(pages, "card-note", "2.0", modules={"card_note.pth": BROKEN})
    with SimulatedIndex(pages.parent) as index:
        into = ("install", "--into", "--python", copy / "bin" / "python")
        variables = {
            **index.environment(),
            "XDG_CACHE_HOME": str(FOLDER / "work" / "cache"),
        }
        card.tool("install --into", *into, "card-note==1.0", **variables)
        card.tool("--into, undone", *into, "card-note==2.0", **variables)
    card.run("what is there", copy / "bin" / "python", "-c", THERE)


def verify_wrong_kernel(card: Card, copy: Path) -> None:
    """Insert a wrong kernel, run verify, and remove the kernel."""
    for packages in copy.glob("lib/python3*/site-packages"):
        init = packages / "torch" / "__init__.py"
        if init.is_file():
            sound = init.read_text(encoding="utf-8")
            init.write_text(f"{sound}\n{PLANTED}", encoding="utf-8")
            card.tool("a wrong kernel", "verify", "--python", copy / "bin" / "python")
            init.write_text(sound, encoding="utf-8")


if __name__ == "__main__":
    main()
