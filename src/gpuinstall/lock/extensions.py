"""The joint choice of an extension's file and torch's build: rule 13 of the choice.

Pure, but for what ``read`` does. A file and a build are judged first by what names say, for
nothing, then by what the file itself says, read by range. Both may reject, and neither proves:
after the installation the same is looked at on the disk, and a kernel runs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.machine.protocol import Rules
from gpuinstall.wheels.learned.row import LearnedRow, misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build
    from gpuinstall.catalog.extensions import Extension, ExtensionFile

    Read = Callable[[ExtensionFile, Build], LearnedRow]
    """Reads what a file says of itself; raises InstallationError if it cannot."""
    Pair = tuple[ExtensionFile, Build]
    """A file, and a build of torch beside which it may load."""

MOST_READ = 24
"""How many files of an extension to read, from 0.6 to 16 MB each; the rest is not looked at."""


@dataclass(frozen=True)
class Surroundings:
    """What an extension has to run in."""

    builds: Sequence[Build]
    """The builds of torch that run on the GPUs, the best first."""
    gpus: Sequence[tuple[Rules, Gpu]]
    tags: Collection[Tag]
    """Those of the wheels that fit Python and platform."""
    glibc: str | None = None
    """The machine's; None if it is not known."""
    locked: Mapping[str, str] = field(default_factory=dict)
    """The sha256, by name, of the files that a lock holds and that are to stay."""
    constraints: Mapping[Version, Sequence[Requirement]] = field(default_factory=dict)
    """What goes with a release of torch, whatever the files say of themselves."""

    def constraint(self, file: ExtensionFile, build: Build) -> Requirement | None:
        """Return what goes with a build of the package of a file; None if nothing is known of it."""
        for constraint in self.constraints.get(build.torch, ()):
            if constraint.name == file.wheel.package:
                return constraint
        return None


class ExtensionFit(NamedTuple):
    """A file, the build of torch that it loads beside, and what the file says of itself."""

    file: ExtensionFile
    build: Build
    row: LearnedRow


class ExtensionChoice(NamedTuple):
    """The best pair of a file and a build, and what was passed over for it."""

    fit: ExtensionFit | None
    rejected: tuple[Rejection[Pair], ...] = ()
    """The files, the newest first, each with the build that it came closest to."""

    refusal: Reason | None = None
    """Why no file of this extension can fit."""

    @property
    def closest(self) -> list[Rejection[Pair]]:
        """The files for this platform that were passed over, those that came closest first, of each reason one."""
        by_reason: dict[str, Rejection[Pair]] = {}
        for row in sorted(self.rejected, key=_closeness, reverse=True):
            if row.reason.code != "other-platform":
                by_reason.setdefault(row.reason.message, row)
        return list(by_reason.values())


def choose_extension(
    extension: Extension,
    files: Iterable[ExtensionFile],
    here: Surroundings,
    read: Read,
) -> ExtensionChoice:
    """Return the newest version of an extension that has a file for a build that runs here.

    For several builds, the newest torch. A file is read only if its name speaks for it, and no more
    once one fits, nor beyond ``MOST_READ``.
    """
    refusal = _refusal(extension, here)
    if refusal:
        return ExtensionChoice(None, refusal=refusal)
    rejected: dict[str, Rejection[Pair]] = {}

    def reject(pair: Pair, reason: Reason) -> None:
        """Keep of each file the reason of the build that it came closest to."""
        file, _ = pair
        known = rejected.get(file.wheel.url)
        if known is None or _STAGES.index(known.reason.code) < _STAGES.index(reason.code):
            rejected[file.wheel.url] = Rejection(pair, reason)

    pairs: list[Pair] = []
    for file in sorted(files, key=_age, reverse=True):
        for build in here.builds:
            reason = _reject_by_name(file, build, here)
            if reason:
                reject((file, build), reason)
            else:
                pairs.append((file, build))
    read_so_far: set[str] = set()
    for file, build in _preferred(pairs, here):
        read_so_far.add(file.wheel.url)
        if len(read_so_far) > MOST_READ:
            message = f"was not read: {MOST_READ} newer files do not run here"
            reject((file, build), Reason("not-read", message))
            break
        verdict = _judge(file, build, here, read)
        if isinstance(verdict, ExtensionFit):
            rejected.pop(file.wheel.url, None)
            return ExtensionChoice(verdict, tuple(rejected.values()))
        reject((file, build), verdict)
    return ExtensionChoice(None, tuple(rejected.values()))


def _refusal(extension: Extension, here: Surroundings) -> Reason | None:
    lowest = ComputeCapability.parse(extension.lowest or "0.0")
    for _, gpu in here.gpus:
        if gpu.compute_capability and gpu.compute_capability < lowest:
            need = f"{extension.name} requires compute capability {lowest} or newer"
            return Reason("no-code", f"{need}, and {gpu.label} has {gpu.compute_capability}")
    return None


def _judge(
    file: ExtensionFile,
    build: Build,
    here: Surroundings,
    read: Read,
) -> ExtensionFit | Reason:
    """Read a file and judge it beside a build."""
    try:
        row = read(file, build)
    except InstallationError as error:
        return Reason("not-read", f"cannot be read: {error.message}")
    return _reject_by_contents(file, row, build, here) or ExtensionFit(file, build, row)


def _reject_by_name(file: ExtensionFile, build: Build, here: Surroundings) -> Reason | None:
    """Return why a file is not for a build, by what its name says."""
    wheel = file.wheel
    if here.tags and wheel.tags.isdisjoint(here.tags):
        first, *others = sorted(map(str, wheel.tags))
        return Reason("other-platform", f"is for {first}{' and others' if others else ''}")
    if file.cpu and build.toolkit:
        return Reason("other-cuda", "is for the CPU alone")
    if file.cuda and not _has_major(build, file.cuda):
        kind = build.backend.kind.upper()
        return Reason("other-cuda", f"is for {kind} {file.cuda}, not for torch {build.name}")
    reason = _reject_other_torch(file, build, here)
    if reason:
        return reason
    locked = here.locked.get(wheel.filename)
    if locked and wheel.sha256 not in {None, locked}:
        hashes = f"sha256 {locked} is locked, {wheel.sha256} listed"
        return Reason("replaced", f"was replaced under its name: {hashes}")
    return None


def _reject_other_torch(
    file: ExtensionFile,
    build: Build,
    here: Surroundings,
) -> Reason | None:
    torch = build.torch
    is_for_torch = file.torch in {None, build.minor}
    if file.torch and file.and_newer:
        is_for_torch = torch >= Version(file.torch)
    if not is_for_torch:
        return Reason("other-torch", f"is for torch {file.torch}, not {torch}")
    constraint = here.constraint(file, build)
    if constraint and file.wheel.version not in constraint.specifier:
        message = f"does not go with torch {torch}, but {constraint} does"
        return Reason("other-torch", message)
    return None


def _has_major(build: Build, cuda: str) -> bool:
    major, _, _ = cuda.partition(".")
    return build.toolkit is not None and int(major) == build.toolkit[0]


def _reject_by_contents(
    file: ExtensionFile,
    row: LearnedRow,
    build: Build,
    here: Surroundings,
) -> Reason | None:
    """Return why a file does not run beside a build, by what its METADATA and its code say."""
    reason = _reject_by_torch(file, row, build, here)
    if reason:
        return reason
    if row.toolkit and build.toolkit and row.toolkit[0] != build.toolkit[0]:
        kind = build.backend.kind.upper()
        name = f"its name says {kind} {file.cuda}, and " if file.cuda else ""
        code = f"its code needs {kind} {row.toolkit[0]}, not {build.toolkit[0]}"
        return Reason("cuda-of-code", f"{name}{code}")
    if here.glibc and row.glibc and Version(row.glibc) > Version(here.glibc):
        message = f"its code requires glibc {row.glibc}, and this system has {here.glibc}"
        return Reason("glibc-too-old", message)
    why = misfit(row, build, here.gpus)
    return Reason("no-code", why) if why else None


def _reject_by_torch(
    file: ExtensionFile,
    row: LearnedRow,
    build: Build,
    here: Surroundings,
) -> Reason | None:
    """Return why a file does not load beside a torch: both METADATA and symbols must allow it.

    If the symbols cannot be judged, something has to name torch.
    """
    needs = row.of_torch
    torch = f"torch {build.torch}"
    name = f"its name says torch {file.torch}, and " if file.torch else ""
    pins = _torch_pins(row.requires)
    for pin in pins:
        if not pin.specifier.contains(build.torch):
            return Reason("torch-pinned", f"{name}its METADATA requires {pin}, not {torch}")
        is_exact = any(clause.operator == "==" for clause in pin.specifier)
        if is_exact and needs.kind == "none" and not row.architectures:
            # xformers 0.0.31 for Windows: its libraries have names that Python does not look for.
            message = f"its METADATA requires {pin}, and it has no library for it"
            return Reason("no-code", message)
    loads = needs.verdict(build.minor)
    if loads is None and not (file.torch or pins or here.constraint(file, build)):
        return Reason("torch-unknown", f"it shows no code for {torch}")
    if loads is False and needs.kind == "stable":
        oldest = needs.oldest or "newer than is known"
        return Reason("torch-abi", f"{name}its code needs torch {oldest}, not {torch}")
    if loads is False:
        code = f"its code works with {needs.torches}: {torch} lacks a symbol that it uses"
        return Reason("torch-abi", f"{name}{code}")
    return None


_STAGES = (
    "other-platform",
    "other-cuda",
    "other-torch",
    "replaced",
    "not-read",
    "torch-unknown",
    "torch-pinned",
    "torch-abi",
    "cuda-of-code",
    "glibc-too-old",
    "no-code",
)
"""What speaks against files; the further down, the closer one came."""


def _closeness(row: Rejection[Pair]) -> tuple[int, Version]:
    _, build = row.candidate
    return _STAGES.index(row.reason.code), build.torch


def _torch_pins(requires: Iterable[str]) -> list[Requirement]:
    pins = []
    for text in requires:
        with suppress(InvalidRequirement):
            pin = Requirement(text)
            if pin.name == "torch" and pin.specifier and "extra" not in str(pin.marker):
                pins.append(pin)
    return pins


def _age(file: ExtensionFile) -> tuple[bool, Version]:
    version = file.wheel.version
    return not version.is_prerelease, Version(version.public)


def _preferred(pairs: Iterable[Pair], here: Surroundings) -> list[Pair]:
    """Return pairs in order: the newest version, the best build, the first source.

    Then torch's very CUDA, and a name that says a glibc.
    """
    ranks = {build: rank for rank, build in enumerate(here.builds)}

    def pair_key(pair: Pair) -> tuple[object, ...]:
        file, build = pair
        toolkit = ".".join(map(str, build.toolkit or ()))
        is_vague = any(tag.platform.startswith("linux_") for tag in file.wheel.tags)
        return (
            ranks[build],
            file.source.rank,
            file.cuda != toolkit,
            is_vague,
            file.wheel.filename,
        )

    preferred = sorted(pairs, key=pair_key)
    preferred.sort(key=lambda pair: _age(pair[0]), reverse=True)
    return preferred
