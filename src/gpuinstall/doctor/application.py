"""Faults of an application's add-ons: what custom nodes ask for against the torch that is there, and each other."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING

from gpuinstall.advice import OURS, Advice
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.text import some

if TYPE_CHECKING:
    from gpuinstall.doctor.add_ons import AddOn
    from gpuinstall.doctor.evidence import DoctorEvidence, DoctorFindings
    from gpuinstall.plan.requirement import ParsedRequirement


def add_ons_replace_torch(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the add-ons whose requirements another torch would meet, and not the one that is there."""
    for add_on in evidence.add_ons:
        refused = []
        for requirement in add_on.requirements:
            version = evidence.contents.version(requirement.name)
            is_tied = evidence.catalog.is_tied(requirement.name)
            if version and is_tied and not _allows(requirement, version):
                refused.append(requirement.text)
        if refused:
            look = _shown(evidence, add_on)
            yield evidence.fault(
                "add-on-replaces-torch",
                f"{add_on.name} asks for {some(refused)}, and would replace torch {evidence.torch}",
                why="its requirements exclude what is installed, so that pip or uv would take another build",
                fixes=(look,),
                blocking=False,
            )


def add_ons_need_extensions(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the extensions that add-ons ask for and that are not there: pip would compile them."""
    rows = load_extensions().rows
    askers: dict[str, list[str]] = {}
    for add_on in evidence.add_ons:
        for requirement in add_on.requirements:
            is_there = evidence.contents.version(requirement.name)
            if requirement.name in rows and not is_there:
                askers.setdefault(requirement.name, []).append(add_on.name)
    for name, names in sorted(askers.items()):
        words = ("install", "--into", "--venv", str(evidence.venv), name)
        yield evidence.fault(
            "add-on-needs-extension",
            f"{name} is not installed, which {some(names)} asks for",
            why=f"{name} is compiled for one torch, CUDA and GPU; a prebuilt file that fits is looked for",
            fixes=(Advice(OURS, words),),
            blocking=False,
        )


def add_ons_clash(evidence: DoctorEvidence) -> DoctorFindings:
    """Yield the pairs of add-ons of which one pins what the other excludes."""
    for one, other in combinations(evidence.add_ons, 2):
        for its, others in product(one.requirements, other.requirements):
            if its.name == others.name and _exclude(its, others):
                yield evidence.fault(
                    "add-ons-clash",
                    f"{one.name} asks for {its.text} and {other.name} for {others.text}: no version is both",
                    why="both install into one environment, and the one that is installed last decides",
                    fixes=(_shown(evidence, one), _shown(evidence, other)),
                    blocking=False,
                )


def _shown(evidence: DoctorEvidence, add_on: AddOn) -> Advice:
    """Advise to look at what an add-on would change."""
    words = ("install", "--into", "--venv", str(evidence.venv), "-r", str(add_on.file))
    return Advice(OURS, (*words, "--dry-run"))


def _exclude(one: ParsedRequirement, other: ParsedRequirement) -> bool:
    """Whether no version meets both, as far as the versions that they pin tell it."""
    pins = [*_pins(one), *_pins(other)]
    return bool(pins) and not any(_allows(one, pin) and _allows(other, pin) for pin in pins)


def _pins(requirement: ParsedRequirement) -> list[str]:
    parts = requirement.specifier or ()
    return [part.version for part in parts if part.operator == "==" and "*" not in part.version]


def _allows(requirement: ParsedRequirement, version: str) -> bool:
    specifier = requirement.specifier
    return not specifier or specifier.contains(version, prereleases=True)
