"""The joint choice of an extension's file and torch's build: rule 13 of the choice. Pure, but for what ``read`` does.

A file and a build are judged first by what names say, for nothing, then by what the file itself says, read by range.
Both may reject, and neither proves: after the installation the same is looked at on the disk, and a kernel runs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpuinstall.errors import InstallationError
from gpuinstall.finding import Reason, Rejection
from gpuinstall.learned.row import LearnedRow, misfit
from gpuinstall.vendors.protocol import Rules
from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog import Build
    from gpuinstall.extensions.rows import Extension, ExtensionFile
    from gpuinstall.machine import Gpu

    Read = Callable[[ExtensionFile, Build], LearnedRow]
    """Reads what a file says of itself; raises InstallationError where it cannot."""
    Pair = tuple[ExtensionFile, Build]
    """A file, and a build of torch beside which it may load."""

MOST_READ = 24
"""How many files of an extension to read, from 0.6 to 16 MB each, before saying that the rest was not looked at."""
_STAGES = (
    "other-platform other-cuda other-torch replaced not-read torch-unknown torch-pinned torch-abi cuda-of-code "
    "glibc-too-old no-code"
)
"""What speaks against files; the further down, the closer one came."""


@dataclass(frozen=True)
class Surroundings:
    """What an extension has to run in: the ``builds`` of torch that run on the GPUs, the best first, and their place.

    ``tags`` are those of the wheels that fit Python and platform, ``glibc`` is the machine's, None where not known.
    ``locked`` has the sha256 of the files that a lock holds and that are to stay, by name.
    """

    builds: Sequence[Build]
    gpus: Sequence[tuple[Rules, Gpu]]
    tags: Collection[Tag]
    glibc: str | None = None
    locked: Mapping[str, str] = field(default_factory=dict)


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
        rows = sorted(self.rejected, key=_closeness, reverse=True)
        reasons = {row.reason.message: row for row in reversed(rows) if row.reason.code != "other-platform"}
        return list(reversed(reasons.values()))


def _closeness(row: Rejection[Pair]) -> tuple[int, Version]:
    _, build = row.candidate
    return _STAGES.index(row.reason.code), build.torch


def choose_extension(
    extension: Extension, files: Iterable[ExtensionFile], here: Surroundings, read: Read
) -> ExtensionChoice:
    """Choose the newest version of an extension that has a file for a build that runs here, then the newest torch.

    A file is read only where its name speaks for it, and no more once one fits, nor beyond ``MOST_READ``.
    """
    lowest = ComputeCapability.parse(extension.lowest or "0.0")
    capable = ((gpu.label, gpu.compute_capability) for _, gpu in here.gpus if gpu.compute_capability)
    if low := next((f"{label} has {has}" for label, has in capable if has < lowest), None):
        why = f"{extension.name} requires compute capability {lowest} or newer, and {low}"
        return ExtensionChoice(None, (), Reason("no-code", why))
    rejected: dict[str, Rejection[Pair]] = {}

    def reject(file: ExtensionFile, build: Build, reason: Reason) -> None:
        """Keep of each file the reason of the build that it came closest to."""
        known = rejected.get(file.wheel.url)
        if known is None or _STAGES.index(known.reason.code) < _STAGES.index(reason.code):
            rejected[file.wheel.url] = Rejection((file, build), reason)

    pairs: list[Pair] = []
    for file in sorted(files, key=_age, reverse=True):
        for build in here.builds:
            if reason := reject_by_name(file, build, here):
                reject(file, build, reason)
            else:
                pairs.append((file, build))
    read_so_far: set[str] = set()
    for file, build in _preferred(pairs, here):
        read_so_far.add(file.wheel.url)
        if len(read_so_far) > MOST_READ:
            reject(file, build, Reason("not-read", f"was not read: {MOST_READ} newer files do not run here"))
            break
        verdict = judge_file(file, build, here, read)
        if isinstance(verdict, ExtensionFit):
            others = (rejection for url, rejection in rejected.items() if url != file.wheel.url)
            return ExtensionChoice(verdict, tuple(others))
        reject(file, build, verdict)
    return ExtensionChoice(None, tuple(rejected.values()))


def judge_file(file: ExtensionFile, build: Build, here: Surroundings, read: Read) -> ExtensionFit | Reason:
    """Read a file and judge it beside a build."""
    try:
        row = read(file, build)
    except InstallationError as error:
        return Reason("not-read", f"cannot be read: {error.message}")
    return reject_by_contents(file, row, build, here) or ExtensionFit(file, build, row)


def reject_by_name(file: ExtensionFile, build: Build, here: Surroundings) -> Reason | None:
    """Return why a file is not for a build, by what its name says."""
    if here.tags and file.wheel.tags.isdisjoint(here.tags):
        tags = sorted(map(str, file.wheel.tags))
        return Reason("other-platform", f"is for {tags[0]}{' and others' if len(tags) > 1 else ''}")
    if file.cpu and build.toolkit:
        return Reason("other-cuda", "is for the CPU alone")
    if file.cuda and (build.toolkit is None or int(file.cuda.partition(".")[0]) != build.toolkit[0]):
        return Reason("other-cuda", f"is for {_kind(build)} {file.cuda}, not for torch {build.name}")
    if file.torch and file.torch != minor_of(build):
        return Reason("other-torch", f"is for torch {file.torch}, not {build.torch}")
    locked, wheel = here.locked.get(file.wheel.filename), file.wheel
    if locked and wheel.sha256 not in {None, locked}:
        return Reason("replaced", f"was replaced under its name: sha256 {locked} is locked, {wheel.sha256} listed")
    return None


def reject_by_contents(file: ExtensionFile, row: LearnedRow, build: Build, here: Surroundings) -> Reason | None:
    """Return why a file does not run beside a build, by what its METADATA and its code say."""
    if reason := _reject_by_torch(file, row, build):
        return reason
    if row.toolkit and build.toolkit and row.toolkit[0] != build.toolkit[0]:
        named = f"its name says {_kind(build)} {file.cuda}, and " if file.cuda else ""
        return Reason("cuda-of-code", f"{named}its code needs {_kind(build)} {row.toolkit[0]}, not {build.toolkit[0]}")
    if here.glibc and row.glibc and Version(row.glibc) > Version(here.glibc):
        return Reason("glibc-too-old", f"its code requires glibc {row.glibc}, and this system has {here.glibc}")
    why = misfit(row, build, here.gpus)
    return Reason("no-code", why) if why else None


def _reject_by_torch(file: ExtensionFile, row: LearnedRow, build: Build) -> Reason | None:
    """Take what both METADATA and symbols allow; where the symbols cannot be judged, something has to name torch."""
    needs, torch = row.of_torch, f"torch {build.torch}"
    said = f"its name says torch {file.torch}, and " if file.torch else ""
    pins = list(_torch_pins(row.requires))
    if wrong := next((pin for pin in pins if not pin.specifier.contains(build.torch)), None):
        return Reason("torch-pinned", f"{said}its METADATA requires {wrong}, not {torch}")
    loads = needs.verdict(minor_of(build))
    if loads is None and not file.torch and not pins:
        return Reason("torch-unknown", f"it shows no code for {torch}")
    if loads is not False:
        return None
    if needs.kind == "stable":
        return Reason("torch-abi", f"{said}its code needs torch {needs.oldest or 'newer than is known'}, not {torch}")
    fits = f"torch {' and '.join(needs.fits)}" if needs.fits else "no torch that is known"
    return Reason("torch-abi", f"{said}its code works with {fits}: {torch} lacks a symbol that it uses")


def _torch_pins(requires: Iterable[str]) -> Iterator[Requirement]:
    for text in requires:
        with suppress(InvalidRequirement, RecursionError):
            pin = Requirement(text)
            if pin.name == "torch" and pin.specifier and "extra" not in str(pin.marker):
                yield pin


def _age(file: ExtensionFile) -> tuple[bool, Version]:
    return not file.wheel.version.is_prerelease, Version(file.wheel.version.public)


def _preferred(pairs: Iterable[Pair], here: Surroundings) -> list[Pair]:
    """Sort pairs: the newest version, the best build, the first source, torch's very CUDA, a name that says a glibc."""
    ranks = {build: rank for rank, build in enumerate(here.builds)}

    def pair_key(pair: Pair) -> tuple[object, ...]:
        file, build = pair
        is_other_cuda = file.cuda != ".".join(map(str, build.toolkit or ()))
        is_vague = any(tag.platform.startswith("linux_") for tag in file.wheel.tags)
        return ranks[build], file.source.rank, is_other_cuda, is_vague, file.wheel.filename

    return sorted(sorted(pairs, key=pair_key), key=lambda pair: _age(pair[0]), reverse=True)


def minor_of(build: Build) -> str:
    """Its torch's minor release, as ``2.13``."""
    return "{}.{}".format(*build.torch.release)


def _kind(build: Build) -> str:
    return build.backend.kind.upper()
