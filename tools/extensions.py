"""Makes ``docs/evidence/extensions.md``: which file of an extension each machine gets, and what wheels say by range.

``python -m tools.extensions [machines] [wheels]`` makes one part or both. Astral's index is the stand-in of
``tests/lab/astral.py``, with the lists of its documents; everything else is the default index. Takes some minutes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from tests.integration.test_needs_by_range import WHEELS, spoken
from tests.lab.astral import PROJECTS, astral_index

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.listing import default_wheels
from gpuinstall.errors import GpuInstallError
from gpuinstall.lock.prebuilt import MIRROR, choose_prebuilt, extension_row
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.resolver import parse_versions
from gpuinstall.lock.source_builds import known_builds
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.reporter import SilentReporter
from gpuinstall.request import Request
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources
from gpuinstall.wheels.http_ranges import HttpRanges
from gpuinstall.wheels.needs import read_needs
from gpuinstall.wheels.torch_abi import OF_DEVICE, load_exports
from gpuinstall.wheels.wheel_reader import WheelReader
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.session import Session

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "extensions.md"
PYTHON = "3.12"
MACHINES = (
    ("GTX 1080", "580.95.05"),
    ("V100", "580.95.05"),
    ("T4", "580.95.05"),
    ("RTX 3090", "535.183.01"),
    ("RTX 4090", "550.144.03"),
    ("RTX 5090", "570.86.15"),
    ("H100", "580.95.05"),
)
EXTENSIONS = (
    "flash-attn",
    "flash-attn-3",
    "sageattention",
    "mamba-ssm",
    "causal-conv1d",
    "deepspeed",
    "transformer-engine-torch",
    "torch-scatter",
    "pyg-lib",
    "pytorch3d",
    "xformers",
    "bitsandbytes",
)
INTRODUCTION = (
    "# Extensions\n\nPrebuilt wheels of GPU extensions, chosen and read. Made by `python -m tools.extensions`.\n"
)
ON_MACHINES = f"""
## Twelve extensions on seven machines

Python {PYTHON}, Linux x86_64, glibc 2.35. Each cell is the torch and the file's version and source, or the refusal with
the reason of the file that came closest. Astral's index is a stand-in with the lists of its documents and small wheels
compiled for the test; the default index is the real one, and PyG's pages could not be reached. uv's column is
`uv pip compile` of the same word and `torch` on the default index, wheels alone (`--no-build`), pip's
`pip install --dry-run --only-binary :all:`; neither looks at a GPU. Where uv's column says "source" and pip's "no
wheel", each would run the package's own build.

"""
BY_RANGE = """
## Wheels of the default index, read by range

What the code needs, beside what was measured of whole libraries or pinned in METADATA. torch is `≥ 2.13` (the stable
interface), `2.8 2.9` (the minors that have every symbol), `-` (none) or `?` (the names are not in the beginning of a
library that is too large to read).

"""
STEPS = """
## What torch's exports lost and gained

Names in the shipped table, of the builds that it was made of. Names of the device's library count where it was read of
both.

"""


def machines(session: Session) -> Iterator[str]:
    """Write a row for each extension."""
    yield (
        "| extension | uv | pip | "
        + " | ".join(f"{gpu}, {driver.partition('.')[0]}" for gpu, driver in MACHINES)
        + " |"
    )
    yield "|---" * (len(MACHINES) + 3) + "|"
    for name in EXTENSIONS:
        cells = [chosen(name, gpu, driver, session) for gpu, driver in MACHINES]
        yield f"| {name} | {by_uv(name, session)} | {by_pip(name)} | {' | '.join(cells)} |"


def chosen(name: str, gpu: str, driver: str, session: Session) -> str:
    """Choose for one machine."""
    machine = machine_in_words((gpu,), driver, None, None, "2.35")
    request = LockRequest(machine, Request(("torch", name), python=PYTHON), load_catalog())
    try:
        choice = choose_prebuilt(extension_row(name, session), request, session, parse_requirement(name))
    except GpuInstallError as error:
        return f"refused: {error.message}"
    if fit := choice.fit:
        return f"torch {fit.build.name}: {fit.file.wheel.version}, {fit.file.source.id}"
    if choice.refusal:
        return f"refused: {choice.refusal.message}"
    if (known := known_builds().get(name)) and not known.compiles:
        return f"torch {request.choice.build.name}: its sdist, which compiles nothing"
    closest = next(iter(choice.closest), None)
    return (
        f"refused: {closest.file.wheel.version} {closest.reason.message}" if closest else "refused: no file is listed"
    )


def by_uv(name: str, session: Session) -> str:
    """Ask uv alone, for wheels."""
    platform = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_35"]
    words = [str(uv.uv()), "pip", "compile", "-q", "--no-build", *platform, "--annotation-style", "line", "-"]
    done = process.run(words, env=session.environment, text=f"{name}\ntorch\n")
    versions = {key: version for key, (version, _) in parse_versions(done.out).items()}
    if done.ok:
        return f"torch {versions['torch']}: {versions[name]}"
    return "not found" if "was not found in the package registry" in done.err else "source"


def by_pip(name: str) -> str:
    """Ask pip alone, for wheels; raise RuntimeError where it fails for anything but that there is none."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(35, 4, -1)]
    target = ["--python-version", PYTHON, *platforms, "--platform=manylinux2014_x86_64", "--target", "unused"]
    words = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--report", "-", *target, name, "torch"]
    done = process.run([*words, "--only-binary", ":all:"], seconds=900)
    if f"No matching distribution found for {name}" in done.err:
        return "no wheel"
    if not done.ok:
        raise RuntimeError(done.err)
    rows: list[dict[str, dict[str, str]]] = json.loads(done.out)["install"]
    versions = {str(canonicalize_name(row["metadata"]["name"])): row["metadata"]["version"] for row in rows}
    return f"torch {versions['torch']}: {versions[name]}"


def wheels(session: Session) -> Iterator[str]:
    """Write a row for each wheel, wrong ones marked."""
    yield "| wheel | of | read | requests | seconds | torch | CUDA | glibc | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    sources, wrong = replace(session.sources, default_index=session.default_index), 0
    for measured in WHEELS:
        listed = default_wheels(sources, session.client, measured.package)
        system, _, processor = measured.platform.partition("_")
        fitting = (one for one in listed if str(one.version) == measured.version)
        wheel = next(one for one in fitting if system in one.filename and processor in one.filename)
        started = time.monotonic()
        opened = WheelReader(HttpRanges(session.client.ask_part, wheel.url, patience=session.client.patience))
        needs = read_needs(opened)
        seconds = time.monotonic() - started
        answer = (spoken(needs.torch), needs.cuda, needs.glibc)
        right = answer == (measured.torch, measured.cuda, measured.glibc)
        wrong += not right
        cost = f"{opened.size / 1e6:.0f} MB | {opened.bytes_read / 1e6:.2f} MB | {opened.requests} | {seconds:.1f}"
        name = f"{measured.package} {measured.version}{' ' + processor if processor != 'x86_64' else ''}"
        said = f"{answer[0].replace('>=', '≥ ')} | {needs.cuda or '-'} | {needs.glibc}"
        yield f"| {name} | {cost} | {said} | {'right' if right else 'WRONG'} |"
    yield f"\n{len(WHEELS) - wrong} of {len(WHEELS)} are right."


def steps() -> Iterator[str]:
    """Write what each minor release removed and added."""
    table = load_exports()
    yield "| step | removed | added |"
    yield "|---|---|---|"
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for mask in table.masks.values():
        for number in range(len(table.minors) - 1):
            of_device = mask & OF_DEVICE and not {*table.minors[number : number + 2]} <= table.whole
            before, after = mask >> number & 1, mask >> number + 1 & 1
            if before != after and not of_device:
                counts[number][after] += 1
    for number, (removed, added) in sorted(counts.items()):
        yield f"| {table.minors[number]} → {table.minors[number + 1]} | {removed} | {added} |"


def main() -> None:
    """Make the page, or the parts of it that are named."""
    with tempfile.TemporaryDirectory() as folder:
        index = astral_index(Path(folder), [name for name in EXTENSIONS if name in PROJECTS])
        host = index.host()
        os.environ |= {MIRROR: f"{host.url}/simple", "GPUINSTALL_CACHE": str(Path(folder) / "cache")}
        with open_session(read_sources(None, os.environ, Path(folder)), SilentReporter()) as session:
            parts = {
                "machines": lambda: [ON_MACHINES, *machines(session)],
                "wheels": lambda: [BY_RANGE, *wheels(session), STEPS, *steps()],
            }
            asked = sys.argv[1:] or list(parts)
            lines = [line for part in asked for line in parts[part]()]
        host.close()
    text = re.sub(r"\n{3,}", "\n\n", INTRODUCTION + "\n".join(lines)) + "\n"
    sys.stdout.write(text)
    if asked == list(parts):
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
