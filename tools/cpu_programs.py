"""Makes ``docs/evidence/cpu.md``: programs of the default index, really installed for the CPU, locked, and run.

They are installed together by the tool, and then from its lock by plain uv and by plain pip, each time into an
environment of its own. torch comes from the wheels in PIP_FIND_LINKS. Takes minutes: ``python -m tools.cpu_programs``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from gpuinstall import process, uv
from gpuinstall.lock.lock import read_lock

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


class Proof(NamedTuple):
    """What a program said when it was run, by the way that its environment was made."""

    version: str
    said: dict[str, str]

    @property
    def runs(self) -> bool:
        """Say whether it runs however it was installed."""
        return set(self.said.values()) == {"runs"}


def prove(folder: Path, tool: tuple[str, ...] = (sys.executable, "-m", "gpuinstall")) -> dict[str, Proof]:
    """Install the programs into ``folder`` in three ways; raise RuntimeError where one of them fails."""
    caches = {"XDG_CACHE_HOME": str(folder / "caches"), "UV_CACHE_DIR": str(folder / "caches" / "uv")}

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
    done(sys.executable, "-m", "pip", "--python", by_pip, "install", "-q", "--no-compile", "-r", lock)
    versions = read_lock(lock).versions
    return {
        program: Proof(versions[program], {way: _said(python, code, folder) for way, python in pythons.items()})
        for program, code in PROGRAMS.items()
    }


def main() -> None:
    """Make the page."""
    with tempfile.TemporaryDirectory() as folder:
        found = prove(Path(folder))
        packages = len(read_lock(Path(folder) / "pylock.cpu.toml").pylock.packages)
    rows = [f"| {program} {one.version} | {' | '.join(one.said.values())} |" for program, one in found.items()]
    table = [f"| {packages} packages locked | {' | '.join(WAYS)} |", "|---|" + "---|" * len(WAYS), *rows]
    PAGE.write_text(INTRODUCTION + "\n" + "\n".join(table) + "\n", encoding="utf-8")


def _said(python: Path, code: str, folder: Path) -> str:
    done = process.run([python, "-c", code], cwd=folder, seconds=600)
    return "runs" if done.ok else f"fails: {done.err.strip().splitlines()[-1]}"


if __name__ == "__main__":
    main()
