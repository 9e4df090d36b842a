"""Problems as values: ``data/problems.toml`` is the list of them; a diagnosis adds what happened and why."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.machine import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE = Path(__file__).with_name("data") / "problems.toml"


@dataclass(frozen=True)
class FixContext:
    """Where a fix will be applied: the keys of the fixes that fit, the closest first, and the words they need."""

    keys: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()

    def knowing(self, **words: object) -> FixContext:
        """Add words that fixes may name."""
        return FixContext(self.keys, (*self.words, *((name, str(word)) for name, word in words.items())))

    def fitting(self, *, legacy: bool) -> Iterator[str]:
        """List the keys to try; for an old GPU, each with its ``-legacy`` form first."""
        for key in (*self.keys, "any"):
            yield from ((f"{key}-legacy", key) if legacy else (key,))


def problem(
    code: str,
    message: str,
    place: FixContext,
    *,
    why: str | None = None,
    seen: str | None = None,
    gpus: tuple[int, ...] = (),
    blocking: bool = True,
    legacy: bool = False,
) -> Problem:
    """Make a problem of the list; raise KeyError for a slug that is not on it."""
    row = _rows()[code]
    return Problem(
        code=code,
        message=message,
        fix=fix_of(row.get("fix"), place, legacy=legacy),
        id=row.get("id"),
        blocking=blocking,
        gpus=gpus,
        why=why,
        seen=seen,
        needs=tuple(row.get("needs", ())),
    )


def fix_of(fixes: str | Mapping[str, str] | None, place: FixContext, *, legacy: bool = False) -> str | None:
    """Choose the commands for a place out of a table, or of a shared one by its name."""
    table: Mapping[str, str] = _rows()["fixes"][fixes] if isinstance(fixes, str) else fixes or {}
    chosen = next((table[key] for key in place.fitting(legacy=legacy) if key in table), None)
    return chosen and chosen.format_map(_Words(place.words))


def codes() -> dict[str, str | None]:
    """List every slug of the file with its entry in the failure catalogue."""
    return {code: row.get("id") for code, row in _rows().items() if code != "fixes"}


class _Words(dict[str, str]):
    """A word that nobody knew stays as its own name."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


@cache
def _rows() -> Mapping[str, Any]:
    import tomli

    return tomli.loads(FILE.read_text(encoding="utf-8"))
