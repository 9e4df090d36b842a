"""Makes ``docs/evidence/unseen.md``: programs that no rule was made with, judged by a truth that no rule was asked for.

``tools/unseen`` holds the sets: a request, and for each machine what must hold of its lock. That was found without this
project's code: uv over an index of the builds that run there, wheels read with readelf and cuobjdump, METADATA, and the
makers' pages. ``python -m tools.unseen RESULTS [SET…]`` runs ``gpuinstall lock`` where the folder has no result yet.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.programs import stand_in_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "unseen.md"
SETS = Path(__file__).parent / "unseen"
PYTHON = "3.12"
TIMEOUT_S = 420
STOPPED = -1
"""The status of a run that took longer."""
SLOWEST = 10
SAME_FILES = {"nvidia-cudnn-cu12", "nvidia-cudnn-cu13"}
"""Both write ``nvidia/cudnn/lib``: beside each other the one that is unpacked last is the one that is loaded."""


class Verdict(Enum):
    """What a lock, or a refusal, turns out to be."""

    RIGHT = "right"
    SILENT = "wrong in silence"
    WARNED = "wrong, with a warning"
    OLDER = "older than need be"
    REFUSED = "refused without need"
    FALSE_CAUSE = "refused with a false cause"
    LATE = "no answer in time"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class KnownMachine:
    """A machine of the sets."""

    gpu: str
    driver: str
    glibc: str
    torch: tuple[str, ...]
    """The builds that run there, as versions with their label."""


@dataclass(frozen=True)
class Truth:
    """What must hold of a lock for one machine."""

    newest: dict[str, str] = field(default_factory=dict)
    """The newest version that runs, by package: an older one is no fault, but older than need be."""
    needs: dict[str, str] = field(default_factory=dict)
    """What the version of a package must satisfy to run, where it is in the lock."""
    cuda: str = ""
    """The major version of torch's CUDA, where a package needs it."""
    beside: dict[str, str] = field(default_factory=dict)
    """What must lie in the lock for a library to be found, or the pattern of a warning that it is missing."""
    absent: str = ""
    """A pattern of packages that do not run there."""
    says: str = ""
    """A pattern of what must be warned of."""
    impossible: str = ""
    """Why nothing runs there."""
    why: str = ""
    """A pattern of the cause that a refusal, or a warning instead, must have."""
    through: list[str] = field(default_factory=list)
    """The dependencies in which a fault shows: a warning may name them instead of what was requested."""
    unknown: str = ""
    """Why it could not be found out."""


@dataclass(frozen=True)
class Outcome:
    """What ``gpuinstall lock`` came to."""

    status: int
    """The exit status, or ``STOPPED``."""
    versions: dict[str, str]
    lines: list[str]
    """What was printed, without the lines that are blank."""
    seconds: float


class Case(NamedTuple):
    """One request on one machine."""

    request: str
    machine: KnownMachine
    truth: Truth

    @property
    def name(self) -> str:
        """The name of the file that holds its result."""
        return re.sub(r"[^\w.]+", "_", f"{self.request}@{self.machine.gpu}")

    @property
    def packages(self) -> list[str]:
        """The packages that are requested."""
        return [canonicalize_name(Requirement(text).name) for text in self.request.split()]


class Judgement(NamedTuple):
    """A verdict, and why."""

    verdict: Verdict
    reason: str = ""


def judge(case: Case, outcome: Outcome) -> Judgement:
    """Compare what came of a case with the truth."""
    truth = case.truth
    if truth.unknown:
        return Judgement(Verdict.UNKNOWN, truth.unknown)
    if outcome.status == STOPPED:
        return Judgement(Verdict.LATE, f"stopped after {TIMEOUT_S} s")
    if not outcome.versions:
        return _judge_refusal(truth, outcome)
    return _judge_lock(case, outcome)


def _judge_lock(case: Case, outcome: Outcome) -> Judgement:
    truth = case.truth
    warnings = "\n".join(line for line in outcome.lines if line.startswith("warning:"))
    if truth.impossible:
        is_true = re.search(truth.why, warnings)
        return Judgement(
            Verdict.RIGHT if is_true else Verdict.SILENT, f"locked: {truth.impossible}"
        )
    faults = [*faults_of(case, outcome.versions), *_missing(truth, outcome.versions, warnings)]
    if faults:
        named = case.packages + truth.through + [fault.partition(" ")[0] for fault in faults]
        is_warned = any(name in warnings for name in named)
        return Judgement(Verdict.WARNED if is_warned else Verdict.SILENT, "; ".join(faults))
    if truth.says and not re.search(truth.says, warnings):
        return Judgement(Verdict.SILENT, f"nothing is said of {truth.says}")
    older = [
        f"{name} {version}, and not {truth.newest[name]}"
        for name, version in outcome.versions.items()
        if name in truth.newest and _public(version) < Version(truth.newest[name])
    ]
    return Judgement(Verdict.OLDER if older else Verdict.RIGHT, "; ".join(older))


def _judge_refusal(truth: Truth, outcome: Outcome) -> Judgement:
    said = " / ".join(line for line in outcome.lines if line.startswith(("error:", "why ")))
    if not truth.impossible:
        return Judgement(Verdict.REFUSED, said)
    # 3 is the status of a request that nothing meets.
    is_true = outcome.status == 3 and re.search(truth.why, said)
    return Judgement(Verdict.RIGHT if is_true else Verdict.FALSE_CAUSE, said)


def faults_of(case: Case, versions: Mapping[str, str]) -> Iterator[str]:
    """Yield what of a lock does not run on its machine, each beginning with the package."""
    truth = case.truth
    torch = versions.get("torch")
    if torch and torch not in case.machine.torch:
        yield f"torch {torch} does not run there"
    if torch and truth.cuda and f"+cu{truth.cuda}" not in torch:
        yield f"torch {torch} is not for CUDA {truth.cuda}"
    for name, allowed in truth.needs.items():
        version = versions.get(name)
        if version and not SpecifierSet(allowed, prereleases=True).contains(version):
            yield f"{name} {version} is not {allowed}"
    for name in case.packages:
        version = versions.get(name)
        if version and Version(version).is_prerelease:
            yield f"{name} {version} is a pre-release"
    for name in versions:
        if truth.absent and re.fullmatch(truth.absent, name):
            yield f"{name} does not run there"
    if versions.keys() >= SAME_FILES:
        yield " and ".join(sorted(SAME_FILES)) + " write the same files"


def _missing(truth: Truth, versions: Mapping[str, str], warnings: str) -> Iterator[str]:
    """Yield what must lie beside a package and does not, and of what no warning speaks."""
    for name, pattern in truth.beside.items():
        if name not in versions and not re.search(pattern, warnings):
            yield f"{name} is missing"


def _public(version: str) -> Version:
    return Version(Version(version).public)


def run(case: Case, results: Path, lock: Callable[[Case], Outcome]) -> Outcome:
    """Return the result of a case, from its file if it has one."""
    file = results / f"{case.name}.json"
    if not file.exists():
        outcome = lock(case)
        file.write_text(json.dumps(outcome.__dict__, indent=1), encoding="utf-8")
    return Outcome(**json.loads(file.read_text(encoding="utf-8")))


def lock(
    case: Case,
    torch_index: str,
    *,
    module: str = "gpuinstall",
    more_options: Sequence[str] = (),
    more_variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Return what ``lock`` comes to, run in a folder of its own.

    Args:
        case: The request and the machine.
        torch_index: The stand-in of torch's index.
        module: What Python runs: another one may watch the command line.
        more_options: Those of this case alone.
        more_variables: Those of the environment that differ.
    """
    machine = case.machine
    options = ["--gpu", machine.gpu, "--driver", machine.driver, "--glibc", machine.glibc]
    options += ["--python", PYTHON, "--torch-index", torch_index, "--no-progress"]
    options += more_options
    command = [sys.executable, "-m", module, "lock", *case.request.split(), *options]
    variables = {**os.environ, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    variables |= more_variables or {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=variables,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(STOPPED, {}, [], TIMEOUT_S)
        printed = (done.stdout + done.stderr).splitlines()
        return Outcome(
            status=done.returncode,
            versions=_locked_versions(Path(folder)),
            lines=[line.strip() for line in printed if line.strip()],
            seconds=round(time.monotonic() - started, 1),
        )


def _locked_versions(folder: Path) -> dict[str, str]:
    for lock in folder.glob("pylock.*.toml"):
        document = tomli.loads(lock.read_text(encoding="utf-8"))
        return {package["name"]: package.get("version", "0") for package in document["packages"]}
    return {}


def read_set(name: str) -> list[Case]:
    """Return the cases of a set."""
    machines = [
        KnownMachine(row["gpu"], row["driver"], row["glibc"], tuple(row["torch"]))
        for row in _read("machines")["machine"]
    ]
    return [
        Case(program["request"], machine, Truth(**program["truth"][machine.gpu]))
        for machine in machines
        for program in _read(name)["program"]
    ]


def _read(name: str) -> dict[str, Any]:
    return tomli.loads((SETS / f"{name}.toml").read_text(encoding="utf-8"))


def page_of(name: str, cases: Sequence[Case], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of the page for one set."""
    judgements = [judge(case, outcome) for case, outcome in zip(cases, outcomes, strict=True)]
    counts = Counter(judgement.verdict for judgement in judgements)
    judged = len(cases) - counts[Verdict.UNKNOWN]
    seconds = sorted(outcome.seconds for outcome in outcomes)
    yield f"\n## {name}\n"
    yield f"{counts[Verdict.RIGHT]} of {judged} are right; {len(cases) - judged} could not be judged."
    yield f"Median {statistics.median(seconds):.0f} s; the slowest: {seconds[-SLOWEST:]}.\n"
    yield "| verdict | request | machine | reason |\n|---|---|---|---|"
    for verdict in Verdict:
        for case, judgement in zip(cases, judgements, strict=True):
            if judgement.verdict is verdict is not Verdict.RIGHT:
                reason = judgement.reason.replace("|", "/")
                yield f"| {verdict.value} | `{case.request}` | {case.machine.gpu} | {reason} |"


def main() -> None:
    """Run what has no result yet, and write the page."""
    results = Path(sys.argv[1])
    names = sys.argv[2:] or ["open", "sealed"]
    results.mkdir(parents=True, exist_ok=True)
    # What is above the first set is written by hand: what was sealed when, and what was run.
    lines = [PAGE.read_text(encoding="utf-8").partition("\n## ")[0] + "\n"]
    with stand_in_session() as session, ThreadPoolExecutor(4) as pool:
        for name in names:
            cases = read_set(name)
            lock_there = partial(lock, torch_index=session.sources.torch_index)
            outcomes = list(pool.map(partial(run, results=results, lock=lock_there), cases))
            lines += page_of(name, cases, outcomes)
    PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
