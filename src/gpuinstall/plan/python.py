"""Python is part of the plan: kept where it is fixed, else the best one for the build."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.plan.demand import Demand


def python_for(pythons: tuple[str, ...], demand: Demand, machine: Machine, catalog: Catalog) -> str | Reason:
    """Choose the ``X.Y`` for a build that has wheels for ``pythons``, or say why there is none.

    The order: what is fixed; the Python of the environment being replaced and the one running; the newest at hand;
    one that can be fetched.
    """
    fitting = [python for python in pythons if demand.suits(python)]
    if not fitting:
        return Reason(
            "python-unsupported", f"{_have_wheels(demand, catalog)} for Python {span(pythons)}, not {demand.python}"
        )
    if not isinstance(demand.python, str):
        fitting = [python for python in fitting if not python.endswith("t")]
    for python in _at_hand(demand.preferred, machine):
        if python in fitting:
            return python
    if fitting and (demand.managed or machine.pythons is None):
        return _well_supported(fitting, catalog.settled_python)
    here = ", ".join(dict.fromkeys(minor(python) for python in machine.pythons or ())) or "none"
    return Reason(
        "no-python", f"it needs Python {span(fitting or pythons)}; at hand are {here}, and no other can be had"
    )


def nearest_python(pythons: Sequence[str], demand: Demand) -> str | None:
    """Of the Pythons that would do, the one nearest to what was asked for."""
    wheels = [python for python in pythons if not python.endswith("t")]
    named = [demand.python] if isinstance(demand.python, str) else [one.version for one in demand.python or ()]
    asked = [number(python.removesuffix(".*"))[:2] for python in named if python[:2] == "3."]
    return min(wheels, key=lambda python: (_distance(python, asked), number(python)), default=None)


def _distance(python: str, asked: Sequence[tuple[int, ...]]) -> int:
    """How many minor versions a Python is away from the nearest of some."""
    return min((abs(number(python)[1] - minor) for _, minor in asked), default=0)


def in_order(pythons: Sequence[str], preferred: Sequence[str], machine: Machine) -> list[str]:
    """Sort Pythons as they are tried: those preferred and at hand, then the newest."""
    first = (python.removesuffix("t") for python in _at_hand(preferred, machine))
    newest_first = sorted(pythons, key=number, reverse=True)
    return list(dict.fromkeys((*(python for python in first if python in pythons), *newest_first)))


def _at_hand(preferred: Sequence[str], machine: Machine) -> tuple[str, ...]:
    here = sorted(map(minor, machine.pythons or ()), key=number, reverse=True)
    return (*preferred, *here)


def span(pythons: Sequence[str]) -> str:
    """Write the Pythons of a build for people: ``3.11 to 3.15``."""
    minors = sorted({python.removesuffix("t") for python in pythons}, key=number)
    return " to ".join(dict.fromkeys((minors[0], minors[-1]))) if minors else "none"


@cache
def number(python: str) -> tuple[int, ...]:
    """Read ``"3.12"`` or ``"3.13t"`` as a sortable number."""
    return tuple(int(part) for part in python.removesuffix("t").split("."))


def minor(python: str) -> str:
    """Shorten ``"3.12.1"`` to ``"3.12"``, ``"3.13.0t"`` to ``"3.13t"``."""
    return ".".join(python.removesuffix("t").split(".")[:2]) + "t" * python.endswith("t")


def _have_wheels(demand: Demand, catalog: Catalog) -> str:
    """Name the build, and the companions asked for whose Pythons are counted."""
    counted = {package for package, _ in catalog.companions}
    companions = [name for name in demand.family if name in counted]
    return f"it and {' and '.join(companions)} have wheels" if companions else "it has wheels"


def _well_supported(pythons: list[str], newest: str) -> str:
    supported = [python for python in pythons if number(python) <= number(newest)]
    return max(supported, key=number) if supported else min(pythons, key=number)
