"""A build's own list of architectures against a card, by the rules of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.catalog.build import Architecture, Build
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
    from gpuinstall.plan.code import code_for
    from gpuinstall.plan.values import Reason

    drivers = load_catalog().drivers
    served = machine.driver.cuda if machine.driver else None
    code = code_for(_build(names, cuda, machine), ComputeCapability.parse(capability), drivers, served)
    if isinstance(code, Reason):
        return Check(NAME, "failed" if failed else "passed", message=f"the build has {code.message}")
    return Check(NAME, "passed", message=f"compute capability {capability} runs {code.name}")


def _build(names: Sequence[str], cuda: str | None, machine: Machine) -> Build:
    from packaging.version import Version

    codes = [name.partition("_")[::2] for name in names]
    return Build(
        torch=Version("0"),
        backend="",
        os=machine.os,
        arch=machine.arch,
        sass=tuple(Architecture.parse(code) for kind, code in codes if kind == "sm"),
        ptx=tuple(Architecture.parse(code).capability for kind, code in codes if kind == "compute"),
        toolkit=CudaVersion.parse(cuda) if cuda else None,
    )
