"""The versions of a project's own lock, uv's, Poetry's or PDM's: they stay, but for what comes with torch's build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.loader import load_catalog
from gpuinstall.errors import UsageError
from gpuinstall.files import parse_toml
from gpuinstall.plan.requirement import normalised
from gpuinstall.requirements_file import read_listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TEAM_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")


def team_lock_in(folder: Path) -> Path | None:
    """The lock that the tool of a project keeps; None where there is none."""
    return next((folder / name for name in TEAM_LOCKS if (folder / name).is_file()), None)


def read_team_lock(path: Path, markers: Mapping[str, str]) -> tuple[str, ...]:
    """Read the versions that it holds, as ``name==version``, for the machine and the Python of ``markers``.

    Those of torch's companions are without their labels; the libraries of its build are left out. Raise UsageError
    where it is malformed.
    """
    from packaging.markers import Marker

    catalog, held = load_catalog(), dict[str, str]()
    try:
        for row in parse_toml(read_listed(path, path.parent)).get("package", ()):
            name, version, conditions = normalised(row["name"]), row.get("version"), list(_conditions(row))
            is_here = not conditions or any(Marker(text).evaluate(dict(markers)) for text in conditions)
            if version and is_here and (name in catalog.family or not catalog.is_tied(name)):
                held[name] = version.partition("+")[0] if name in catalog.family else version
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        message = f"{path.name} is malformed: {' '.join(str(error).split())}"
        raise UsageError("team-lock-malformed", message, hint="Repair it, or use --no-project") from None
    return tuple(f"{name}=={version}" for name, version in sorted(held.items()))


def _conditions(row: Mapping[str, Any]) -> Iterator[str]:
    """The markers of which one has to hold: uv's list of them, PDM's text, Poetry's text or table by group."""
    written = row.get("resolution-markers") or row.get("markers") or row.get("marker") or ()
    yield from [written] if isinstance(written, str) else written.values() if isinstance(written, dict) else written
