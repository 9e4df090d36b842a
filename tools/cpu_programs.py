"""Makes ``docs/evidence/cpu.md``: programs of the default index, really installed for the CPU, locked, and run.

Each is installed by the tool and then from its lock by plain uv and plain pip, each time into an environment of its
own. torch comes from the wheels in PIP_FIND_LINKS. Takes some minutes: ``python -m tools.cpu_programs``.
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
PROGRAMS = {
    "transformers": "from transformers import BertConfig, BertModel; BertModel(BertConfig(num_hidden_layers=1))",
    "accelerate": "from accelerate import Accelerator; Accelerator().prepare()",
    "sentence-transformers": "from sentence_transformers import SentenceTransformer",
    "lightning": "from lightning import Trainer; Trainer(logger=False)",
    "peft": "from peft import LoraConfig, get_peft_model",
    "diffusers": "from diffusers import DDPMScheduler; DDPMScheduler().set_timesteps(10)",
}
"""What people ask for, and what is run of it in a fresh process; none of them needs torchvision or torchaudio."""
INTRODUCTION = f"""# Programs on the CPU

Installed from the default index with `gpuinstall install PROGRAM {TORCH} --backend cpu --python {PYTHON}`, run in a
fresh process, and installed again from `pylock.cpu.toml` alone by plain uv and by plain pip. torch's CPU build came
from a folder of wheels; torchvision and torchaudio had none there, so programs that need them are not in the table.
Made by `python -m tools.cpu_programs`.

| program | locked | torch | packages | installed by us | `uv pip sync` | `pip install -r` |
|---|---|---|---|---|---|---|
"""


class Proof(NamedTuple):
    """What came of one program: what was locked, and what each of the three environments said when it was run."""

    version: str
    torch: str
    packages: int
    ours: str
    by_uv: str
    by_pip: str

    @property
    def runs(self) -> bool:
        """Say whether it runs in all three."""
        return {self.ours, self.by_uv, self.by_pip} == {"runs"}


def prove(
    program: str, folder: Path, caches: Path, tool: tuple[str, ...] = (sys.executable, "-m", "gpuinstall")
) -> Proof:
    """Install a program into ``folder`` in three ways; raise RuntimeError where the tool itself fails."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(caches), "UV_CACHE_DIR": str(caches / "uv")}
    words = ["install", program, TORCH, "--backend", "cpu", "--python", PYTHON]
    done = process.run([*tool, *words], env=variables, cwd=folder, seconds=1200)
    if not done.ok:
        raise RuntimeError(done.err)
    ours, path = folder / ".venv" / "bin" / "python", folder / "pylock.cpu.toml"
    lock = read_lock(path)
    said = [_said(ours, program, folder)]
    for words in (
        [str(uv.uv()), "pip", "sync", "-q", "--python", "{}", str(path)],
        [sys.executable, "-m", "pip", "--python", "{}", "install", "-q", "-r", str(path)],
    ):
        with tempfile.TemporaryDirectory(dir=folder) as plain:
            made = process.run([ours.resolve(), "-m", "venv", "--without-pip", plain])
            python = Path(plain) / "bin" / "python"
            done = process.run([word.format(python) for word in words], env=variables, seconds=1200)
            said.append(_said(python, program, folder) if made.ok and done.ok else f"fails: {done.err.strip()}")
    return Proof(lock.versions[program], lock.versions["torch"], len(lock.pylock.packages), *said)


def main() -> None:
    """Make the page."""
    rows = []
    with tempfile.TemporaryDirectory() as caches:
        for program in PROGRAMS:
            with tempfile.TemporaryDirectory() as folder:
                found = prove(program, Path(folder), Path(caches))
            rows.append(f"| {program} | " + " | ".join(map(str, found)) + " |")
            print(rows[-1], flush=True)  # noqa: T201
    PAGE.write_text(INTRODUCTION + "\n".join(rows) + "\n", encoding="utf-8")


def _said(python: Path, program: str, folder: Path) -> str:
    done = process.run([python, "-c", PROGRAMS[program]], cwd=folder, seconds=300)
    return "runs" if done.ok else f"fails: {done.err.strip().splitlines()[-1]}"


if __name__ == "__main__":
    main()
