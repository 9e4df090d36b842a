"""Faults of an application's add-ons: what custom nodes ask for against the torch that is there, and each other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.text import some
from gpuinstall.catalog.extensions import load_extensions

if TYPE_CHECKING:
    from gpuinstall.base.requirement import ParsedRequirement
    from gpuinstall.diagnose.add_ons import AddOn
    from gpuinstall.diagnose.evidence import DoctorEvidence, DoctorFindings


def add_ons_replace_torch(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the add-ons whose requirements another torch would meet, and not the one that is there."""
    for add_on in evidence.add_ons:
        unmet = []
        for requirement in add_on.requirements:
            name = requirement.name
            version = evidence.contents.version(name)
            is_tied = evidence.catalog.is_tied(name)
            if version and is_tied and not _allows(requirement, version):
                unmet.append(requirement.text)
        if not unmet:
            continue
        requests = f"{add_on.name} asks for {some(unmet)}"
        yield evidence.fault(
            "add-on-replaces-torch",
            f"{requests}, and would replace torch {evidence.torch}",
            why="its requirements exclude what is installed, so that pip or uv would take another build",
            fixes=(_dry_run(evidence, add_on),),
            blocking=False,
        )


def add_ons_need_extensions(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the extensions that add-ons ask for and that are not there: pip would compile them."""
    rows = load_extensions().rows
    add_ons = defaultdict[str, list[str]](list)
    for add_on in evidence.add_ons:
        for requirement in add_on.requirements:
            name = requirement.name
            is_installed = evidence.contents.version(name)
            if name in rows and not is_installed:
                add_ons[name].append(add_on.name)
    for name in sorted(add_ons):
        yield evidence.fault(
            "add-on-needs-extension",
            f"{name} is not installed, which {some(add_ons[name])} asks for",
            why=f"{name} is compiled for one torch, CUDA and GPU; a prebuilt file that fits is looked for",
            fixes=(_install_into(evidence, name),),
            blocking=False,
        )


def _dry_run(evidence: DoctorEvidence, add_on: AddOn) -> Advice:
    """Advise to look at what an add-on would change."""
    return _install_into(
        evidence,
        "-r",
        str(add_on.file),
        "--dry-run",
    )


def _install_into(evidence: DoctorEvidence, *arguments: str) -> Advice:
    venv = str(evidence.venv)
    return Advice(OURS, ("install", "--into", "--venv", venv, *arguments))


def _allows(requirement: ParsedRequirement, version: str) -> bool:
    specifier = requirement.specifier
    if not specifier:
        return True
    return specifier.contains(version, prereleases=True)
