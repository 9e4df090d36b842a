"""Makes ``docs/evidence/projects.md``: fifteen public projects as they lie, the commands of docs/usage.md, plain uv.

``python -m tools.projects CHECKOUTS [NAME…]`` takes a folder of Git repositories named ``owner+name``, of which none is
part of this project, runs the commands in a copy of each, and leaves out what is not there; with names, it shows the
lines of some without writing. torch's index is a stand-in; all else is the default index. Takes about an hour.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.index import StandInIndex
from tests.lab.true_index import elsewhere, lead, true_index

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.process import Finished

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "projects.md"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHONS = ("3.10", PYTHON, "3.13")
"""Two projects require another Python than this one."""
TIMEOUT_S = 900


@dataclass(frozen=True)
class PublicProject:
    """A repository at a commit, and what people find in it."""

    name: str
    commit: str
    description: str
    by_uv: str | None = None
    """The command by which plain uv reads its requirements; None if there is nothing that uv reads."""
    options: str = ""
    """What its own README gives beside its files: requirements, or another folder's file."""


REQUIREMENTS = "pip compile requirements.txt"
PROJECTS = (
    PublicProject("3DTopia+LGM", "fe8d12c", "requirements.txt without versions", REQUIREMENTS),
    PublicProject(
        "PavelShpagin+drone-embeddings-server",
        "2e5c726",
        "requirements.txt of a server, torch commented out",
        REQUIREMENTS,
    ),
    PublicProject(
        "Stability-AI+generative-models",
        "0ad7de9",
        "pyproject.toml for the build alone; a requirements file in a folder",
        "pip compile requirements/pt2.txt",
        "-r requirements/pt2.txt",
    ),
    PublicProject(
        "VAST-AI-Research+TripoSR",
        "d26e331",
        "requirements.txt with a repository to build",
        REQUIREMENTS,
    ),
    PublicProject(
        "facebookresearch+DiT",
        "ed81ce2",
        "environment.yml with pytorch and pytorch-cuda; a notebook",
    ),
    PublicProject(
        "facebookresearch+segment-anything",
        "dca509f",
        "setup.py, setup.cfg",
        "pip compile setup.py",
    ),
    PublicProject(
        "fishaudio+fish-speech",
        "3dd1f85",
        "uv project with torch sources, extras and uv.lock",
        "lock",
    ),
    PublicProject("hkchengrex+MMAudio", "974010a", "pyproject.toml (hatchling)", "lock"),
    PublicProject(
        "karpathy+nanoGPT",
        "3adf61e",
        "scripts without a block, notebooks, no file of requirements",
        "pip compile -",
        "torch numpy transformers datasets tiktoken wandb tqdm",
    ),
    PublicProject(
        "lllyasviel+Fooocus",
        "59f183a",
        "environment.yaml, and two requirements files that neither tool looks for",
        "pip compile requirements_versions.txt",
        "-r requirements_versions.txt",
    ),
    PublicProject("lucaspar+poetry-torch", "d457efb", "Poetry with two torch sources", "lock"),
    PublicProject(
        "nari-labs+dia",
        "876125e",
        "uv project with torch sources, .python-version and uv.lock",
        "lock",
    ),
    PublicProject(
        "openai+whisper", "c0d2f62", "pyproject.toml, dynamic from requirements.txt", "lock"
    ),
    PublicProject("rreece+poetry-torch", "e838f17", "Poetry with a source, poetry.lock", "lock"),
    PublicProject(
        "rusty1s+pytorch_cluster",
        "3d1d9e3",
        "setup.py with an extension for CUDA",
        "pip compile setup.py",
    ),
)
COMMANDS = {
    "plan --live --gpu 'RTX 4090' --driver 550.144.03 {options}": "torch ",
    "install --dry-run {options}": "Download ",
    "install {options}": "Lock ",
    "run python -c 'import torch'": "",
    "verify": "CPU ",
    "doctor": "",
    "install einops": "+ einops",
    "remove einops": "- einops",
    "install --rollback": "+ einops",
    "install --upgrade --dry-run": "Download ",
    "lock --target cu126 --target cpu": "Lock ",
    "lock check": "Lock ",
    "export requirements --lock pylock.cpu.toml": "filelock==",
    "sync": "Environment ",
    "env remove --yes": "Removed .venv,",
}
"""The commands of docs/usage.md in the order of a first day, and how the line begins that says what came of each."""
INTRODUCTION = f"""# Fifteen projects as they lie

Public repositories, each at a commit, in a copy that has what the commit has: the commands of [usage](../usage.md)
one after the other, with their exit status and the line that says what came of it, beside plain uv. Python {PYTHON},
or what the project requires, on Linux x86_64, on a machine without a GPU; `plan` is for an RTX 4090 with driver 550
(CUDA 12.4). Made by `python -m tools.projects`.

torch, torchvision, torchaudio and triton are stand-ins of their index, with every build of the catalogue and the
requirements of its release: so the choice and the files are proven here, not a kernel. All else is the default index.
plain uv takes torch there, and an index that a project itself names for torch could not be reached.

"""
OWN = re.compile(r" to /[^,]*(?=,)| \([^)]* free\)|,? \d+(\.\d+)? (s|min.*)$")


@dataclass(frozen=True)
class Outcome:
    """What a command came to."""

    command: str
    status: int | None
    message: str

    def __str__(self) -> str:
        message = self.message.replace("|", r"\|")
        return f"| `{self.command}` | {'stopped' if self.status is None else self.status} | {message} |"


def outcomes(
    project: PublicProject, folder: Path, variables: Mapping[str, str]
) -> Iterator[Outcome]:
    """Run every command in the folder of a project, ours and then uv's."""
    for template, start in COMMANDS.items():
        command = template.format(options=project.options).strip()
        words = [sys.executable, "-m", "gpuinstall", *shlex.split(command)]
        done = process.run(words, env=variables, cwd=folder, seconds=TIMEOUT_S)
        yield Outcome(f"gpuinstall {command}", done.status, _message(done, start, folder))
    if project.by_uv:
        text = "\n".join(project.options.split()) if project.by_uv.endswith("-") else None
        words = [str(uv.uv()), *project.by_uv.split(), "--python", PYTHON]
        done = process.run(words, env=variables, cwd=folder, text=text, seconds=TIMEOUT_S)
        yield Outcome(f"uv {project.by_uv}", done.status, _answer_of_uv(done, folder))


def _message(done: Finished, start: str, folder: Path) -> str:
    """Return the error, else the first line of the output that begins with ``start``; without one, the last."""
    lines = [
        _plain(line, folder).removeprefix("Changes ")
        for line in (*done.err.splitlines(), *done.out.splitlines())
    ]
    found = [line for line in lines if line.startswith(start if done.ok else "error:")]
    if not start and done.ok:
        found = lines[-1:] if done.out else []
    return found[0] if found else ""


def _answer_of_uv(done: Finished, folder: Path) -> str:
    """Return the versions of torch that uv chooses, or its reason."""
    if not done.ok:
        lines = [line.strip(" ×╰─▶│├") for line in done.err.splitlines()]
        errors = [
            line
            for line in lines
            if line.startswith(("error:", "No solution", "Because", "Failed", "Request"))
        ]
        return _plain(" · ".join(errors[:2]) or "no answer", folder)
    text = (folder / "uv.lock").read_text("utf-8") if done.argv[1] == "lock" else done.out
    found = re.findall(r'^(?:name = ")?torch(?:==|"\nversion = ")([\w.+]+)', text, re.MULTILINE)
    return f"torch {', '.join(found)}" if found else "without torch"


def _plain(text: str, folder: Path) -> str:
    """Return a line without columns, seconds and what is this machine's own: places and free space."""
    text = " ".join(text.replace(str(folder), "…").replace(os.path.realpath(folder), "…").split())
    return OWN.sub("", text)


def extract(project: PublicProject, checkouts: Path, folder: Path) -> bool:
    """Write the files of the commit into a folder; return whether there is a repository with it."""
    repository = checkouts / project.name
    if not repository.is_dir():
        return False
    folder.mkdir()
    # A snapshot may lack its largest files: what it has is written, and Git ends with an error.
    words = [
        "git",
        "-C",
        str(repository),
        f"--work-tree={folder}",
        "checkout",
        "-q",
        project.commit,
        "--",
        ".",
    ]
    subprocess.run(words, capture_output=True, check=False)
    return True


def section(project: PublicProject, folder: Path, variables: Mapping[str, str]) -> str:
    """Write what came of a project, one line a command."""
    title = f"## {project.name.replace('+', '/')} {project.commit}\n\n{project.description}\n"
    lines = [title, "| command | exit | |\n|---|---|---|"]
    for outcome in outcomes(project, folder, variables):
        lines.append(str(outcome))
        print(outcome, flush=True)  # noqa: T201
    return "\n".join(lines)


def main() -> None:
    """Make the page, or show some projects."""
    checkouts, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    selected = [project for project in PROJECTS if not names or project.name in names]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = read_sources(None, {}, folder)
        with open_session(sources, SilentReporter()) as session:
            for python in PYTHONS:
                true_index(folder / "index", load_catalog(), session, python)
            pages = elsewhere(session)
        with StandInIndex(folder / "index") as index:
            lead(index, pages)
            own = {
                "HOME": name,
                "PIP_CONFIG_FILE": os.devnull,
                "GPUINSTALL_TORCH_INDEX": index.torch_index,
                "NO_COLOR": "1",
                "COLUMNS": "200",
            }
            variables = {**os.environ, "PIP_FIND_LINKS": "", **own}
            sections = [
                section(project, folder / project.name, variables)
                for project in selected
                if extract(project, checkouts, folder / project.name)
            ]
    if not names:
        PAGE.write_text(INTRODUCTION + "\n\n".join(sections) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
