"""Makes ``docs/evidence/beside.md``: GPU programs beside torch, what each machine gets and why, and uv's own answer.

torch's index is the stand-in of ``tools.programs``; all else is the default index, whose wheels are read in parts.
Whether uv's answer would have run is said by the same rules, of the files that uv chose with the default index's torch.
Takes most of an hour: ``python -m tools.beside [PROGRAM…]`` shows the lines of some programs, without writing.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli

from gpuinstall import process, uv
from gpuinstall.catalog import load_catalog
from gpuinstall.errors import GpuInstallError
from gpuinstall.lock.code_check import CodeCheck
from gpuinstall.lock.code_rules import lacking
from gpuinstall.lock.fetch import Hashes
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.origins import locked_files
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.resolution import Resolution
from gpuinstall.plan import Rejected
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.request import Request
from gpuinstall.words import machine_in_words
from tools.programs import PYTHON, stand_in_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.session import Session

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "beside.md"
MACHINES = {
    "GTX 980": ("GTX 980", "550.144.03"),
    "GTX 1080": ("GTX 1080", "535.183.01"),
    "1080 Ti, 535": ("GTX 1080 Ti", "535.183.01"),
    "GTX 1080, 580": ("GTX 1080", "580.95.05"),
    "V100": ("V100", "535.183.01"),
    "V100, 580": ("V100", "580.95.05"),
    "T4": ("T4", "535.183.01"),
    "3090, 535": ("RTX 3090", "535.183.01"),
    "3090, 550": ("RTX 3090", "550.144.03"),
    "3090, 580": ("RTX 3090", "580.95.05"),
    "4090, 550": ("RTX 4090", "550.144.03"),
    "4090, 580": ("RTX 4090", "580.95.05"),
    "5090, 570": ("RTX 5090", "570.86.15"),
    "5090, 575": ("RTX 5090", "575.57.08"),
    "5090, 580": ("RTX 5090", "580.95.05"),
    "H100, 550": ("H100", "550.144.03"),
    "H100, 580": ("H100", "580.95.05"),
}
TABLE = {
    "onnxruntime-gpu": ("3090, 550",),
    "rembg[gpu]": ("3090, 550",),
    "cupy-cuda13x": ("3090, 535", "3090, 550", "V100, 580", "GTX 1080, 580"),
    "jax[cuda13]": ("3090, 550", "V100, 580"),
    "tensorrt": ("3090, 550", "V100, 580"),
    "cudf-cu13": ("3090, 535", "GTX 1080, 580"),
    "numba-cuda[cu13]": ("3090, 550", "V100, 580"),
    "nvidia-dali-cuda130": ("3090, 550", "V100, 580"),
    "jax[cuda12]": ("V100", "GTX 1080"),
    "faster-whisper": ("H100, 580",),
    "auto-gptq": ("3090, 580", "3090, 550"),
    "xformers": ("5090, 580", "5090, 575"),
    "bitsandbytes": ("GTX 980",),
    "gfpgan": ("3090, 550",),
    "basicsr": ("3090, 550",),
    "sam2": ("3090, 550",),
    "flash-attn": ("V100", "GTX 1080"),
    "paddlepaddle-gpu": ("5090, 580",),
    "torch<2.3 numpy": ("3090, 550",),
    "axolotl": ("V100",),
    "k2": ("3090, 550",),
}
"""What was asked for and where in the table of the issue that this page answers."""
MORE = {
    "onnxruntime-gpu": ("GTX 1080", "V100, 580", "T4", "4090, 580", "5090, 570", "H100, 580"),
    "rembg[gpu]": ("4090, 580", "V100"),
    "ctranslate2": ("GTX 1080", "T4", "4090, 550", "5090, 580"),
    "faster-whisper": ("GTX 1080", "3090, 535", "5090, 570"),
    "cupy-cuda12x": ("GTX 1080", "V100", "3090, 550", "5090, 570", "H100, 580"),
    "cupy-cuda13x": ("4090, 580", "5090, 580"),
    "jax[cuda12]": ("T4", "4090, 550", "H100, 580"),
    "jax[cuda13]": ("4090, 580", "H100, 580"),
    "tensorflow[and-cuda]": ("GTX 1080", "3090, 550", "5090, 580"),
    "tensorrt-cu12": ("T4", "4090, 550"),
    "tensorrt-cu13": ("4090, 580",),
    "cudf-cu12": ("V100", "4090, 550"),
    "numba-cuda[cu12]": ("GTX 1080", "4090, 550"),
    "nvidia-dali-cuda120": ("V100", "4090, 550"),
    "spacy[cuda12x]": ("4090, 550",),
    "faiss-gpu-cu12": ("V100", "4090, 550", "5090, 580"),
    "llama-cpp-python": ("3090, 550",),
    "bitsandbytes": ("GTX 1080", "V100", "5090, 570", "H100, 580"),
    "transformers accelerate bitsandbytes": ("T4", "4090, 580"),
    "xformers": ("V100", "3090, 535"),
    "whisperx": ("4090, 580",),
    "transformer-engine[pytorch]": ("H100, 580",),
    "spconv-cu120": ("4090, 550",),
    "fbgemm-gpu": ("H100, 580",),
    "xgboost": ("V100", "5090, 570"),
    "paddlepaddle-gpu": ("3090, 550",),
    "detectron2": ("3090, 550",),
    "k2": ("H100, 580",),
}
INTRODUCTION = f"""# Beside torch

GPU programs that are not torch's, for Python {PYTHON} on Linux x86_64 (glibc 2.28): what each machine gets, what the
files need, why this version, and uv's own answer to the same words with the judgement of the same rules. `needs` is
read of the wheels by range: the CUDA that a file is made with, then libraries of other packages that it is linked to
or opens. torch's index is a stand-in with every build of the catalogue; all else is the default index. Made by
`python -m tools.beside`; the sentences are the plan's own.
"""


class Case(NamedTuple):
    """One request for one machine, and what came of it."""

    words: str
    machine: str
    versions: str
    needs: str
    why: str
    by_uv: str
    runs: str

    def __str__(self) -> str:
        text = "|"
        for cell in (f"`{self.words}`", *self[1:]):
            plain = cell.replace("|", r"\|").replace("\n", " ")
            text += f" {plain} |"
        return text


def request_for(words: str, name: str) -> LockRequest:
    """Return the request of some words for a machine by its name."""
    gpu, driver = MACHINES[name]
    machine = machine_in_words((gpu,), driver, None, None)
    return LockRequest(
        machine, Request(tuple(words.split()), python=PYTHON), load_catalog(), builds_here=False
    )


class Judge:
    """Chooses and judges for machines, in one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.compiled = cache(self._compile)

    def case(self, words: str, name: str) -> Case:
        """Choose for a machine, and judge what uv chooses."""
        request = request_for(words, name)
        needs = ""
        try:
            ours = self.resolved(request)
        except GpuInstallError as error:
            versions = "refused"
            remarks = [text for text in (error.message, error.why, error.hint) if text]
        else:
            versions = _versions(words, ours.versions)
            needs = self._needs(ours)
            remarks = [*ours.remarks, *(reason.message for reason in ours.plan.warnings)]
        by_uv, runs = self.judged(words, request)
        return Case(
            words=words,
            machine=name,
            versions=versions,
            needs=needs,
            why="; ".join(dict.fromkeys(remarks)),
            by_uv=by_uv,
            runs=runs,
        )

    def resolved(self, request: LockRequest) -> Resolution:
        """Return what is locked for a machine.

        Raises:
            GpuInstallError: if nothing can be.
        """
        return resolve_locks([request], self._session)[0]

    def _needs(self, resolution: Resolution) -> str:
        """Return what the files with native code need."""
        needs = []
        for row in CodeCheck(resolution, self._session).rows.values():
            if row.cuda:
                libraries = " ".join((f"CUDA {row.cuda}", *row.needs, *row.opens))
                needs.append(f"{row.package}: {libraries}")
        return "; ".join(needs)

    def _compile(self, words: str) -> dict[str, Any] | str:
        """Return uv's lock of some words, or why there is none."""
        platform = ["--python-version", PYTHON, "--python-platform", "x86_64-manylinux_2_28"]
        command = [str(uv.uv()), "pip", "compile", "-q", *platform, "--format", "pylock.toml", "-"]
        done = process.run(
            command, env=self._session.environment, text="\n".join(words.split()), seconds=600
        )
        if done.ok:
            return tomli.loads(done.out)
        lines = [line.strip(" ×╰─▶│") for line in done.err.splitlines()]
        return next(filter(None, lines), "no answer")

    def judged(self, words: str, request: LockRequest) -> tuple[str, str]:
        """Return what uv alone answers, and whether it runs on the machine."""
        document = self.compiled(words)
        if isinstance(document, str):
            return "no answer", document[:120]
        versions = {package["name"]: package.get("version", "") for package in document["packages"]}
        answer = _versions(words, versions)
        torch = versions.get("torch")
        own = request
        if torch:
            catalog = request.catalog.without(lambda build: not build.on_default_index, "withdrawn")
            own = replace(request, catalog=catalog).with_torch(torch)
        if isinstance(own.outcome, Rejected):
            return answer, f"no: {own.outcome.reasons[0].message}"
        files = locked_files(document)
        resolution = Resolution(own, own.plan, own.target, document, files, Hashes({}, {}))
        check = CodeCheck(resolution, self._session)
        wrong = next(self._faults(check, versions, own), None)
        unbuilt = [file.name for file in files if not file.name.endswith(".whl")]
        if wrong:
            return answer, f"no: {wrong}"
        if unbuilt:
            return answer, f"only once {', '.join(unbuilt)} is built"
        return answer, "yes"

    def _faults(
        self, check: CodeCheck, versions: dict[str, str], request: LockRequest
    ) -> Iterator[str]:
        """Yield what keeps uv's answer from running, the weightiest first."""
        torch = versions.get("torch")
        for rejection in check.rejected:
            if not torch or check.roles.decides(rejection.candidate.package):
                yield rejection.reason.message
        if torch:
            for text in request.catalog.beside(request.choice.build.torch):
                companion = parse_requirement(text)
                if not companion.allows(versions.get(companion.name, "0")):
                    yield f"torch {torch} goes with {companion.text}"
            return
        # Beside torch, its own libraries are there.
        for row in check.rows.values():
            names = lacking(row, check.around)
            if names:
                yield f"{row.package} finds no {' and '.join(names)}"


def cases(programs: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield every program with each of its machines, or those of some programs."""
    selected = frozenset(programs)
    for table in (TABLE, MORE):
        for words, names in table.items():
            if selected and words not in selected:
                continue
            for name in names:
                yield words, name


def main() -> None:
    """Make the page, or show the rows of some programs."""
    programs = sys.argv[1:]
    head = "| asked for | machine | versions | needs | why | uv alone | would that run |\n|---|---|---|---|---|---|---|"
    with stand_in_session() as session:
        judge = Judge(session)
        lines = [INTRODUCTION, head]
        for words, name in cases(programs):
            lines.append(str(judge.case(words, name)))
            print(lines[-1], flush=True)  # noqa: T201
    if not programs:
        PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _versions(words: str, versions: dict[str, str]) -> str:
    """Return the versions of what was requested, and of torch."""
    requested = [parse_requirement(text).name for text in words.split()]
    names = dict.fromkeys((*requested, "torch"))
    return ", ".join(f"{name} {versions[name]}" for name in names if name in versions)


if __name__ == "__main__":
    main()
