"""The page about every check and its tolerance (docs/checks.md), written from the tables that the kernels run by."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuinstall.verify.cover import load_rows
from gpuinstall.verify.kernels import all_gpus, bench, deep, programs, quick

if TYPE_CHECKING:
    from collections.abc import Iterable

DEVICES = {"gpu": "GPU", "cuda": "GPU (CUDA, ROCm)", "cpu": "CPU", "mps": "Mac GPU", "all": "all"}

HEAD = "| check | on | shows | greatest error |\n|---|---|---|---|"

INTRODUCTION = """\
# What verify checks

`gpuinstall verify` tests every GPU (every MIG slice, or the CPU where there is no GPU) at the same time, each in its
own process inside the environment, with torch and the standard library alone. If one crashes or hangs, its device fails
and the others continue. If torch passes, the programs beside it are tested, each in its own process.

A check passes, fails (with the entry of [the failure catalogue](failures.md), if one is recognised) or is skipped, with
the reason. A device that cannot be tested (busy, no free memory, not this job's, no GPU here) is `unproven`. Failed
takes precedence over unproven, unproven over passed. The exit status is 5 if a device failed, else 0.

The process is isolated (`python -I`), so a `torch.py` in the current folder or on PYTHONPATH does not affect it. The
check `surroundings` fails if your programs here would import such a module, or one that breaks torch, or if PYTHONHOME
breaks the interpreter; an installation only warns. An interpreter outside a virtual environment whose torch is
elsewhere (user packages, a module system's PYTHONPATH) is tested as it starts. LD_LIBRARY_PATH and LD_PRELOAD stay; if
a device fails only with them, the message says so.

## Tolerances

Results are compared with the same computation in float64 on the CPU, from the same rounded input. The greatest error
allowed, relative to the sum of the magnitudes added, is

    4 ε(dtype) + 4 √terms ε(float32)

ε is the distance from 1 to the next number: 2⁻²³ for float32, 2⁻¹⁰ for float16, 2⁻⁷ for bfloat16. The first part covers
rounding of input and output, the second adding `terms` products in float32. Convolutions may have 16 times as much,
because Winograd algorithms add in another order. TensorFloat-32 is off. A check without a number must be exact.
"""

PROGRAMS = """\
## Programs

Each package below runs one small operation on each GPU. All other packages of torch's family, and compiled packages
that require torch, are only imported (`<package>-import`), as is any package where the operation does not apply. Each
has its own process and three minutes, deepspeed fifteen because it compiles; compilers end with the process. Programs
are skipped if a check of torch failed; without a usable device they are imported, if they can be.
"""

OUTSIDE = """
From NVML, for each GPU: `ecc` fails on uncorrected errors, or on pages or rows that wait to be retired or remapped.
It reports whether ECC is on, now and after the next restart, and never switches it. `clocks` and `pcie-link` pass, and
report a card slowed by heat or power, or a link narrower than possible.

`files` fails if a file of torch or its family is not what was installed: every file is compared with the hash in its
installation's list, and the list with the locked wheel's, if it is in uv's cache.
"""


def checks_page() -> str:
    """Write the page."""
    parts = (
        INTRODUCTION,
        "## Quick\n",
        *_table(quick.CHECKS),
        "\n`architectures` compares the build's list of architectures with the card.\n",
        PROGRAMS,
        *_programs(),
        "\n## With --deep\n",
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
    lines = {row.check: _row(row.check, row) for row in programs.PROGRAMS}
    for module, row in load_rows().items():
        name = f"{module.replace('_', '-')}-{row['operation']}"
        lines[name] = _line(name, row["where"], row["says"], row.get("limit"))
    for name in sorted(lines):
        yield lines[name]


def _row(name: str, check: Any) -> str:
    return _line(name, check.where, _said(check.run), check.limit)


def _line(name: str, where: str, said: str, limit: float | None) -> str:
    devices = ", ".join(DEVICES[kind] for kind in where.split())
    greatest_error = f"{limit:.1e}" if limit else ""
    return f"| {name} | {devices} | {said} | {greatest_error} |"


def _measures() -> Iterable[str]:
    yield "| measurement | unit | is |\n|---|---|---|"
    for measure in bench.MEASURES:
        yield f"| {measure.name} | {measure.unit} | {_said(measure.run)} |"


def _said(run: Any) -> str:
    function = run.func if isinstance(run, partial) else run
    return (inspect.getdoc(function) or "").splitlines()[0].rstrip(".")
