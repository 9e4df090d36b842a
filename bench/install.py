"""What an installation costs against the bare tools: seconds on warm caches and cold ones, bytes on cold ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tests.lab import stub_torch
from tests.lab.clone import Person
from tests.lab.host import DENIED, NOT_FOUND, part_of
from tests.lab.index import Habits, StandInIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel

from bench.pairs import paired, run
from bench.row import Row, in_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.lab.host import Answer, Host

TOOLS = Path(sys.executable).parent
PYTHON = ".".join(map(str, sys.version_info[:2]))
RUNS = 5
CHUNK = 1 << 18
SIZES_MB = (70, 60, 12, 10, 9, 8, 7, 6, 5, 4, 3, 3, 2, 1)
"""What torch's 100 MB come with: three large files among fifteen, 300 MB in all."""
VERIFIED = re.compile(r"^Verified .* ([\d.]+) s$", re.MULTILINE)
"""What ``install`` says on the proof, which the bare tools do not give."""


@dataclass(frozen=True)
class Contest:
    """One set of packages, installed into an empty folder by each tool; each returns its seconds."""

    folder: Path
    environment: dict[str, str]
    requirement: str
    uv_sources: tuple[str, ...] = ()
    pip_sources: tuple[str, ...] = ()

    def ours(self) -> float:
        """Install with gpuinstall; the proof does not count."""
        command: list[str | Path] = [
            TOOLS / "gpuinstall",
            "install",
            self.requirement,
            "--python",
            PYTHON,
            "--backend",
            "cpu",
        ]
        folder = self.empty()
        began = time.perf_counter()
        done = subprocess.run(command, env=self.environment, cwd=folder, capture_output=True, text=True, check=False)
        taken = time.perf_counter() - began
        proof = VERIFIED.search(done.stderr)
        if done.returncode or not proof:
            raise RuntimeError(done.stderr)
        return taken - float(proof.group(1))

    def uv(self) -> float:
        """Install with ``uv venv`` and ``uv pip install``."""
        install: list[str | Path] = [
            TOOLS / "uv",
            "pip",
            "install",
            "--python",
            ".venv/bin/python",
            *self.uv_sources,
            self.requirement,
        ]
        return self.both([TOOLS / "uv", "venv", "--python", sys.executable, ".venv"], install)

    def pip(self) -> float:
        """Install with ``python -m venv`` and ``pip install``."""
        install = [".venv/bin/python", "-m", "pip", "install", *self.pip_sources, self.requirement]
        return self.both([sys.executable, "-m", "venv", ".venv"], install)

    def both(self, *commands: Sequence[str | Path]) -> float:
        """Run commands one after the other in an empty folder."""
        folder = self.empty()
        began = time.perf_counter()
        for command in commands:
            run(command, env=self.environment, cwd=folder)
        return time.perf_counter() - began

    def empty(self) -> Path:
        """Make the folder to install into, always of the same name, and wait for the disk to have written the last."""
        shutil.rmtree(self.folder / "project", ignore_errors=True)
        (self.folder / "project").mkdir(parents=True)
        os.sync()
        return self.folder / "project"


@dataclass(frozen=True)
class ColdContest(Contest):
    """The same, with caches that are emptied before each turn."""

    def empty(self) -> Path:
        """Empty the caches too."""
        for cache in ("uv", "cache"):
            shutil.rmtree(self.folder / cache, ignore_errors=True)
        return super().empty()


def rows() -> Iterator[Row]:
    """Contest small packages from the stand-in index, then large ones, then the real torch, where pip has one."""
    with tempfile.TemporaryDirectory() as folder:
        made = catalog_index(Path(folder) / "index", ["2.14.1"], platforms=[LINUX], pythons=[PYTHON])
        with StandInIndex(made) as index:
            yield _bytes(Path(folder), index)
            yield _against_uv("install, warm, small packages, against uv", _small(Path(folder) / "warm", index))
    yield from _cold_rows()
    yield from _real()


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
            time.sleep(max(0.0, max(self.free[0], start + (position + CHUNK) / self.each) - time.monotonic()))


def _cold_rows() -> Iterator[Row]:
    """Contest the real torch where pip has it, and fifteen wheels as a CUDA build has them, from empty caches."""
    links = os.environ.get("PIP_FIND_LINKS", "")
    for wheel in Path(links or "/nonexistent").glob(f"torch-*+cpu-cp{PYTHON.replace('.', '')}-*.whl"):
        for rate, hashed in product((1e8, 1e9), (True, False)):
            with tempfile.TemporaryDirectory() as folder:
                served = Path(folder) / "index" / "whl" / "cpu"
                served.mkdir(parents=True)
                (served / wheel.name).symlink_to(wheel)
                what = f"cold, the real torch, {'hashed' if hashed else 'no hashes'}"
                yield _cold(what, Path(folder), Line(rate), f"torch=={wheel.name.split('-')[1]}", hashed=hashed)
    for line, goal in ((Line(1e8), 1.15), (Line(1e9), 1.15), (Line(3e7, 1.25e8), 0.7)):
        with tempfile.TemporaryDirectory() as folder:
            _make_cuda(Path(folder) / "index")
            yield _cold("cold, fifteen wheels", Path(folder), line, "torch==2.14.1", goal=goal, own=True)


def _make_cuda(folder: Path) -> None:
    """Make a torch that needs fourteen others, each a tenth of what those of a CUDA build are."""
    made = catalog_index(folder, ["2.14.1"], platforms=[LINUX], pythons=[PYTHON])
    [torch] = (made / "whl" / "cpu").glob("torch-*.whl")
    for position, size in enumerate(SIZES_MB):
        filling = b"".join(os.urandom(10_000) + bytes(10_000) for _ in range(size * 100))
        name = f"nvidia-part{position}"
        make_wheel(made / "simple", name, "1.0", modules={f"nvidia/part{position}/filling": filling})
    filling = b"".join(os.urandom(10_000) + bytes(10_000) for _ in range(10_000))
    content: dict[str, str | bytes] = {**stub_torch.modules("2.14.1+cpu", "cpu"), "torch/lib/filling": filling}
    tags = torch.name.split("-", 2)[2].removesuffix(".whl")
    parts = [f"nvidia-part{position}" for position in range(len(SIZES_MB))]
    make_wheel(torch.parent, "torch", "2.14.1+cpu", tags, requires=["filelock", *parts], modules=content)


def _cold(
    what: str, folder: Path, line: Line, requirement: str, *, hashed: bool = True, goal: float = 1.15, own: bool = False
) -> Row:
    """Contest an installation over a line; with ``own`` everything comes from it, else what torch needs does not."""
    with StandInIndex(folder / "index", Habits(hashed=lambda _name: hashed)) as index:
        for host in index.hosts:
            keep_answers(host, line)
        contest = ColdContest(**{**vars(_small(folder, index)), "requirement": requirement})
        if not own:
            del contest.environment["UV_DEFAULT_INDEX"]
        pair = paired(contest.ours, contest.uv, RUNS)
        index.forget()
        contest.ours()
        ours, kept = sum(index.sent().values()), _size(folder / "uv", folder / "cache")
        index.forget()
        contest.uv()
        same = ours <= sum(index.sent().values()) and kept <= 1.05 * _size(folder / "uv")
    met = same and pair.ratio <= goal and pair.ours <= pair.beside + 0.6
    return Row(
        f"{what}, {line}", in_seconds(pair.ours), in_seconds(pair.beside), f"{pair.ratio:.2f}×", f"≤ {goal}×", met
    )


def _size(*folders: Path) -> int:
    """The bytes on the disk, each file once."""
    files = {path.lstat().st_ino: path.lstat().st_size for at in folders for path in at.rglob("*") if path.is_file()}
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
            kept[path] = replace(found, headers={**found.headers, "ETag": f'"{path}"'}, pieces=line.pieces)
        return part_of(kept[path], headers)

    host.respond = answer


def _small(folder: Path, index: StandInIndex) -> Contest:
    """Torch's stand-in; caches and home are the folder's own."""
    person = Person(folder)
    folder.mkdir(parents=True, exist_ok=True)
    caches = {"UV_CACHE_DIR": str(folder / "uv"), "XDG_CACHE_HOME": str(folder / "cache")}
    family = f"{index.torch_index}/cpu"
    return Contest(
        folder, {**person.environment(), **index.environment(), **caches}, "torch==2.14.1", ("--index", family)
    )


def _bytes(folder: Path, index: StandInIndex) -> Row:
    """Count the bytes of wheels that each fetches into empty caches."""
    _small(folder / "cold-uv", index).uv()
    beside = sum(index.sent().values())
    index.forget()
    _small(folder / "cold", index).ours()
    ours = sum(index.sent().values())
    index.forget()
    return Row("bytes of wheels, cold", f"{ours} B", f"{beside} B", f"{ours - beside:+} B", "no more", ours <= beside)


def _against_uv(what: str, contest: Contest) -> Row:
    pair = paired(contest.ours, contest.uv, RUNS)
    more = pair.ours - pair.beside
    return Row(what, in_seconds(pair.ours), in_seconds(pair.beside), f"{more:+.2f} s", "≤ 1 s more", more <= 1)


def _real() -> Iterator[Row]:
    """Contest the wheel of torch in the folder that PIP_FIND_LINKS names."""
    links = os.environ.get("PIP_FIND_LINKS", "")
    wheel = next(Path(links or "/nonexistent").glob(f"torch-*+cpu-cp{PYTHON.replace('.', '')}-*.whl"), None)
    if wheel is None:
        sys.stdout.write(f"no torch for Python {PYTHON} in PIP_FIND_LINKS: not measured with the real one\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        sources = ("--find-links", links)
        requirement = f"torch=={wheel.name.split('-')[1]}"
        contest = Contest(Path(folder), Person(Path(folder)).environment(), requirement, sources, sources)
        yield _against_uv("install, warm, the real torch, against uv", contest)
        yield _against_pip("install, warm, the real torch, against pip", contest)


def _against_pip(what: str, contest: Contest) -> Row:
    pair = paired(contest.ours, contest.pip, 1)
    times = pair.beside / pair.ours
    shown = f"{times:.1f}×"
    return Row(what, in_seconds(pair.ours), in_seconds(pair.beside), shown, "≥ 5× faster", times >= 5)
