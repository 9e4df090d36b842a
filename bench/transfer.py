"""What the transfer of an installation costs beside bare uv's, from empty caches over lines of known speed.

``python -m bench transfer=fifteen`` runs the rows whose names hold that word.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING

from tests.lab import stub_torch
from tests.lab.host import DENIED, NOT_FOUND
from tests.lab.index import Habits, StandInIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel

from bench.harness import GPUINSTALL, PYTHON, UV, VERIFIED, Row, duration, real_torch
from bench.install import small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.lab.host import Answer, Host

    Command = Sequence[str | Path]
    Purpose = Callable[[StandInIndex, Path], "Race"]

RUNS = 7
GOAL = 1.15
CHUNK = 1 << 18
SIZES_MB = (70, 60, 12, 10, 9, 8, 7, 6, 5, 4, 3, 3, 2, 1)
"""What torch's 100 MB come with: three large files among fifteen, 300 MB in all."""
TORCH = "torch==2.14.1"
OPTIONS = ("--python", PYTHON, "--backend", "cpu")
VENV: Command = (UV, "venv", "--clear", "--python", sys.executable, ".venv")
INTO: Command = (UV, "pip", "install", "--python", ".venv/bin/python")
KINDS = ("uv", "cache", "project")


@dataclass(frozen=True)
class Line:
    """A network: the bytes a second of a connection, and of all together."""

    each: float
    total: float = 2e9
    free: list[float] = field(default_factory=lambda: [0.0])
    lock: Lock = field(default_factory=Lock)

    def __str__(self) -> str:
        return f"{self.each / 1e6:.0f} MB/s"

    def pieces(self, body: bytes) -> Iterator[bytes]:
        """Yield a body as fast as the line has it."""
        start = time.monotonic()
        for position in range(0, len(body), CHUNK):
            end = position + CHUNK
            yield body[position:end]
            with self.lock:
                begun = max(self.free[0], time.monotonic())
                self.free[0] = begun + CHUNK / self.total
            due = max(self.free[0], start + end / self.each)
            time.sleep(max(0.0, due - time.monotonic()))


@dataclass(frozen=True)
class Turn:
    """What one run took."""

    seconds: float
    """Without the proof."""

    sent: int
    """The bytes that were sent."""

    kept: int
    """The bytes in caches."""

    memory: int
    """The bytes of its largest process."""


@dataclass(frozen=True)
class Race:
    """The ``ours`` and the ``beside`` commands of one purpose, run in turns from the same beginning.

    It is what ``before`` left in the ``kept`` folders, an empty project and empty caches for all others.
    """

    index: StandInIndex
    folder: Path
    environment: Mapping[str, str]
    ours: tuple[Command, ...]
    beside: tuple[Command, ...]
    before: tuple[Command, ...] = ()
    kept: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Take the steps that are not measured, and set aside what is kept of them."""
        self.begin()
        for command in self.before:
            self.run(command)
        for kind in self.kept:
            (self.folder / kind).rename(self.folder / f"{kind}.kept")

    def begin(self) -> None:
        """Make the folders as they are before each turn, and wait for the disk to have written the last."""
        for kind in KINDS:
            folder = self.folder / kind
            shutil.rmtree(folder, ignore_errors=True)
            kept = self.folder / f"{kind}.kept"
            if kept.exists():
                shutil.copytree(kept, folder, symlinks=True, copy_function=os.link)
        (self.folder / "project").mkdir(parents=True, exist_ok=True)
        os.sync()
        self.index.forget()

    def turn(self, commands: Sequence[Command]) -> Turn:
        """Run commands one after the other."""
        self.begin()
        seconds = 0.0
        memory = 0
        for command in commands:
            taken, peak = self.run(command)
            seconds += taken
            memory = max(memory, peak)
        return Turn(
            seconds=seconds,
            sent=sum(self.index.sent().values()),
            kept=_size(self.folder / "uv", self.folder / "cache"),
            memory=memory,
        )

    def run(self, command: Command) -> tuple[float, int]:
        """Run one to its good end; return its seconds but for the proof, and the bytes of its largest process."""
        memory = 0
        with tempfile.TemporaryFile("w+") as stderr:
            began = time.perf_counter()
            process = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.folder / "project",
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )
            while process.poll() is None:
                memory = max(memory, *map(_peak, _family(process.pid)))
                time.sleep(0.02)
            taken = time.perf_counter() - began
            stderr.seek(0)
            text = stderr.read()
        if process.returncode:
            words = " ".join(map(str, command))
            raise RuntimeError(f"{words}:\n{text}")
        verified = VERIFIED.search(text)
        if verified:
            taken -= float(verified[1])
        return taken, memory

    def row(self, what: str) -> Row:
        """Let both take turns, after one that does not count."""
        self.prepare()
        turns = list[Turn]()
        others = list[Turn]()
        for _ in range(RUNS + 1):
            turns.append(self.turn(self.ours))
            others.append(self.turn(self.beside))
        del turns[0], others[0]
        ours = median(turn.seconds for turn in turns)
        beside = median(turn.seconds for turn in others)
        turn = turns[-1]
        other = others[-1]
        amounts = (
            _megabytes("bytes", turn.sent, other.sent),
            _megabytes("caches", turn.kept, other.kept),
            _megabytes("memory", turn.memory, other.memory),
        )
        is_same = turn.sent <= other.sent and turn.kept <= 1.05 * other.kept
        return Row(
            what,
            duration(ours),
            duration(beside),
            f"{ours / beside:.2f}×",
            f"≤ {GOAL}× ({', '.join(amounts)})",
            met=is_same and ours <= min(GOAL * beside, beside + 0.6),
        )


def _megabytes(
    name: str,
    ours: int,
    beside: int,
) -> str:
    return f"{name} {ours / 1e6:.0f}, {beside / 1e6:.0f} MB"


def rows(chosen: str = "") -> Iterator[Row]:
    """Measure every row whose name holds a word."""
    for name, measure in _contests():
        if chosen in name:
            yield measure(name)


def _contests() -> Iterator[tuple[str, Callable[[str], Row]]]:
    lines = (Line(1e8), Line(1e9))
    wheel = real_torch()
    if wheel:
        for line in lines:
            measure = partial(_real, wheel, line)
            yield f"the real torch, hashed, {line}", partial(measure, hashed=True)
            yield f"the real torch, no hashes, {line}", partial(measure, hashed=False)
    for line in lines:
        fifteen = partial(_fifteen, line, install)
        yield f"fifteen wheels, {line}", fifteen
        yield f"fifteen wheels, no hashes, {line}", partial(fifteen, hashed=False)
    for purpose in (sync, lock, upgrade):
        measure = partial(_fifteen, Line(1e8), purpose, hashed=purpose is sync)
        yield f"{purpose.__name__} of fifteen wheels, 100 MB/s", measure
    narrow = Line(3e7, 1.25e8)
    yield f"fifteen wheels, {narrow}, 1 Gbit/s in all", partial(_fifteen, narrow, install)


def _real(
    wheel: Path,
    line: Line,
    what: str,
    *,
    hashed: bool,
) -> Row:
    """Install the real torch over a line, and what it needs from where this machine has it."""
    with tempfile.TemporaryDirectory() as folder:
        served = Path(folder) / "index" / "whl" / "cpu"
        served.mkdir(parents=True)
        (served / wheel.name).symlink_to(wheel)
        with _served(Path(folder), line, hashed=hashed) as index:
            version = wheel.name.split("-")[1]
            race = install(index, Path(folder) / "run", f"torch=={version}")
            environment = dict(race.environment)
            environment.pop("UV_DEFAULT_INDEX", None)
            return replace(race, environment=environment).row(what)


def _fifteen(
    line: Line,
    purpose: Purpose,
    what: str,
    *,
    hashed: bool = True,
) -> Row:
    """Race over a line for fifteen wheels, of which torch alone may have no hash."""
    with tempfile.TemporaryDirectory() as folder:
        _make_cuda(Path(folder) / "index")
        with _served(Path(folder), line, hashed=hashed) as index:
            return purpose(index, Path(folder) / "run").row(what)


def _served(
    folder: Path,
    line: Line,
    *,
    hashed: bool,
) -> StandInIndex:
    index = StandInIndex(folder / "index", Habits(hashed=lambda _name: hashed))
    for host in index.hosts:
        keep_answers(host, line)
    return index


def _environment(index: StandInIndex, folder: Path) -> dict[str, str]:
    contest = small(folder, index)
    return {**contest.environment, "UV_PREVIEW_FEATURES": "pylock"}


def _family(pid: int) -> Iterator[int]:
    """Yield a process and all that it started."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = (task / "children").read_text()
            for child in children.split():
                yield from _family(int(child))


def _peak(pid: int) -> int:
    """Return the most bytes that a process has had at once; 0 if the system does not tell."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+)", status)
        if peak:
            return int(peak[1]) * 1024
    return 0


def install(
    index: StandInIndex,
    folder: Path,
    requirement: str = TORCH,
) -> Race:
    """Install into an empty folder."""
    ours = (GPUINSTALL, "install", requirement, *OPTIONS)
    beside = (*INTO, "--index", f"{index.torch_index}/cpu", requirement)
    return _race(index, folder, ours, VENV, beside)


def sync(index: StandInIndex, folder: Path) -> Race:
    """Install a lock that is there."""
    before = (GPUINSTALL, "lock", TORCH, *OPTIONS)
    beside = (UV, "pip", "sync", "--python", ".venv/bin/python", "pylock.cpu.toml")
    race = _race(index, folder, (GPUINSTALL, "sync"), VENV, beside)
    return replace(race, before=(before,), kept=("project",))


def lock(index: StandInIndex, folder: Path) -> Race:
    """Lock one target, every file hashed."""
    ours = (GPUINSTALL, "lock", TORCH, *OPTIONS)
    by_uv = f"{UV} pip compile --generate-hashes --index {index.torch_index}/cpu -"
    return _race(index, folder, ours, ("sh", "-c", f"echo {TORCH} | {by_uv}"))


def upgrade(index: StandInIndex, folder: Path) -> Race:
    """Move torch alone, where all else is there."""
    race = install(index, folder)
    before = (GPUINSTALL, "install", "torch==2.13.0", *OPTIONS)
    return replace(
        race,
        beside=race.beside[1:],
        before=(before,),
        kept=KINDS,
    )


def _race(
    index: StandInIndex,
    folder: Path,
    ours: Command,
    *beside: Command,
) -> Race:
    return Race(
        index,
        folder,
        _environment(index, folder),
        ours=(ours,),
        beside=beside,
    )


def _make_cuda(folder: Path) -> None:
    """Make two torches that need fourteen others, each a tenth of what those of a CUDA build are."""
    made = catalog_index(folder, ["2.13.0", "2.14.1"], platforms=[LINUX], pythons=[PYTHON])
    for position, size in enumerate(SIZES_MB):
        modules = {f"nvidia/part{position}/filling": _filling(size)}
        make_wheel(made / "simple", f"nvidia-part{position}", "1.0", modules=modules)
    parts = [f"nvidia-part{position}" for position in range(len(SIZES_MB))]
    for torch in (made / "whl" / "cpu").glob("torch-*.whl"):
        _, version, tags = torch.name.removesuffix(".whl").split("-", 2)
        content: dict[str, str | bytes] = {
            **stub_torch.modules(version, "cpu"),
            "torch/lib/filling": _filling(100),
        }
        make_wheel(
            torch.parent,
            "torch",
            version,
            tags,
            requires=["filelock", *parts],
            modules=content,
        )


def _filling(megabytes: int) -> bytes:
    """Return bytes of which half can be packed."""
    blocks = [os.urandom(10_000) + bytes(10_000) for _ in range(megabytes * 100)]
    return b"".join(blocks)


def _size(*folders: Path) -> int:
    """Return the bytes on the disk, each file once."""
    sizes = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                status = path.lstat()
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def keep_answers(host: Host, line: Line) -> None:
    """Let a host read and hash each file once, so that it costs both tools little, and send it over a line."""
    kept: dict[str, Answer] = {}
    respond = host.respond

    def answer(path: str, headers: dict[str, str]) -> Answer:
        if not path.endswith(".whl"):
            page = respond(path, headers)
            return NOT_FOUND if page is DENIED else page  # bare uv takes 403 for the end
        if path not in kept:
            file = respond(path, headers)
            tagged = {**file.headers, "ETag": f'"{path}"'}
            kept[path] = replace(file, headers=tagged, pieces=line.pieces)
        return kept[path]

    host.respond = answer
