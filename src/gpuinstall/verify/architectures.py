"""A build's own list of architectures against a card, by the rules of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.backend import Backend
from gpuinstall.catalog.build import Build
from gpuinstall.machine import Gpu
from gpuinstall.vendors import rules_for
from gpuinstall.vendors.protocol import Reason
from gpuinstall.verify.verdict import Check
from gpuinstall.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.machine import Machine

NAME = "architectures"


def architecture_check(
    names: Sequence[str], cuda: str | None, capability: str, machine: Machine, *, failed: bool
) -> Check:
    """Say which code of a build (``names`` as torch gives them, made with ``cuda``) a card runs.

    That there is none is a fault only where kernels ``failed``: they are the proof, the list explains it.
    """
    from gpuinstall.catalog import load_catalog

    rules = rules_for(machine, load_catalog(), {"cuda"})
    code = rules.code(_build(names, cuda, machine), Gpu(0, compute_capability=ComputeCapability.parse(capability)))
    if isinstance(code, Reason):
        return Check(NAME, "failed" if failed else "passed", message=f"the build has {code.message}")
    return Check(NAME, "passed", message=f"compute capability {capability} runs {code.name}")


def _build(names: Sequence[str], cuda: str | None, machine: Machine) -> Build:
    from packaging.version import Version

    return Build(
        torch=Version("0"),
        backend=Backend("cuda", cuda),
        os=machine.os,
        arch=machine.arch,
        code=tuple(names),
        toolkit=CudaVersion.parse(cuda) if cuda else None,
    )
