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
from tests.lab.host import DENIED, NOT_FOUND, part_of
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

RUNS = 5
GOAL = 1.15
CHUNK = 1 << 18
SIZES_MB = (70, 60, 12, 10, 9, 8, 7, 6, 5, 4, 3, 3, 2, 1)
"""What torch's 100 MB come with: three large files among fifteen, 300 MB in all."""
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
        """Send a body as fast as the line has it."""
        start = time.monotonic()
        for position in range(0, len(body), CHUNK):
            yield body[position : position + CHUNK]
            with self.lock:
                self.free[0] = max(self.free[0], time.monotonic()) + CHUNK / self.total
            time.sleep(
                max(
                    0.0,
                    max(self.free[0], start + (position + CHUNK) / self.each) - time.monotonic(),
                )
            )


@dataclass(frozen=True)
class Turn:
    """What one run took: seconds without the proof, bytes that were sent, bytes in caches, its largest process."""

    seconds: float
    sent: int
    kept: int
    memory: int


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
            shutil.rmtree(self.folder / kind, ignore_errors=True)
            if (self.folder / f"{kind}.kept").exists():
                kept = self.folder / f"{kind}.kept"
                shutil.copytree(kept, self.folder / kind, symlinks=True, copy_function=os.link)
        (self.folder / "project").mkdir(parents=True, exist_ok=True)
        os.sync()
        self.index.forget()

    def turn(self, commands: Sequence[Command]) -> Turn:
        """Run commands one after the other."""
        self.begin()
        ran = [self.run(command) for command in commands]
        sent, kept = (
            sum(self.index.sent().values()),
            _size(self.folder / "uv", self.folder / "cache"),
        )
        return Turn(
            sum(seconds for seconds, _ in ran), sent, kept, max(memory for _, memory in ran)
        )

    def run(self, command: Command) -> tuple[float, int]:
        """Run one to its good end; return its seconds but for the proof, and the bytes of its largest process."""
        with tempfile.TemporaryFile("w+") as said:
            began, memory = time.perf_counter(), 0
            process = subprocess.Popen(
                command,
                env=self.environment,
                cwd=self.folder / "project",
                stdout=subprocess.DEVNULL,
                stderr=said,
            )
            while process.poll() is None:
                memory = max(memory, *map(_peak, _family(process.pid)))
                time.sleep(0.02)
            taken = time.perf_counter() - began
            said.seek(0)
            text = said.read()
        if process.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}:\n{text}")
        proof = VERIFIED.search(text)
        return taken - float(proof.group(1) if proof else 0), memory

    def row(self, what: str) -> Row:
        """Let both take turns, after one that does not count."""
        self.prepare()
        pairs = [(self.turn(self.ours), self.turn(self.beside)) for _ in range(RUNS + 1)][1:]
        ours, beside = (
            median(turn.seconds for turn in turns) for turns in zip(*pairs, strict=True)
        )
        our, their = pairs[-1]
        same = our.sent <= their.sent and our.kept <= 1.05 * their.kept
        both = {
            "bytes": (our.sent, their.sent),
            "caches": (our.kept, their.kept),
            "memory": (our.memory, their.memory),
        }
        more = ", ".join(
            f"{name} {mine / 1e6:.0f}, {other / 1e6:.0f} MB" for name, (mine, other) in both.items()
        )
        met = same and ours <= GOAL * beside and ours <= beside + 0.6
        return Row(
            what,
            duration(ours),
            duration(beside),
            f"{ours / beside:.2f}×",
            f"≤ {GOAL}× ({more})",
            met,
        )


def rows(chosen: str = "") -> Iterator[Row]:
    """Measure every row whose name holds a word."""
    for name, measure in _contests():
        if chosen in name:
            yield measure(name)


def _contests() -> Iterator[tuple[str, Callable[[str], Row]]]:
    wheel = real_torch()
    if wheel:
        for rate in (1e8, 1e9):
            yield (
                f"the real torch, hashed, {Line(rate)}",
                partial(_real, wheel, Line(rate), hashed=True),
            )
            yield (
                f"the real torch, no hashes, {Line(rate)}",
                partial(_real, wheel, Line(rate), hashed=False),
            )
    for rate in (1e8, 1e9):
        yield f"fifteen wheels, {Line(rate)}", partial(_fifteen, Line(rate), install)
        yield (
            f"fifteen wheels, no hashes, {Line(rate)}",
            partial(_fifteen, Line(rate), install, hashed=False),
        )
    for purpose in (sync, lock, upgrade):
        measure = partial(_fifteen, Line(1e8), purpose, hashed=purpose is sync)
        yield f"{purpose.__name__} of fifteen wheels, 100 MB/s", measure
    narrow = Line(3e7, 1.25e8)
    yield f"fifteen wheels, {narrow}, 1 Gbit/s in all", partial(_fifteen, narrow, install)


def _real(wheel: Path, line: Line, what: str, *, hashed: bool) -> Row:
    """Install the real torch over a line, and what it needs from where this machine has it."""
    with tempfile.TemporaryDirectory() as folder:
        served = Path(folder) / "index" / "whl" / "cpu"
        served.mkdir(parents=True)
        (served / wheel.name).symlink_to(wheel)
        with _served(Path(folder), line, hashed=hashed) as index:
            race = install(index, Path(folder) / "run", f"torch=={wheel.name.split('-')[1]}")
            own = {
                name: value
                for name, value in race.environment.items()
                if name != "UV_DEFAULT_INDEX"
            }
            return replace(race, environment=own).row(what)


def _fifteen(line: Line, purpose: Purpose, what: str, *, hashed: bool = True) -> Row:
    """Race over a line for fifteen wheels, of which torch alone may have no hash."""
    with tempfile.TemporaryDirectory() as folder:
        _make_cuda(Path(folder) / "index")
        with _served(Path(folder), line, hashed=hashed) as index:
            return purpose(index, Path(folder) / "run").row(what)


def _served(folder: Path, line: Line, *, hashed: bool) -> StandInIndex:
    index = StandInIndex(folder / "index", Habits(hashed=lambda _name: hashed))
    for host in index.hosts:
        keep_answers(host, line)
    return index


def _environment(index: StandInIndex, folder: Path) -> dict[str, str]:
    return {**small(folder, index).environment, "UV_PREVIEW_FEATURES": "pylock"}


def _family(pid: int) -> Iterator[int]:
    """A process and all that it started."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _peak(pid: int) -> int:
    """The bytes that a process has had at once, 0 where the system does not say."""
    with suppress(OSError):
        said = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        return int(said[1]) * 1024 if said else 0
    return 0


def install(index: StandInIndex, folder: Path, requirement: str = "torch==2.14.1") -> Race:
    """Install into an empty folder."""
    ours = (GPUINSTALL, "install", requirement, "--python", PYTHON, "--backend", "cpu")
    return Race(
        index,
        folder,
        _environment(index, folder),
        (ours,),
        (VENV, (*INTO, "--index", f"{index.torch_index}/cpu", requirement)),
    )


def sync(index: StandInIndex, folder: Path) -> Race:
    """Install a lock that is there."""
    before = (GPUINSTALL, "lock", "torch==2.14.1", "--python", PYTHON, "--backend", "cpu")
    beside = (UV, "pip", "sync", "--python", ".venv/bin/python", "pylock.cpu.toml")
    return Race(
        index,
        folder,
        _environment(index, folder),
        ((GPUINSTALL, "sync"),),
        (VENV, beside),
        (before,),
        ("project",),
    )


def lock(index: StandInIndex, folder: Path) -> Race:
    """Lock one target, every file hashed."""
    ours = (GPUINSTALL, "lock", "torch==2.14.1", "--python", PYTHON, "--backend", "cpu")
    asked = (
        "sh",
        "-c",
        f"echo torch==2.14.1 | {UV} pip compile --generate-hashes --index {index.torch_index}/cpu -",
    )
    return Race(index, folder, _environment(index, folder), (ours,), (asked,))


def upgrade(index: StandInIndex, folder: Path) -> Race:
    """Move torch alone, where all else is there."""
    family = ("--index", f"{index.torch_index}/cpu")
    ours = (GPUINSTALL, "install", "torch==2.14.1", "--python", PYTHON, "--backend", "cpu")
    before = (*ours[:2], "torch==2.13.0", *ours[3:])
    return Race(
        index,
        folder,
        _environment(index, folder),
        (ours,),
        ((*INTO, *family, "torch==2.14.1"),),
        (before,),
        KINDS,
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
            torch.parent, "torch", version, tags, requires=["filelock", *parts], modules=content
        )


def _filling(megabytes: int) -> bytes:
    """Bytes of which half can be packed."""
    return b"".join(os.urandom(10_000) + bytes(10_000) for _ in range(megabytes * 100))


def _size(*folders: Path) -> int:
    """The bytes on the disk, each file once."""
    files = {
        path.lstat().st_ino: path.lstat().st_size
        for at in folders
        for path in at.rglob("*")
        if path.is_file()
    }
    return sum(files.values())


def keep_answers(host: Host, line: Line) -> None:
    """Let a host read and hash each file once, so that it costs both tools little, and send it over a line."""
    kept: dict[str, Answer] = {}
    respond = host.respond

    def answer(path: str, headers: dict[str, str]) -> Answer:
        if not path.endswith(".whl"):
            page = respond(path, headers)
            return NOT_FOUND if page is DENIED else page  # bare uv takes 403 for the end
        if path not in kept:
            found = respond(path, headers)
            kept[path] = replace(
                found, headers={**found.headers, "ETag": f'"{path}"'}, pieces=line.pieces
            )
        return part_of(kept[path], headers)

    host.respond = answer
