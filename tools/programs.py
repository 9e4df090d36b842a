"""Makes ``docs/evidence/programs.md``: what people ask for, what each machine gets, and uv's own answer beside it.

The torch index is the stand-in with every build of the catalogue and the true requirements of its releases; everything
else comes from the default index. Takes some minutes: ``python -m tools.programs [PROGRAMS…]``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.lab.index import StandInIndex
from tests.lab.true_index import elsewhere, lead, true_index

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.errors import GpuInstallError
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.programs import programs_first
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.resolver import ResolvedVersions, parse_versions
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.session import Session

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "programs.md"
PYTHON = "3.12"
MACHINES = (
    ("H100", "580.95.05"),
    ("V100", "535.183.01"),
    ("RTX 3090", "470.256.02"),
    ("RTX 5090", "570.86.15"),
)
PROGRAMS = (
    "vllm",
    "sglang",
    "unsloth",
    "whisperx",
    "lmdeploy",
    "invokeai",
    "xformers",
    "deepspeed",
    "pyannote.audio",
    "transformers accelerate bitsandbytes",
    "nemo_toolkit",
    "torch vllm",
    "vllm torch",
)
INTRODUCTION = f"""# Programs

What the programs that people ask for come to, for Python {PYTHON} on Linux x86_64 (glibc 2.28). `torch` is the build
that is chosen with them. uv's own answer is `uv pip compile` of the same words with the default index's torch: it looks
at no GPU. torch's index is a stand-in: every build of the catalogue with the requirements of its release, and beside
each the default index's own torchao, torchcodec, torchdata, torchtext and xformers. All else is the default index. Made by
`python -m tools.programs`; the sentences are the plan's own. Forty programs that no rule was made with are judged in
[unseen.md](unseen.md).
"""


class Answer(NamedTuple):
    """What came of one request."""

    said: str
    torch: str
    remarks: tuple[str, ...] = ()


def by_us(words: tuple[str, ...], gpu: str, driver: str, session: Session) -> Answer:
    """Choose and resolve for a machine."""
    machine = machine_in_words((gpu,), driver, None, None)
    request = LockRequest(machine, Request(words, python=PYTHON), load_catalog())
    try:
        found = resolve_locks([request], session)[0]
    except GpuInstallError as error:
        return Answer(f"refused: {error.message}", "", (error.why or "",))
    torch = found.versions["torch"]
    return Answer(_said(words, found.versions), torch, found.remarks)


def by_uv(words: tuple[str, ...], session: Session) -> Answer:
    """Ask uv alone."""
    platform = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"]
    command = [str(uv.uv()), "pip", "compile", "-q", *platform, "--annotation-style", "line", "-"]
    done = process.run(command, env=session.environment, text="\n".join(words))
    found: ResolvedVersions = parse_versions(done.out)
    versions = {name: version for name, (version, _) in found.items()}
    said = _said(words, versions) if done.ok else "refused"
    return Answer(said, versions.get("torch", ""))


def table(programs: Iterable[str], session: Session) -> Iterator[str]:
    """Write the rows, and what is remarkable below each."""
    for program in programs:
        words = tuple(program.split())
        beside = by_uv(words, session)
        yield f"\n## {program}\n\n| machine | versions | torch |\n|---|---|---|"
        yield f"| uv alone | {beside.said} | {beside.torch} |"
        answers = [
            (f"{gpu}, {driver.split('.')[0]}", by_us(words, gpu, driver, session))
            for gpu, driver in MACHINES
        ]
        for name, answer in answers:
            yield f"| {name} | {answer.said} | {answer.torch} |"
        remarks = [f"- {name}: {remark}" for name, answer in answers for remark in answer.remarks]
        yield "\n" + "\n".join(remarks) if remarks else ""


@contextmanager
def stand_in_session() -> Iterator[Session]:
    """Open a session beside a stand-in of torch's index with every build of the catalogue, and the default index."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_session(read_sources(None, {}, folder), SilentReporter()) as session:
            true_index(folder, load_catalog(), session, PYTHON)
            pages = elsewhere(session)
        with StandInIndex(folder) as index:
            lead(index, pages)
            variables = {**os.environ, "PIP_FIND_LINKS": ""}
            sources = read_sources(index.torch_index, variables, folder)
            with open_session(sources, SilentReporter()) as session:
                yield session


def main() -> None:
    """Make the page, or show the rows of some programs."""
    programs = sys.argv[1:]
    lines = []
    with stand_in_session() as session:
        for line in table(programs or PROGRAMS, session):
            print(line, flush=True)  # noqa: T201
            lines.append(line)
    if not programs:
        PAGE.write_text(INTRODUCTION + "\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _said(words: tuple[str, ...], versions: dict[str, str]) -> str:
    names = [parse_requirement(text).name for text in programs_first(words, load_catalog().family)]
    return ", ".join(
        f"{name} {versions[name]}" for name in names if name in versions and name != "torch"
    )


if __name__ == "__main__":
    main()
