"""Which packages load a library in another major version than the lock has: one with ``libcudss.so.1`` has no ``.so.0``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.wheels.needs import SharedLibrary, load_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from gpuinstall.catalog import Wheel
    from gpuinstall.wheels.learned.row import LearnedRow

    NamesIn = Callable[[Wheel], Collection[str]]
    """Returns the names of the files in a wheel."""


class OtherMajor(NamedTuple):
    """A library that a package loads, and that the lock has in another major version."""

    user: Wheel
    """The package that loads it."""

    library: str
    """As the package names it, ``libcudss.so.0``."""

    is_linked: bool
    """Whether the package is linked to it; else a part of the package opens it by name."""

    provider: Wheel
    """The package of the lock that has the other one."""

    other: str
    """The other one, ``libcudss.so.1``."""

    def __str__(self) -> str:
        loads = "is linked to" if self.is_linked else "opens"
        user = f"{self.user.package} {self.user.version}"
        provider = f"{self.provider.package} {self.provider.version}"
        return f"{user} {loads} {self.library}, and {provider} has {self.other}"


def other_majors(
    rows: Mapping[Wheel, LearnedRow],
    locked: Mapping[str, Wheel],
    cuda: int | None,
    names_in: NamesIn,
) -> Iterator[OtherMajor]:
    """Yield the libraries that packages load and the lock has in another major version.

    Args:
        rows: What the wheels of the lock say.
        locked: The wheels of the lock by their packages.
        cuda: The CUDA major of torch, for packages that do not tell their own.
        names_in: Reads the directory of a wheel.
    """
    table = load_libraries()
    for user, row in rows.items():
        major = row.toolkit[0] if row.toolkit else cuda
        reported = set[SharedLibrary]()
        for library in (*row.needs, *filter(_is_part, row.opens)):
            known = table.row(library)
            # A library that tells CUDA's major is judged by that.
            if known is None or known.ahead is not None or known in reported:
                continue
            provider = locked.get(known.package_for(major) or "")
            # Most packages have the major version of their library: their directory need not be read.
            if provider is None or provider.version.major == _major(library):
                continue
            names = names_in(provider)
            others = sorted(name for name in names if table.row(name) == known)
            if others and not has_library(names, library):
                # cuDNN consists of six parts.
                reported.add(known)
                yield OtherMajor(user, library, library in row.needs, provider, others[0])


def has_library(names: Collection[str], library: str) -> bool:
    """Whether a wheel with files of these names has a library."""
    return any(f"{name}.".startswith(f"{library}.") for name in names)


def newest_first(wheels: Collection[Wheel], library: str) -> list[Wheel]:
    """Return the versions of a library's package, those first that have its major version themselves."""
    return sorted(wheels, key=lambda wheel: wheel.version.major != _major(library))


def _is_part(library: str) -> bool:
    """Whether a name is that of a part, ``libcudnn_ops.so.9``: what opens it is no more than a stub of the whole."""
    return library.partition(".so")[0] not in load_libraries().rows


def _major(library: str) -> int | None:
    """Return the major version in the name of a library; None if it has none."""
    number = library.partition(".so.")[2].partition(".")[0]
    return int(number) if number.isdecimal() else None
