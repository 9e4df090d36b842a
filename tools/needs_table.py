"""Makes ``docs/evidence/needs.md``: what the native code of popular programs' locks needs, by range and by readelf.

Every wheel with native code of uv's locks of twenty programs is read twice: in parts, as a lock reads it, and whole,
each library by ``readelf -d``. Fetches some 15 GB, one wheel at a time: ``python -m tools.needs_table [PROGRAM…]``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

import requests
import tomli

from gpuinstall import process, uv
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.units import readable
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.needs import load_libraries, read_needs
from gpuinstall.wheels.ranges import WheelError
from gpuinstall.wheels.wheel_reader import WheelReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.session import Session

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "needs.md"
PYTHON = "3.12"
PROGRAMS = (
    "vllm",
    "sglang",
    "unsloth",
    "whisperx",
    "lmdeploy",
    "deepspeed",
    "axolotl",
    "pyannote.audio",
    "faster-whisper",
    "rembg[gpu]",
    "onnxruntime-gpu",
    "cupy-cuda12x",
    "jax[cuda12]",
    "tensorflow[and-cuda]",
    "faiss-gpu-cu12",
    "transformers accelerate bitsandbytes",
    "diffusers xformers",
    "sentence-transformers",
    "ultralytics",
    "numba-cuda[cu12]",
)
INTRODUCTION = f"""# Needs read by range

Every wheel with native code in uv's locks of {len(PROGRAMS)} programs, for Python {PYTHON} on Linux x86_64
(glibc 2.28): the libraries of other packages that it needs, as a lock reads them in parts, beside `readelf -d` of every
library of the whole file. *unread* counts libraries whose tables were not in the parts that were read; what only they
need is not known then, and nothing is decided by it. Made by `python -m tools.needs_table`.

"""
NOTE = """\
Where a row differs, a library was read from its beginning alone, which has more names than the loader looks for: the
library's own under another file name (soundfile), one that patchelf took off its list (tilelang's libcuda.so.1), one
that auditwheel has renamed (torchvision's nvJPEG; its libcudart.so is renamed too, and is needed by its first name all
the same). tilelang's libz3.so is needed by a library of 72 MB that was not read; the package z3-solver has it.

"""
_NATIVE = re.compile(r".+\.so(\.[\w.]+)?")
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


class Reading(NamedTuple):
    """One wheel, read twice."""

    file: str
    libraries: int
    by_range: frozenset[str]
    whole: frozenset[str]
    unread: int
    bytes: int
    requests: int

    @property
    def verdict(self) -> str:
        """Whether both say the same."""
        if self.by_range == self.whole:
            return "equal"
        missing, strange = sorted(self.whole - self.by_range), sorted(self.by_range - self.whole)
        said = "unknown" if missing and self.unread and not strange else "DIFFERS"
        return f"{said}: {' '.join((*(f'-{name}' for name in missing), *(f'+{name}' for name in strange)))}"

    def __str__(self) -> str:
        needs = " ".join(sorted(self.by_range)) or "none"
        cost = f"{readable(self.bytes)} | {self.requests}"
        return f"| {self.file} | {self.libraries} | {self.unread or ''} | {cost} | {needs} | {self.verdict} |"


def wheels(programs: Iterable[str], session: Session) -> dict[str, str]:
    """The addresses of the wheels of all locks that are for one platform, by their names."""
    found: dict[str, str] = {}
    for program in programs:
        platform = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"]
        command = [str(uv.uv()), "pip", "compile", "-q", *platform, "--format", "pylock.toml", "-"]
        done = process.run(command, env=session.environment, text="\n".join(program.split()), seconds=600)
        for package in tomli.loads(done.out).get("packages", ()) if done.ok else ():
            for wheel in package.get("wheels", ()):
                name = unquote(urlsplit(wheel["url"]).path.rpartition("/")[2])
                if "linux" in name and "x86_64" in name and _fits(name):
                    found[name] = wheel["url"]
    return found


def _fits(name: str) -> bool:
    python = name.split("-")[-3]
    return python.startswith("py") or "cp312" in name or ("abi3" in name and python.startswith("cp3"))


def read_twice(name: str, url: str, session: Session) -> Reading | None:
    """Read a wheel in parts, then whole; None where it has no native code."""
    ranges = HttpRanges(session.client.ask_part, url, hosts={urlsplit(url).netloc}, patience=session.patience)
    wheel = WheelReader(ranges)
    native = [member for member in wheel.members if _NATIVE.fullmatch(member)]
    if not native:
        return None
    needs = read_needs(wheel)
    own = {member.rpartition("/")[2] for member in wheel.members}
    whole = set[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wheel"
        with requests.get(url, stream=True, timeout=120) as answer, path.open("wb") as file:
            answer.raise_for_status()
            for piece in answer.iter_content(1 << 20):
                file.write(piece)
        with zipfile.ZipFile(path) as archive:
            for member in native:
                library = Path(archive.extract(member, folder))
                done = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=False)
                whole |= set(_NEEDED.findall(done.stdout))
                library.unlink()
    outside = {need for need in whole if not load_libraries().of_the_system.fullmatch(need)}
    outside = {need for need in outside if need not in own and not any(one.startswith(f"{need}.") for one in own)}
    read = frozenset(needs.libraries), frozenset(outside)
    return Reading(name, len(native), *read, len(needs.unread), wheel.bytes_read, wheel.requests)


def table(programs: Iterable[str], session: Session) -> Iterator[Reading]:
    """Read every wheel, the smallest name first; one that cannot be read is said on stderr."""
    for name, url in sorted(wheels(programs, session).items()):
        try:
            reading = read_twice(name, url, session)
        except (OSError, WheelError, zipfile.BadZipFile) as error:
            print(name, error, file=sys.stderr, flush=True)  # noqa: T201
            continue
        if reading:
            print(reading, flush=True)  # noqa: T201
            yield reading


def main() -> None:
    """Make the page, or show what some programs come to."""
    asked = sys.argv[1:]
    sources = read_sources(None, {**os.environ, "PIP_FIND_LINKS": ""}, Path.cwd())
    with open_session(sources, SilentReporter()) as session:
        readings = list(table(asked or PROGRAMS, session))
    cost = f"{readable(sum(one.bytes for one in readings))} in {sum(one.requests for one in readings)} requests"
    verdicts = [one.verdict.partition(":")[0] for one in readings]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("equal", "unknown", "DIFFERS"))
    summary = f"{len(readings)} wheels with {sum(one.libraries for one in readings)} libraries: {counts}; {cost}."
    print(summary)  # noqa: T201
    if not asked:
        head = "| wheel | libraries | unread | read | requests | needs | readelf |\n|---|---|---|---|---|---|---|"
        parts = [INTRODUCTION + summary + "\n", NOTE + head, *map(str, readings)]
        PAGE.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
