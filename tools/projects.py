"""Makes ``docs/evidence/projects.md``: what ten real projects ask for, what three machines get, and uv's own answer.

torch's index is the stand-in of ``tools.beside``; all else is the default index, whose wheels are read in parts.
Takes most of an hour: ``python -m tools.projects [PROJECT…]`` shows the lines of some, without writing.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import requests
from packaging.pylock import PackageSdist, PackageWheel, Pylock

from gpuinstall.catalog import load_catalog
from gpuinstall.errors import GpuInstallError
from gpuinstall.lock.target import Target
from tools.beside import PYTHON, Judge, asked_for, judging

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.markers import Environment

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "projects.md"
MACHINES = ("1080 Ti, 535", "4090, 550", "5090, 580")
PROJECTS = {
    "ComfyUI": "torch torchsde torchvision torchaudio numpy>=1.25.0 einops transformers>=4.50.3 tokenizers>=0.13.3 "
    "sentencepiece safetensors>=0.4.2 aiohttp>=3.11.8 yarl>=1.18.0 pyyaml pillow scipy tqdm psutil alembic sqlalchemy "
    "av>=14.2.0 kornia>=0.7.1 spandrel soundfile pydantic~=2.0 pydantic-settings~=2.0",
    "nanoGPT": "torch numpy transformers datasets tiktoken wandb tqdm",
    "whisper": "numba numpy torch tqdm more-itertools tiktoken triton>=2",
    "diffusers, text_to_image": "accelerate>=0.16.0 torchvision transformers>=4.25.1 datasets>=2.19.1 ftfy tensorboard "
    "jinja2 peft==0.7.0",
    "SAM 2": "torch>=2.5.1 torchvision>=0.20.1 numpy>=1.24.4 tqdm>=4.66.1 hydra-core>=1.3.2 iopath>=0.1.10 "
    "pillow>=9.4.0",
    "lerobot": "lerobot",
    "unsloth": "unsloth",
    "open_clip": "open_clip_torch",
    "YOLO": "ultralytics",
    "vllm": "vllm",
}
"""What each asks for: the lines of its requirements file, or its name where the index has its metadata."""
INTRODUCTION = f"""# Ten projects on three machines

What the requirements of ten projects come to, for Python {PYTHON} on Linux x86_64 (glibc 2.28). `uv` is `uv pip
compile` of the same words with the default index's torch, as `uv sync` of a project with these dependencies takes it;
whether that runs is said by the catalogue's rules for its torch, and by the code in its wheels, read by range. `ours`
is the lock for the machine.

What it was proven against: torch, torchvision, torchaudio and triton of `ours` are a stand-in of their index, with
every build of the catalogue and the requirements of its release; the real index was not asked. All else is the
default index. No GPU ran anything. `uv, bytes` are all the wheels of uv's answer, with torch and CUDA; `ours, beside
torch` are the wheels of the default index without torch's own and CUDA's libraries, whose sizes the stand-in does not
have. A file that has to be built counts as its source. Made by `python -m tools.projects`.

The lists at the end are names and bounds of the projects' own files. Those of ComfyUI, nanoGPT, whisper, diffusers and
SAM 2 were written from memory, as their pages could not be reached, and without what is theirs alone (ComfyUI's front
end); where a single name stands there, the index's metadata says the rest.
"""
HEAD = (
    "| project | machine | uv | uv, bytes | does that run | ours | ours, beside torch |\n|---|---|---|---|---|---|---|"
)
OF_CUDA = ("nvidia-", "cuda-")


def rows(project: str, judge: Judge) -> Iterator[str]:
    """Each machine's row of a project."""
    words = PROJECTS[project]
    plain = judge.compiled(words)
    for name in MACHINES:
        request = asked_for(words, name)
        try:
            resolved = judge.resolved(request)
            ours, beside = resolved.versions["torch"], _megabytes(resolved.document, alone=True)
        except GpuInstallError as error:
            ours, beside = f"refused: {error.message}", ""
        _, runs = judge.judged(words, request)
        uv, size = ("no answer", "") if isinstance(plain, str) else (_torch(plain), _megabytes(plain))
        cells = (project, name, uv, size, runs, ours, beside)
        yield "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


def _torch(document: Mapping[str, Any]) -> str:
    versions = {package["name"]: package.get("version", "") for package in document["packages"]}
    return str(versions.get("torch", "no torch"))


def _megabytes(document: Mapping[str, Any], *, alone: bool = False) -> str:
    """The bytes of the files that a lock takes; ``alone`` without torch's own and CUDA's."""
    target = Target("cpu")
    environment = cast("Environment", target.environment(PYTHON))
    selected = Pylock.from_dict(document).select(environment=environment, tags=target.tags(PYTHON))
    own = load_catalog().family
    taken = [
        file
        for package, file in selected
        if not (alone and (package.name in own or package.name.startswith(OF_CUDA)))
        and isinstance(file, (PackageWheel, PackageSdist))
    ]
    return f"{sum(_size(file) for file in taken) / 1e6:,.0f} MB"


def _size(file: PackageWheel | PackageSdist) -> int:
    return file.size or _asked_size(file.url or "")


@cache
def _asked_size(url: str) -> int:
    answer = requests.head(url, allow_redirects=True, timeout=60, headers={"Accept-Encoding": "identity"})
    answer.raise_for_status()
    return int(answer.headers["Content-Length"])


def main() -> None:
    """Make the page, or show the rows of some projects."""
    asked, lines = sys.argv[1:], [INTRODUCTION, HEAD]
    with judging() as judge:
        for project in asked or PROJECTS:
            for row in rows(project, judge):
                lines.append(row)
                sys.stdout.write(f"{row}\n")
                sys.stdout.flush()
    if not asked:
        requirements = "".join(f"\n- {project}: `{words}`" for project, words in PROJECTS.items())
        PAGE.write_text("\n".join(lines) + f"\n\n## What they ask for\n{requirements}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
