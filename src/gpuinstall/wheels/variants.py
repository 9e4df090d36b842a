"""Variants of wheels (a draft), as ``{name}-{version}-variants.json`` describes them: GPU code for a kilobyte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gpuinstall.files import parse_json
from gpuinstall.wheels.gpu_code import ordered

_ARCHITECTURE = re.compile(r"([0-9]{2,3}[af]?)(?:_(real|virtual))?", re.ASCII)
_MOST = 1 << 20


@dataclass(frozen=True)
class Variant:
    """What a label stands for: the code in its wheels, and the CUDA that they are for, ``at_least`` and ``below``."""

    architectures: tuple[str, ...]
    at_least: tuple[int, ...] | None = None
    below: tuple[int, ...] | None = None

    def is_for(self, version: tuple[int, ...]) -> bool:
        """Say whether a version of the toolkit lies within its bounds."""
        return (self.at_least or version) <= version and (self.below is None or version < self.below)


@cache
def load_vocabulary() -> Mapping[str, Mapping[str, str]]:
    """Load the names that properties have, by the kind of backend."""
    from pathlib import Path

    import tomli

    return tomli.loads(Path(__file__).with_name("variants.toml").read_text("utf-8"))


def parse_variants(text: str, kind: str) -> dict[str, Variant]:
    """Read the variants for a kind of backend, by label; those that name no architecture are left out.

    Raise ValueError where the text is no such file.
    """
    words = load_vocabulary().get(kind)
    if words is None:
        return {}
    try:
        if len(text) > _MOST:
            raise ValueError("too long")
        name, rows = words["namespace"], parse_json(text)["variants"]
        variants = {label: _variant(spaces[name], words) for label, spaces in rows.items() if name in spaces}
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("it describes no variants") from error
    return {label: variant for label, variant in variants.items() if variant.architectures}


def _variant(features: Mapping[str, Any], words: Mapping[str, str]) -> Variant:
    return Variant(
        architectures=ordered(_code(features.get(words["architectures"], ()))),
        at_least=max(map(_version, features.get(words["at_least"], ())), default=None),
        below=min(map(_version, features.get(words["below"], ())), default=None),
    )


def _code(values: Iterable[str]) -> Iterator[str]:
    """``90_real`` is machine code, ``90_virtual`` PTX, ``90`` both."""
    for value in values:
        match = _ARCHITECTURE.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r} is no architecture")
        if match[2] != "virtual":
            yield f"sm_{match[1]}"
        if match[2] != "real":
            yield f"compute_{match[1]}"


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
