"""The page about every check and its tolerance (docs/checks.md), written from the tables that the kernels run by."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuinstall.verify.kernels import all_gpus, bench, deep, programs, quick

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICES = {"gpu": "GPU", "cuda": "GPU (CUDA, ROCm)", "cpu": "CPU", "mps": "Mac GPU", "all": "all"}

HEAD = "| check | on | shows | greatest error |\n|---|---|---|---|"

INTRODUCTION = """\
# What verify checks

`gpuinstall verify` starts one process for each GPU (each slice of a GPU in MIG mode; the CPU where there is none), all
at the same time, inside the environment that is tested. There it imports torch and the standard library, nothing else.
A crash, a hang or an error ends one process: its device fails, and the others go on. Where torch passes, the programs
beside it are tried, each in a process of its own.

The process is isolated (`python -I`): a `torch.py` in the working folder or a folder on PYTHONPATH does not disturb the
proof. That a program started in this folder *would* import that other torch is a fault of its own, `surroundings`; an
installation warns of it, verify fails. So it is with a module there that keeps torch from being imported, and with a
PYTHONHOME that keeps the interpreter from starting. An interpreter that is no virtual environment and has torch only
outside of itself (user packages, a module system's PYTHONPATH) is tested as it starts. LD_LIBRARY_PATH and LD_PRELOAD
stay as they are; where a device fails and passes without them, the message says so.

A check passes, fails (with the entry of [the failure catalogue](failures.md) where one is recognised) or is skipped
(with the reason). A device that cannot be tried (in use, no free memory, not this job's, no GPU here) is `unproven`.
Failed beats unproven beats passed. The exit status is 5 where a device failed, else 0.

## How exact a result must be

Results are compared with the same computation in float64 on the CPU, from the same rounded input. The greatest error
allowed, relative to the sum of the magnitudes that were added, is

    4 ε(dtype) + 4 √terms ε(float32)

ε is the distance from 1 to the next number: 2⁻²³ for float32, 2⁻¹⁰ for float16, 2⁻⁷ for bfloat16. The first part is
the rounding of what goes in and comes out; the second that of adding `terms` products in float32, whose errors grow
like a random walk. Convolutions are allowed 16 times as much, because the algorithms of Winograd add in another order.
TensorFloat-32 is switched off. A check without a number must be exact.
"""

PROGRAMS = """\
## Programs

What is installed is read from the records of the installations; nothing is imported that is not there. A package below
does one small operation of its own on each GPU, and is imported where the operation has no meaning. So is, as
`<package>-import`, every other package of torch's family, and every package that demands torch and has compiled code.
Each has a process of its own and three minutes, so that one that crashes or hangs hides no other. Where a device cannot
be tried, programs are imported without it; one that can be imported only where a GPU is, is skipped. Where a check of
torch itself failed, they are not tried.
"""

OUTSIDE = """
From NVML, for each GPU: `ecc` fails where the memory has uncorrected errors, or a page or row waits to be retired or
remapped; `clocks` and `pcie-link` pass, and say where heat or power slows the card, or where the link is narrower than
card and slot could have.

`files` fails where a file of torch, or of a package of its family, is not what was installed: every file is hashed and
compared with the list of its installation, and that list with that of the locked wheel where uv's cache has it.
"""


def checks_page() -> str:
    """Write the page."""
    parts = (
        INTRODUCTION,
        "## Quick\n",
        *_table(quick.CHECKS),
        "\n`architectures` compares the build's own list of architectures with the card, by the rules of the plan.\n",
        PROGRAMS,
        *_programs(),
        "\n## With --deep, besides\n",
        *_table((*deep.CHECKS, *all_gpus.CHECKS)),
        OUTSIDE,
        "## With --bench\n",
        *_measures(),
    )
    return "\n".join(parts) + "\n"


def _table(checks: Iterable[Any]) -> Iterable[str]:
    yield HEAD
    for check in checks:
        yield _row(check.name, check)


def _programs() -> Iterable[str]:
    yield HEAD
    for row in sorted(programs.PROGRAMS, key=lambda row: row.check):
        yield _row(row.check, row)


def _row(name: str, check: Any) -> str:
    limit = f"{check.limit:.1e}" if check.limit else ""
    where = ", ".join(DEVICES[kind] for kind in check.where.split())
    return f"| {name} | {where} | {_said(check.run)} | {limit} |"


def _measures() -> Iterable[str]:
    yield "| measurement | unit | is |\n|---|---|---|"
    for measure in bench.MEASURES:
        yield f"| {measure.name} | {measure.unit} | {_said(measure.run)} |"


def _said(run: Any) -> str:
    function = run.func if isinstance(run, partial) else run
    return (inspect.getdoc(function) or "").splitlines()[0].rstrip(".")
