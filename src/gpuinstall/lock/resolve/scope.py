"""Decide which packages of an answer are inspected, and which decide.

All functions are pure: they use the question, the answer, and uv's log.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from gpuinstall.base.requirement import Requirement
from gpuinstall.base.values import Value
from gpuinstall.catalog import PAIRED, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.file.target import select_best_files
from gpuinstall.lock.resolve.facts import Answer
from gpuinstall.lock.resolve.question import Question
from gpuinstall.lock.uv.edges import UvLog
from gpuinstall.wheels.compatibility import OTHER_TORCH, Compatibility
from gpuinstall.wheels.inspector import is_core
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import parse_name_cuda
from gpuinstall.wheels.package import remove_cuda_label


class Scope(Value):
    """The packages of an answer, and how much each of them decides."""

    question: Question
    answer: Answer

    log: UvLog
    """The dependencies of all releases that uv tried."""

    requested: frozenset[str]
    """The requested packages, and what local projects and extras add."""

    @cached_property
    def wheels(self) -> Sequence[Wheel]:
        """The wheels that would be installed.

        A lock may have several wheels of a package, for different glibc versions.
        """
        others = [one for one in self.answer.wheels if one.package not in PAIRED]
        tags = self.question.tags
        return select_best_files(others, tags, lambda wheel: wheel.package)

    def find_dependencies(self, package: str) -> Sequence[Requirement]:
        """Return the dependencies of a package at its resolved version."""
        version = self.answer.versions.get(package, "")
        return self.log.find_dependencies(package, version)

    @cached_property
    def torch_requirements(self) -> list[Requirement]:
        """The requirements of torch and of its libraries.

        Packages that satisfy these requirements are compatible in any request.
        """
        found = [Requirement.of("torch")]
        # The list grows while it is read.
        for required in found:
            further = self.find_dependencies(required.name)
            found += [one for one in further if one not in found]
        return found

    @cached_property
    def distances(self) -> dict[str, int]:
        """Each package's distance from the request."""
        distances = dict.fromkeys(sorted(self.requested), 0)
        pending = [*distances]
        # The list grows while it is read.
        for package in pending:
            for one in self.find_dependencies(package):
                if one.name not in distances:
                    distances[one.name] = distances[package] + 1
                    pending.append(one.name)
        return distances

    def is_requested(self, package: str) -> bool:
        """Return whether a package is requested, maybe without its CUDA label.

        ``holoscan`` consists of the packages that ``holoscan-cu13`` requires.
        """
        names = {package, remove_cuda_label(package)}
        return not names.isdisjoint(self.requested)

    def is_decisive(self, package: str) -> bool:
        """Return whether a package is requested or a core package."""
        return self.is_requested(package) or is_core(package)

    def is_for_gpus(self, package: str) -> bool:
        """Return whether the name or requirements indicate GPU code."""
        members = load_members()
        # METADATA of torchcodec does not require torch.
        return (
            package in self.question.catalog.family
            or package in self.log.of_cuda_extras
            or members.named_for_gpus.fullmatch(package) is not None
            or any(
                members.compiled_with.fullmatch(one.name)
                for one in self.find_dependencies(package)
            )
        )

    def is_optional(self, package: str) -> bool:
        """Return whether a package or its GPU code is optional."""
        request = self.question.lock_request.request
        pinned = [one.name for one in request.requirements if one.is_exact]
        if package in pinned and load_members().works_on_cpu.fullmatch(package):
            return True
        extension = load_extensions().rows.get(package)
        is_frozen = self.question.is_frozen
        if extension is None or (package in self.requested and not is_frozen):
            return False
        return bool(extension.optional_for & {*self.requested, "*"})

    def decides(self, found: Compatibility) -> bool:
        """Return whether a wheel may change the versions of other packages."""
        package = found.wheel.package
        if self.is_optional(package) or works_without(found):
            return False
        has_row = load_members().lowest_chip(package, found.wheel.version)
        is_certain = self.is_decisive(package) or bool(has_row)
        return is_certain or self._decides_as_dependency(found)

    def _decides_as_dependency(self, found: Compatibility) -> bool:
        """Return whether a dependency may change other packages.

        The CUDA version in its name, other symbols of torch, and missing code only
        cause a warning: sglang 0.5.23 loads sgl-deep-ep on demand. So does a package
        such as gpt4all 2.8.2, whose name and requirements indicate no need of a GPU.
        """
        package, row = found.wheel.package, found.row
        if not self.is_for_gpus(package):
            return False
        if not found.unusable:
            reason = found.reason(self.answer.torch)
            return reason is None or reason.code != OTHER_TORCH
        is_linked = bool(row.linked) or not parse_name_cuda(package)
        return is_linked and not row.codes


def works_without(found: Compatibility) -> bool:
    """Return whether a package works without its rejected library."""
    return load_members().is_optional(found.wheel.package, found.row.witness or "")
