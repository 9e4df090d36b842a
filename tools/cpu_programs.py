"""Makes ``docs/evidence/cpu.md``: programs of the default index, really installed for the CPU, locked, and run.

They are installed together by the tool, and then from its lock by plain uv and by plain pip, each time into an
environment of its own. Extensions are compiled from their sdists, twice, and proven by ``verify``. torch comes from the
wheels in PIP_FIND_LINKS. Takes minutes: ``python -m tools.cpu_programs``, with ``programs`` or ``extensions`` for one
half of the page.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall import process, uv
from gpuinstall.lock.lock import read_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "cpu.md"
PYTHON = "3.11"
TORCH = "torch==2.13.0"
WAYS = {"installed by us": ".venv", "`uv pip sync`": "by uv", "`pip install -r`": "by pip"}
PROGRAMS = {
    "transformers": "from transformers import BertConfig, BertModel; BertModel(BertConfig(num_hidden_layers=1))",
    "accelerate": "import torch; from accelerate import Accelerator; Accelerator().prepare(torch.nn.Linear(2, 2))",
    "sentence-transformers": "from sentence_transformers import SentenceTransformer",
    "lightning": "from lightning import Trainer; Trainer(logger=False)",
    "peft": "from peft import LoraConfig, get_peft_model",
    "diffusers": "from diffusers import DDPMScheduler; DDPMScheduler().set_timesteps(10)",
}
"""What people ask for, and what is run of each in a fresh process; none needs torchvision or torchaudio."""
INTRODUCTION = f"""# Programs on the CPU

```sh
gpuinstall install {" ".join(PROGRAMS)} {TORCH} --backend cpu --python {PYTHON}
```

from the default index, then each program run in a fresh process, and all installed again from `pylock.cpu.toml` alone
by plain uv and by plain pip. torch's CPU build came from a folder of wheels; torchvision and torchaudio had none there,
so programs that need them are not in the table. Made by `python -m tools.cpu_programs`.
"""
EXTENSIONS = {"torch-scatter": "torch-scatter-sum", "deepspeed": "deepspeed-adam"}
"""What has an sdist alone on the default index and works on the CPU, and the check that proves it."""
HEADING = "\n## Extensions from source\n"
COMPILING = f"""{HEADING}
```sh
gpuinstall install NAME {TORCH} --backend cpu --python {PYTHON} --build-extensions
```

with `MAX_JOBS=2`; then the same in another folder with an empty uv cache, where a compiled wheel is taken.
torch-scatter compiles one file after the other while it is built, deepspeed its Adam at the first use, in `verify`.
Seconds on {os.cpu_count()} cores, shared with other work.
"""


class Proof(NamedTuple):
    """What a program said when it was run, by the way that its environment was made."""

    version: str
    said: dict[str, str]

    @property
    def runs(self) -> bool:
        """Say whether it runs however it was installed."""
        return set(self.said.values()) == {"runs"}


def prove(
    folder: Path, tool: tuple[str, ...] = (sys.executable, "-m", "gpuinstall")
) -> dict[str, Proof]:
    """Install the programs into ``folder`` in three ways; raise RuntimeError where one of them fails."""
    caches = {
        "XDG_CACHE_HOME": str(folder / "caches"),
        "UV_CACHE_DIR": str(folder / "caches" / "uv"),
    }

    def done(*words: str | Path) -> None:
        finished = process.run(words, env={**os.environ, **caches}, cwd=folder, seconds=1800)
        if not finished.ok:
            raise RuntimeError(finished.err)

    done(*tool, "install", *PROGRAMS, TORCH, "--backend", "cpu", "--python", PYTHON)
    lock = folder / "pylock.cpu.toml"
    pythons = {way: folder / name / "bin" / "python" for way, name in WAYS.items()}
    ours, by_uv, by_pip = pythons.values()
    for python in (by_uv, by_pip):
        done(ours.resolve(), "-m", "venv", "--without-pip", python.parent.parent)
    done(uv.uv(), "pip", "sync", "-q", "--python", by_uv, lock)
    done(
        sys.executable, "-m", "pip", "--python", by_pip, "install", "-q", "--no-compile", "-r", lock
    )
    versions = read_lock(lock).versions
    return {
        program: Proof(
            versions[program], {way: _said(python, code, folder) for way, python in pythons.items()}
        )
        for program, code in PROGRAMS.items()
    }


class Compiled(NamedTuple):
    """An extension built from source: seconds of its first and second installation, and what became of its check."""

    version: str
    first: float
    second: float
    kept: bool
    status: str
    seconds: float


def compile_extension(
    name: str, folder: Path, tool: Sequence[str] = (sys.executable, "-m", "gpuinstall")
) -> Compiled:
    """Install an extension into two environments; raise RuntimeError where that fails."""
    words = (
        "install",
        name,
        TORCH,
        "--backend",
        "cpu",
        "--python",
        PYTHON,
        "--build-extensions",
        "--json",
    )
    documents, kept = [], False
    for number in ("1", "2"):
        place = folder / f"{name}-{number}"
        place.mkdir()
        own = {
            "UV_CACHE_DIR": str(place / "uv"),
            "XDG_CACHE_HOME": str(folder / "caches"),
            "MAX_JOBS": "2",
        }
        done = process.run([*tool, *words], env={**os.environ, **own}, cwd=place, seconds=3600)
        if not done.ok:
            raise RuntimeError(done.out + done.err)
        documents.append(json.loads(done.out)["data"])
        kept = "was compiled before" in done.err
    first, second = documents
    checks = {
        check["name"]: check for device in first["verdict"]["devices"] for check in device["checks"]
    }
    check = checks[EXTENSIONS[name]]
    own_check = (
        check["message"],
        first["seconds"],
        second["seconds"],
        kept,
        check["status"],
        check["seconds"],
    )
    return Compiled(*own_check)


def main() -> None:
    """Make the page, or one half of it."""
    half = sys.argv[1] if len(sys.argv) > 1 else ""
    programs, _, extensions = PAGE.read_text(encoding="utf-8").partition(HEADING)
    if half != "extensions":
        programs = _programs()
    PAGE.write_text(
        programs + (_extensions() if half != "programs" else HEADING + extensions), encoding="utf-8"
    )


def _programs() -> str:
    with tempfile.TemporaryDirectory() as folder:
        found = prove(Path(folder))
        packages = len(read_lock(Path(folder) / "pylock.cpu.toml").pylock.packages)
    rows = [
        f"| {program} {one.version} | {' | '.join(one.said.values())} |"
        for program, one in found.items()
    ]
    table = [
        f"| {packages} packages locked | {' | '.join(WAYS)} |",
        "|---|" + "---|" * len(WAYS),
        *rows,
    ]
    return INTRODUCTION + "\n" + "\n".join(table) + "\n"


def _extensions() -> str:
    table = [
        "| from its sdist | first environment | check | second environment |",
        "|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, check in EXTENSIONS.items():
            one = compile_extension(name, Path(folder))
            second = f"{one.second:.0f} s" + (", its wheel was kept" if one.kept else "")
            proof = f"{check}: {one.status}, {one.seconds:.0f} s"
            table.append(f"| {name} {one.version} | {one.first:.0f} s | {proof} | {second} |")
    return COMPILING + "\n" + "\n".join(table) + "\n"


def _said(python: Path, code: str, folder: Path) -> str:
    done = process.run([python, "-c", code], cwd=folder, seconds=600)
    return "runs" if done.ok else f"fails: {done.err.strip().splitlines()[-1]}"


if __name__ == "__main__":
    main()
