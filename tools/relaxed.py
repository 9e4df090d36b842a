"""Makes ``docs/evidence/relaxed.md``: what ``--relax`` makes of old requirements files on machines of today.

The files of ``tools/relaxed`` hold what repositories of papers of 2021 to 2024 typically pin. All packages come from the
default index. What was measured is kept in a file, so that a run goes on where the last one ended:
``python -m tools.relaxed RESULTS.json [MACHINE…]``; then ``python -m tools.relaxed RESULTS.json --prove`` and
``--install``, for which some gigabytes are downloaded.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import tomli
import tomli_w

from gpuinstall.catalog import load_catalog
from gpuinstall.errors import GpuInstallError
from gpuinstall.lock import relax, resolver
from gpuinstall.lock.concessions import Compromise
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest
from gpuinstall.plan.requirement import parse_requirement, requirement_names
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.requirements_file import read_requirements
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session

    Results = dict[str, dict[str, Any]]
    """What came of each file on each machine, by ``file on machine``."""

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "relaxed.md"
FILES = Path(__file__).parent / "relaxed"
CACHE = Path(tempfile.gettempdir()) / "papers-cache"
SECONDS = 400
SEED = 46
PROVEN_FILES = 10
MOST_PINS = 8
MACHINES = {
    "RTX 5090": "580.95.05",
    "T4": "550.163.01",
    "H100": "580.95.05",
    "RTX 4090": "535.183.01",
}
INSTALLED_GPU = "RTX 5090"
INSTALLED_PYTHON = "3.11"
INSTALLED_FILES = (
    "detection-yolo",
    "diffusion-transformer",
    "llm-freeze",
    "llm-multimodal",
    "splatting-gsplat",
    "video-diffusion",
)
"""Those that the one Python served on that GPU when the files were first measured."""
LOCK = "pylock.cu128.toml"
IMPORTS = """\
import importlib, importlib.metadata, json, sys, torch

assert (torch.ones(64, 64) @ torch.ones(64, 64)).sum() == 64**3
modules = importlib.metadata.packages_distributions()
results = {}
for requirement in sys.argv[1:]:
    for module in sorted(name for name, owners in modules.items() if requirement in owners and name.isidentifier()):
        try:
            importlib.import_module(module)
            results[module] = ""
        except BaseException as error:
            results[module] = f"{type(error).__name__}: {error}"
print(json.dumps(results))
"""
OUTCOMES = ("as written", "relaxed", "refused", "not done")
INTRODUCTION = f"""# Old requirements, relaxed

What `--relax` makes of thirty requirements files as repositories of papers of 2021 to 2024 have them
(`tools/relaxed`), written before the first was run. All packages come from the default index:
PyTorch's own index could not be reached, so that only the builds that the default index has count, one of each release
for Linux. Runs are made one at a time, each with {SECONDS} seconds, with one cache for all (uv keeps what it built, also if
an index does not say for how long), on two cores that were busy with other work (a load of up to 20), so that the
seconds say little. What has no row was not measured.
Made by `python -m tools.relaxed`.
"""


class TooLong(BaseException):
    """A run that took longer than it may."""


class Record(NamedTuple):
    """What was tried for one request."""

    compromises: list[Compromise]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the compromise that the block comes to."""
        search = vars(relax)["fewest_concessions"]

        def recorded(*args: Any, **options: Any) -> Any:
            outcome = search(*args, **options)
            if isinstance(outcome, Compromise):
                self.compromises.append(outcome)
            return outcome

        with mock.patch.object(relax, "fewest_concessions", recorded):
            yield


def measure(
    requirements: Sequence[str],
    gpu: str,
    *,
    python: str | None = None,
    relaxed: bool = True,
) -> dict[str, Any]:
    """Resolve requirements for a machine, and return what came of it as JSON can hold it."""
    machine = machine_in_words((gpu,), MACHINES[gpu], None, None)
    request = Request(tuple(requirements), python=python, relax=relaxed)
    record = Record([])
    started = time.monotonic()
    variables = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "UV_CACHE_DIR": str(CACHE)}
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict("os.environ", variables):
        sources = read_sources(None, os.environ, Path(folder))
        with open_session(sources, SilentReporter()) as session:
            try:
                with record.recording(), _keeping_files(session), _limited():
                    lock_request = LockRequest(machine, request, load_catalog())
                    result = _answer(resolve_locks([lock_request], session)[0])
            except GpuInstallError as error:
                result = {"refused": error.message, "why": error.why or "", "code": error.code}
            except TooLong:
                result = {"refused": f"not done after {SECONDS} s", "why": "", "code": "too-long"}
            except Exception as error:  # noqa: BLE001  a crash is a finding
                result = {"refused": f"crash: {error!r}", "why": "", "code": "crash"}
            result["runs"] = len(session.uv_runs)
    for compromise in record.compromises:
        result["obstacles"] = [sorted(obstacle.packages) for obstacle in compromise.obstacles]
        result["dropped"] = sorted(compromise.concessions.dropped)
    result["seconds"] = round(time.monotonic() - started)
    return result


def prove(name: str, gpu: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return what each pin that gave way comes to if it is put back alone, and the size of the smallest cover.

    It is put back into the request as it was met, without a date and without ``--relax``: what stays of the file, the
    torch that was chosen, and the names of all else that gave way.
    """
    refusals = {}
    for pin in result["dropped"]:
        requirements = []
        for text in read_requirements(FILES / f"{name}.txt").requirements:
            requirement = parse_requirement(text)
            if requirement.name == "torch":
                requirements.append(f"torch=={result['torch'].partition('+')[0]}")
            elif requirement.name not in result["relaxed"] or requirement.name == pin:
                requirements.append(text)
            elif requirement.name not in result["absent"]:
                requirements.append(requirement.name)
        answer = measure(requirements, gpu, python=result["python"], relaxed=False)
        refusals[pin] = answer.get("code", "")
    return {"refusals": refusals, "smallest": smallest_cover(result["obstacles"])}


def smallest_cover(obstacles: Sequence[Sequence[str]]) -> int | None:
    """Return how many pins at least have to give way by the conflicts, by trying; None if too many are named."""
    pins = sorted({pin for obstacle in obstacles for pin in obstacle})
    if len(pins) > MOST_PINS:
        return None
    for size in range(len(pins) + 1):
        for chosen in combinations(pins, size):
            if all(set(obstacle).intersection(chosen) for obstacle in obstacles):
                return size
    return None


def install(name: str, gpu: str) -> dict[str, Any]:
    """Install the lock of a file as uv does, without a GPU, and return what importing each module came to."""
    requirements = FILES / f"{name}.txt"
    machine = ["--gpu", gpu, "--driver", MACHINES[gpu]]
    variables = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "UV_CACHE_DIR": str(CACHE)}
    with tempfile.TemporaryDirectory() as folder:
        run = partial(
            subprocess.run, cwd=folder, env=variables, check=True, capture_output=True, text=True
        )
        run([sys.executable, "-m", "gpuinstall", "lock", "--relax", "-r", requirements, *machine])
        run(["uv", "venv", "-q", "--python", INSTALLED_PYTHON])
        run(["uv", "pip", "sync", "-q", LOCK])
        names = requirement_names(read_requirements(requirements).requirements)
        python = Path(folder, ".venv", "bin", "python")
        # From what a person has at hand, a module may wait for an answer.
        done = run([python, "-c", IMPORTS, *sorted(names)], stdin=subprocess.DEVNULL)
    imports: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return imports


def proven_files() -> list[str]:
    """Return the files for which it is proven, at random."""
    names = sorted(path.stem for path in FILES.glob("*.txt"))
    return sorted(random.Random(SEED).sample(names, PROVEN_FILES))  # noqa: S311


def page(results: Results) -> Iterator[str]:
    """Write the summary, and a table for each machine."""
    yield INTRODUCTION
    yield from _summary(results)
    for gpu, driver in MACHINES.items():
        rows = {key: one for key, one in results.items() if key.endswith(f" on {gpu}")}
        if not rows:
            continue
        yield f"\n## {gpu}, driver {driver}\n"
        yield "| file | torch | Python | what gave way, and why | as of | runs of uv | seconds |"
        yield "|---|---|---|---|---|---|---|"
        for key, result in sorted(rows.items()):
            yield _row(key.partition(" on ")[0], result)
    yield from _proofs(results)
    yield from _imports(results)


def main() -> None:
    """Measure what is not measured yet, or prove it, and make the page."""
    kept = Path(sys.argv[1])
    results: Results = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    for key, result in _steps(results, sys.argv[2:]):
        results[key] = result
        kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        print(key, json.dumps(result)[:300], flush=True)  # noqa: T201
        PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")
    PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")


def _steps(results: Results, words: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each result that is new."""
    match list(words):
        case ["--prove"]:
            yield from _new_proofs(results)
        case ["--install"]:
            yield from _new_imports(results)
        case machines:
            yield from _new_measures(results, machines or list(MACHINES))


def _new_measures(
    results: Results, machines: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    # Those that are proven come first.
    names = dict.fromkeys((*proven_files(), *sorted(path.stem for path in FILES.glob("*.txt"))))
    for gpu in machines:
        for name in names:
            key = f"{name} on {gpu}"
            if key not in results:
                requirements = read_requirements(FILES / f"{name}.txt").requirements
                yield key, measure(requirements, gpu)


def _new_proofs(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in proven_files():
        for gpu in MACHINES:
            key = f"{name} on {gpu}"
            result = results.get(key, {})
            is_met = "refused" not in result
            if is_met and result.get("dropped") and "proof" not in result:
                yield key, {**result, "proof": prove(name, gpu, result)}


def _new_imports(results: Results) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in INSTALLED_FILES:
        key = f"{name} on {INSTALLED_GPU}"
        if "imports" not in results[key]:
            yield key, {**results[key], "imports": install(name, INSTALLED_GPU)}


def _answer(resolution: Resolution) -> dict[str, Any]:
    versions = resolution.versions
    reasons = {}
    for reason in resolution.plan.warnings:
        if reason.code in {"relaxed", "as-of"}:
            reasons[reason.message] = reason.code
    return {
        "torch": versions.get("torch", ""),
        "python": resolution.choice.python,
        "relaxed": dict(resolution.relaxed),
        "absent": [name for name in resolution.relaxed if name not in versions],
        "reasons": [message for message, code in reasons.items() if code == "relaxed"],
        "as of": [message for message, code in reasons.items() if code == "as-of"],
        "versions": versions,
        "sources": [file.name for file in resolution.files if not file.name.endswith(".whl")],
    }


@contextmanager
def _keeping_files(session: Session) -> Iterator[None]:
    """Let uv keep what it built, also if the default index does not say for how long it may.

    An index in between may answer without the headers that the default index gives: then each run of uv would build
    every sdist again.
    """
    settings = vars(resolver)["resolver_settings"]
    keeping = {
        "url": session.default_index,
        "default": True,
        "cache-control": {"files": "max-age=31536000, immutable"},
    }

    def keeping_settings(*args: Any) -> str:
        document = tomli.loads(settings(*args))
        document["index"] = [*document["index"], keeping]
        return tomli_w.dumps(document)

    with mock.patch.object(resolver, "resolver_settings", keeping_settings):
        yield


@contextmanager
def _limited() -> Iterator[None]:
    """End the block after the seconds that it may take."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, end)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def _summary(results: Results) -> Iterator[str]:
    """Write what came of the files by machine."""
    yield "| machine | measured | as written | relaxed | refused | not done in time | pins that gave way | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    for gpu, driver in MACHINES.items():
        outcomes = Counter[str]()
        pins = 0
        seconds = []
        for key, result in results.items():
            if key.endswith(f" on {gpu}"):
                outcomes[_outcome(result)] += 1
                if "refused" not in result:
                    pins += len(result.get("dropped", ()))
                seconds.append(result["seconds"])
        measured = f"{len(seconds)} of {len(list(FILES.glob('*.txt')))}"
        median = f"{statistics.median(seconds):.0f} (median)" if seconds else ""
        counts = " | ".join(str(outcomes[name]) for name in OUTCOMES)
        yield f"| {gpu}, {driver} | {measured} | {counts} | {pins} | {median} |"


def _outcome(result: dict[str, Any]) -> str:
    if result.get("code") == "too-long":
        return "not done"
    if "refused" in result:
        return "refused"
    return "relaxed" if result["relaxed"] else "as written"


def _row(name: str, result: dict[str, Any]) -> str:
    """Return the row of a file."""
    end = f"{result['runs']} | {result['seconds']} |"
    if "refused" in result:
        why = _brief(f"{result['refused']}; {result['why']}".removesuffix("; "), 300)
        return f"| {name} | – | – | {result['code']}: {why} | – | {end}"
    moves = []
    with_torch = []
    for reason in result["reasons"]:
        move, _, why = reason.partition(": ")
        now, _, before = move.partition(" in place of ")
        if why.startswith("it goes with torch"):
            with_torch.append(before.partition("==")[0])
        elif parse_requirement(before).name != "torch":
            moves.append(f"`{before}` ({now}): {_brief(why, 110)}")
    if with_torch:
        names = ", ".join(with_torch[:4])
        more = f" and {len(with_torch) - 4} more" if len(with_torch) > 4 else ""
        moves.insert(0, f"with torch: {names}{more}")
    gave_way = "<br>".join(moves) or ("only torch" if result["relaxed"] else "nothing; as written")
    dates = [re.sub(r"^.* are as of ", "", text) for text in result["as of"]]
    versions = f"{result['torch']} | {result['python']}"
    return f"| {name} | {versions} | {gave_way} | {' '.join(dates) or '–'} | {end}"


def _brief(text: str, most: int) -> str:
    words = " ".join(text.split()).replace("|", "/")
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _proofs(results: Results) -> Iterator[str]:
    """Write what putting back each pin alone came to."""
    yield f"""
## Proofs

For {PROVEN_FILES} files at random (seed {SEED}), each pin that gave way is put back alone into the request as it was met,
with its torch and its Python, without a date and without `--relax`: a refusal proves that it had to.
The smallest number of pins that meets all
conflicts that were recorded is found by trying all sets, if no more than {MOST_PINS} pins are named in them.

| file | machine | put back alone | gave way | fewest by force |
|---|---|---|---|---|"""
    for name in proven_files():
        for gpu in MACHINES:
            result = results.get(f"{name} on {gpu}", {})
            if "proof" in result:
                refusals = [
                    f"{pin}: {code or 'resolves'}"
                    for pin, code in result["proof"]["refusals"].items()
                ]
                smallest = result["proof"]["smallest"]
                fewest = f"more than {MOST_PINS} pins" if smallest is None else smallest
                yield f"| {name} | {gpu} | {', '.join(refusals)} | {len(refusals)} | {fewest} |"
            elif result and "refused" not in result and not result.get("dropped"):
                yield f"| {name} | {gpu} | nothing gave way but torch | 0 | 0 |"


def _imports(results: Results) -> Iterator[str]:
    """Write what was installed, and what its modules came to."""
    yield f"""
## Installed and imported

Six of the files that Python {INSTALLED_PYTHON} serves on an {INSTALLED_GPU}: the lock for that card, installed with
`uv pip sync` on a machine without a GPU. torch multiplied two matrices on the CPU, and every module of what the file requests was
imported. A pin stays although its package may import what torch or triton no longer has: bitsandbytes 0.42.0 imports
`triton.ops`.

| file | torch | modules imported | failed |
|---|---|---|---|"""
    for key, result in sorted(results.items()):
        imports = result.get("imports")
        if imports is not None:
            failed = [f"{module}: {_brief(why, 160)}" for module, why in imports.items() if why]
            good = [module for module, why in imports.items() if not why]
            name = key.partition(" on ")[0]
            yield f"| {name} | {result['torch']} | {', '.join(good)} | {'<br>'.join(failed) or '–'} |"


if __name__ == "__main__":
    main()
