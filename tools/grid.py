"""What is chosen and locked over a grid of machines and requests, a line each: ``python -m tools.grid``.

A line has the choice, the codes of its reasons and warnings, and a digest of what was rejected; words may change.
``make same`` compares with tools/baseline/grid.txt. The catalogue is the one that stands still,
the sources are a stand-in on loopback; ports are left out of what is printed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.frozen import frozen_catalog
from tests.lab.index import StandInIndex
from tests.lab.releases import catalog_index
from tests.lab.wheels import make_sdist, make_wheel
from tests.lab.workshop import Workshop

from gpuinstall.api import choose
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.request import Request
from gpuinstall.words import machine_in_words

if TYPE_CHECKING:
    from collections.abc import Iterator

CARDS = (
    "Tesla K80",
    "GTX 980",
    "GTX 1080",
    "V100",
    "T4",
    "RTX 3090",
    "RTX 4090",
    "H100",
    "RTX 5090",
    "B200",
)
DRIVERS = (
    "418.40.04",
    "470.256.02",
    "525.60.13",
    "535.183.01",
    "550.54.14",
    "570.86.15",
    "580.95.05",
    "610.43.02",
)
REQUESTS = (
    ("torch",),
    ("torch", "torchvision", "torchaudio"),
    ("torch==2.10.0",),
    ("torch<2.8", "torchvision"),
    ("vllm", "torch"),
    ("torchaudio>2.9",),
)
LIVE = (
    ("V100", "535.183.01"),
    ("RTX 4090", "535.183.01"),
    ("H100", "610.43.02"),
    ("RTX 5090", "570.86.15"),
    (),
)
PROGRAMS = (
    ("torch",),
    ("torchvision",),
    ("painter",),
    ("painter", "singer"),
    ("singer", "painter"),
    ("torch==2.10.0", "painter"),
    ("painter<2", "torchvision"),
    ("sculptor",),
    ("writer", "painter>=2"),
)


def main() -> None:
    """Print every answer."""
    for line in (*plans(), *live_answers()):
        sys.stdout.write(f"{line}\n")


def plans() -> Iterator[str]:
    """What the rules choose of the catalogue alone."""
    for card, driver, words, backend in product(
        CARDS, DRIVERS, REQUESTS, (None, "cu126", "cpu")
    ):
        where = f"plan {card} {driver} {' '.join(words)} {backend or ''}"
        try:
            plan = choose(
                machine_in_words((card,), driver, None, None),
                Request(words, backend=backend),
                frozen_catalog(),
            )
            yield f"{where}: {_essence(plan.to_dict())}"
        except GpuInstallError as error:
            yield f"{where}: {error.code}"


def live_answers() -> Iterator[str]:
    """What plan --live and lock come to, with a few programs on the default index."""
    with tempfile.TemporaryDirectory() as folder:
        catalog_index(Path(folder))
        _supply(Path(folder) / "simple")
        with StandInIndex(Path(folder)) as index:
            for number, (machine, words) in enumerate(product(LIVE, PROGRAMS)):
                workshop = _workshop(Path(folder) / f"run-{number}", index)
                if machine:
                    gpu, driver = machine
                    options = ("--gpu", gpu, "--driver", driver)
                    yield _answer(workshop, "plan", "--live", *words, *options)
                else:
                    options = ("--target", "cpu", "--target", "cu126")
                yield _answer(workshop, "lock", *words, *options)
                yield _answer(workshop, "lock", *words, "writer", *options)


def _workshop(folder: Path, index: StandInIndex) -> Workshop:
    (folder / "project").mkdir(parents=True)
    return Workshop(folder / "project", folder / "caches", index.environment())


def _answer(workshop: Workshop, *words: str) -> str:
    """The document of a command, and the locks that it left."""
    done = workshop.run(*words, "--python", "3.12", "--json")
    document = json.loads(done.out)
    data = document["data"] or {}
    told = (
        _essence(data)
        if "rejected" in data
        else " ".join(error["code"] for error in document["errors"])
    )
    locks = [
        f"{path.name} {_digest(path.read_text('utf-8'))}"
        for path in sorted(workshop.folder.glob("pylock*"))
    ]
    warnings = sum(line.startswith("warning") for line in done.err.splitlines())
    return (
        f"{' '.join(words)}: {done.status} {told} {' '.join(locks)} {warnings} warnings"
    )


def _essence(plan: dict[str, Any]) -> str:
    build = plan["build"] or {}
    words = [plan["status"]]
    if build:
        words += [build["torch"], build["backend"], build["python"]]
    words += [reason["code"] for reason in (*plan["reasons"], *plan["warnings"])]
    rejected = [(row["torch"], row["backend"], row["code"]) for row in plan["rejected"]]
    details = [plan["gpus"], build.get("index"), build.get("requirements"), rejected]
    words.append(_digest(json.dumps(details)))
    return " ".join(map(str, words))


def _digest(text: str) -> str:
    """A digest without what says nothing of the choice: ports, the bytes of the stand-ins, and a lock's digest of itself."""
    kept = re.sub(r"contents-digest[^\n]*|sha256 = \S+", "", _portless(text))
    return hashlib.sha256(kept.encode()).hexdigest()[:12]


def _portless(text: str) -> str:
    return re.sub(r"127\.0\.0\.1:\d+", "host", text)


def _supply(simple: Path) -> None:
    make_wheel(simple, "painter", "1.0", requires=["torch"])
    make_wheel(simple, "painter", "2.0", requires=["torch==2.13.0"])
    make_wheel(simple, "singer", "1.0", requires=["torch"])
    make_wheel(simple, "singer", "2.0", requires=["torch==2.10.0", "torchaudio"])
    make_wheel(simple, "sculptor", "1.0", requires=["torch>=2.3"])
    make_sdist(simple, "sculptor", "2.0", requires=["torch>=2.10"])
    make_wheel(simple, "writer", "1.0")
    make_wheel(simple, "writer", "3.0", requires_python=">=3.12")


if __name__ == "__main__":
    main()
