"""What one wheel said of itself, as it is kept and shown; and whether a package with GPU code runs on GPUs. Pure."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import tomli
from packaging.version import Version

from gpuinstall.backend import Backend
from gpuinstall.catalog import DEFAULT_INDEX, Build
from gpuinstall.vendors.protocol import Code, Rules
from gpuinstall.wheels.needs import TorchNeeds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.machine import Gpu

    RulesOfGpus = Iterable[tuple[Rules, Gpu]]

_LISTS = ("architectures", "requires", "pythons", "needs", "opens")
_ARCHITECTURE = re.compile(r"(sm|compute)_[0-9]{2,3}[af]?|gfx[0-9a-f]{3,5}")
_PIN = re.compile(r"([\w.-]+) ?\(?== ?([0-9]+(?:\.[0-9]+){1,3})\)? ?(?:;.*)?", re.ASCII)
_SHOWN = ("package", "version", "backend", "platform", "architectures", "cuda", "file", "sha256", "bytes", "requests")


@dataclass(frozen=True)
class LearnedRow:
    """A wheel of torch, or of a package with GPU code as it runs beside the torch of ``backend``.

    ``platform`` is ``linux-x86_64``; ``architectures`` are empty where the wheel does not say; ``cuda`` is what torch
    was made with, or what a package's PTX asks of the driver; ``witness`` is the part of the wheel that was asked;
    ``requires`` are the demands of its METADATA. ``etag`` and ``size`` tell whether the file at ``url`` is still the
    same where no ``sha256`` does. ``bytes`` and ``requests`` are what reading it has cost, ``learned`` is when, in UTC.
    ``needs``, ``opens``, ``glibc`` and ``torch`` are what a package's code needs: see ``Needs``.
    The rest is what the index said of a torch, ``glibc`` too: see ``Build``.
    """

    package: str
    version: str
    backend: str
    platform: str
    file: str
    url: str
    size: int
    bytes: int
    requests: int
    learned: str
    architectures: tuple[str, ...] = ()
    cuda: str | None = None
    witness: str | None = None
    sha256: str | None = None
    etag: str | None = None
    requires: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    glibc: str | None = None
    source: str = ""
    """The address or the folder that lists it; empty: the default index."""
    labelled: bool = False
    needs: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    torch: TorchNeeds | None = None

    @classmethod
    def parse(cls, text: str) -> LearnedRow:
        """Read a row as TOML; raise ValueError or TypeError where it is none."""
        document = tomli.loads(text)
        lists = {key: tuple(document.get(key, ())) for key in _LISTS}
        torch = document.get("torch")
        row = cls(**document | lists | {"torch": torch and _parse_torch(torch)})
        Version(row.version), Backend.parse(row.backend)
        zone = datetime.fromisoformat(row.learned).tzinfo
        if zone is None or not all(map(_ARCHITECTURE.fullmatch, row.architectures)):
            raise ValueError("an unknown architecture, or a time without a zone")
        return row

    def render(self) -> str:
        """Write it as TOML."""
        import tomli_w

        document = {key: value for key, value in asdict(self).items() if value not in (None, ())}
        if self.torch:
            document["torch"] = {key: value for key, value in asdict(self.torch).items() if value is not None}
        return tomli_w.dumps(document)

    def to_dict(self) -> dict[str, Any]:
        """Write it as the documents of ``catalog`` hold it."""
        shown = {key: getattr(self, key) for key in _SHOWN}
        lists = {key: list(getattr(self, key)) for key in ("architectures", "needs", "opens")}
        needs = self.torch or TorchNeeds()
        fits = None if needs.fits is None else list(needs.fits)
        torch = {"kind": needs.kind, "min": needs.oldest, "fits": fits}
        return shown | lists | {"torch": torch, "glibc": self.glibc, "witness": self.witness, "learned": self.learned}

    @property
    def of_torch(self) -> TorchNeeds:
        """Which torch a package's code loads beside."""
        return self.torch or TorchNeeds("unknown")

    @property
    def day(self) -> str:
        """The day on which it was read."""
        return self.learned[:10]

    @property
    def base(self) -> str | None:
        """The torch index that it was found on; None is the default index."""
        return self.source.removesuffix(f"/{self.backend}") or None

    @property
    def toolkit(self) -> tuple[int, int] | None:
        """The CUDA that it was made with."""
        match = re.match(r"([0-9]{1,3})\.([0-9]{1,2})", self.cuda or "")
        return (int(match[1]), int(match[2])) if match else None

    def build(self) -> Build:
        """Describe a torch as the catalogue describes builds."""
        os, _, arch = self.platform.partition("-")
        return Build(
            torch=Version(self.version),
            backend=Backend.parse(self.backend),
            os=os,
            arch=arch,
            code=self.architectures,
            toolkit=self.toolkit,
            libraries=tuple(_libraries(self.requires)),
            pythons=self.pythons,
            glibc=self.glibc,
            confidence="medium",
            on_default_index=not self.source,
            labelled=self.labelled,
            source=self.source or DEFAULT_INDEX,
            learned=self.day,
        )


def _parse_torch(table: dict[str, Any]) -> TorchNeeds:
    lists: dict[str, Any] = {key: tuple(table[key]) for key in ("fits", "judged") if key in table}
    return TorchNeeds(**{**table, **lists})


def as_build(row: LearnedRow, build: Build) -> Build:
    """What the rules are asked about a package: a build with its code and its toolkit."""
    return replace(build, code=row.architectures, toolkit=row.toolkit or build.toolkit, libraries=())


def without_code(row: LearnedRow, build: Build, gpus: RulesOfGpus) -> list[tuple[Rules, Gpu]]:
    """The GPUs that a package with GPU code has none for."""
    made = as_build(row, build)
    return [(rules, gpu) for rules, gpu in gpus if row.architectures and not isinstance(rules.code(made, gpu), Code)]


def misfit(row: LearnedRow, build: Build, gpus: RulesOfGpus) -> str | None:
    """Say why a package does not run on the GPUs; one without GPU code or a CUDA of its own runs everywhere."""
    served, made = tuple(gpus), as_build(row, build)
    if without := without_code(row, build, served):
        names = " and ".join(dict.fromkeys(gpu.label for _, gpu in without))
        return f"has no code for {names}: {row.witness} has {' '.join(row.architectures)}"
    for rules, _ in served:
        if refused := rules.against_driver(made):
            return f"does not run on {rules.driver}: {made_with(row, made, rules)}, and {refused.message}"
    return None


def made_with(row: LearnedRow, made: Build, rules: Rules) -> str:
    """Say what a package was made with."""
    return f"{row.witness or row.file} is built with {rules.software} {'.'.join(map(str, made.toolkit or ()))}"


def _libraries(requires: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The cuDNN that a torch pins."""
    for pin in filter(None, map(_PIN.fullmatch, requires)):
        if "cudnn" in re.split("[-_.]", pin[1]):
            yield "cudnn", pin[2]
