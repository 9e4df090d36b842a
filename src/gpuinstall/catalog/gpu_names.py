"""A GPU found by its name, as people, shops, ``nvidia-smi`` and MIG write it.

A name is read exactly, or as the same model in another form (laptop, PCIe, 80 GB), or as part of
longer names; if those run different code it is ambiguous, never guessed. Each maker's names are
read alike; a number that several makers sell is ambiguous too.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import NoBuildError, UsageError
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.catalog.gpus import (
    NameTable,
    load_gpus,
    name_tables,
    other_chips,
    products,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.base.versions import ComputeCapability

    _Words = tuple[str, ...]

FORM = re.compile(
    r"sxm\d*|pcie|hbm\d*e?|nvl\d*|\d+gb?|laptop|mobile|notebook|with|maxq|design|gpu|"
    r"graphics|device|developer|kit|module|nvgpu"
)
"""The words of a name that tell one form of a model from another."""
_SEPARATORS = re.compile(r"[\W_]+")
_SERIES = frozenset({"gt", "gtx", "rtx", "rx"})
"""The words before a number that people leave out: 780M is one of two makers, 7900 XTX of one."""
_LONGEST = 200
"""The letters that are read: no name of a GPU has half as many."""
_COUNT = re.compile(r"\A(?P<count>[1-9]\d?) ?[x×*] ?(?=[A-Za-z])")
"""How many of a GPU there are: 4x A100, 8×H100."""
_MIG = re.compile(r" (mig\b|(\dc )?\dg \d+gb).*")
_ASK_THE_DRIVER = (
    "nvidia-smi -L prints its name; "
    "nvidia-smi --query-gpu=compute_cap --format=csv what it can execute, where 8.9 is --gpu sm_89"
)
_NEAR = 0.75
"""The least likeness of a suggestion: a name of four letters, such as B580, may differ in one."""


class NamedGpu(NamedTuple):
    """A GPU by its name: a product, its chip, or the name of its code."""

    name: str
    chip: str
    maker: str
    brand: str
    capability: ComputeCapability | None = None
    """NVIDIA's have one."""
    architecture: str | None = None
    """The name of the code that another maker's runs."""
    os: str | None = None
    """The only system that has it; None: any."""
    arm: bool = False
    """Whether it is sold beside 64-bit ARM processors alone."""

    @property
    def code(self) -> str:
        """The name of the code that it runs."""
        return self.capability.sm if self.capability else str(self.architecture)

    @property
    def full_name(self) -> str:
        """Its name with its maker's before it, which NVIDIA's products do without."""
        if self.capability or self.name.startswith(self.brand):
            return self.name
        return f"{self.brand} {self.name}"


def counted_names(name: str) -> list[str]:
    """Return the name of each GPU that a name such as ``4x A100`` stands for."""
    count = _COUNT.match(name)
    if count is None:
        return [name]
    return [name[count.end() :]] * int(count["count"])


@cache
def find_gpu(name: str) -> NamedGpu:
    """Return the GPU of a name; with the name as written if several run the same code.

    Raises:
        UsageError: if no GPU has the name, or several that run different code.
        NoBuildError: if no build is known for the GPU.
    """
    name = _COUNT.sub("", name[:_LONGEST])
    text = _spaced(name)
    makers = _makers_of(text)
    matches = _matches(text, makers)
    _require_a_build(name, makers, matches)
    if not matches:
        hint = _suggestion(text, makers) or _ASK_THE_DRIVER
        raise UsageError(
            "gpu-unknown",
            f"unknown GPU: {name!r}",
            hint=hint,
        )
    if len({gpu.code for gpu in matches}) > 1:
        hint = f"Use {_examples(matches)}"
        raise UsageError(
            "gpu-ambiguous",
            f"{name!r} is ambiguous",
            hint=hint,
        )
    first = matches[0]
    if len({gpu.name for gpu in matches}) == 1:
        return first
    written = name.replace("_", " ").strip()
    without_brand = re.sub(
        rf"^{first.brand}[\s-]+",
        "",
        written,
        flags=re.IGNORECASE,
    )
    return first._replace(name=without_brand)


def _makers_of(text: str) -> Sequence[NameTable]:
    """Return the makers that a word of a name belongs to, else all."""
    words = text.split()
    makers = [table for table in name_tables() if not table.marks.isdisjoint(words)]
    return makers or name_tables()


def _require_a_build(
    name: str,
    makers: Sequence[NameTable],
    matches: Sequence[NamedGpu],
) -> None:
    """Raise NoBuildError if a name is of a series that no build is known for."""
    text = _spaced(name)
    for row in load_gpus()["no_builds"]:
        own = [table for table in makers if table.brand == row["maker"]]
        if not own or not re.search(row["names"], text):
            continue
        hint = row["instead"]
        if not row["older"]:
            # A newer series: a GPU that is known has builds, and else its name may be mistyped.
            if matches:
                return
            hint = _suggestion(text, own) or hint
        message = f"no build of torch is known for {row['maker']}'s {name}"
        raise NoBuildError(
            "gpu-not-supported",
            message,
            hint=hint,
        )


def _matches(
    text: str,
    makers: Iterable[NameTable],
) -> list[NamedGpu]:
    """Return the GPUs of a name; if several makers have some, those with just its number come first."""
    matches: list[NamedGpu] = []
    exact: list[NamedGpu] = []
    makers_with_matches = 0
    for table in makers:
        entries = _of_maker(text, table)
        number = _number(_words(text, table))
        makers_with_matches += bool(entries)
        matches += [entry.gpu for entry in entries]
        exact += [entry.gpu for entry in entries if _number(entry.words) == number]
    if makers_with_matches > 1 and exact:
        return exact
    return matches


def _of_maker(text: str, table: NameTable) -> list[_Entry]:
    """Return a maker's GPUs of a name as it is, else as a slice of a card, else without Quadro."""
    for reading in (text, _MIG.sub("", text), text.replace("quadro ", "")):
        entries = _matching(_words(reading, table), table)
        if entries:
            return entries
    return []


def _matching(words: _Words, table: NameTable) -> list[_Entry]:
    """Return the GPUs with just this name, else of this model, else with it in their names."""
    bare = _bare(words)
    model = "".join(bare)
    if len(model) < 2:
        return []
    # Of a thousand names, the few that have all of its letters are looked at closely.
    entries = [entry for entry in _entries(table) if all(word in entry.letters for word in bare)]
    name = "".join(words)
    same_name = [entry for entry in entries if "".join(entry.words) == name]
    if same_name:
        return same_name
    same_model = [entry for entry in entries if "".join(_bare(entry.words)) == model]
    if same_model or not re.search(r"\d", model):
        return same_model
    for part in (words, bare):
        containing = [entry for entry in entries if _contains(entry.words, part)]
        if containing:
            return containing
    # Boards that letters alone tell apart: K40m and K40c.
    lettered = re.compile(rf"{re.escape(model)}[a-z]{{1,2}}")
    return [entry for entry in entries if lettered.fullmatch("".join(_bare(entry.words)))]


def _contains(words: _Words, part: _Words) -> bool:
    """Whether a name has these words, in any order, or written as one."""
    if Counter(part) <= Counter(words):
        return True
    apart = " ?".join(map(re.escape, "".join(part)))
    return re.search(rf"(?<!\S){apart}(?!\S)", " ".join(words)) is not None


class _Entry(NamedTuple):
    """A GPU with its name as it is compared."""

    gpu: NamedGpu
    letters: str
    """Its name in lower case, as one word."""
    table: NameTable

    @property
    def words(self) -> _Words:
        """The words of its name but for its maker's."""
        return _words(_spaced(self.gpu.name), self.table)


@cache
def _entries(table: NameTable) -> tuple[_Entry, ...]:
    entries = []
    for gpu in _gpus(table):
        letters = gpu.name.lower().replace(" ", "").replace("-", "")
        entries.append(_Entry(gpu, letters, table))
    return tuple(entries)


def _gpus(table: NameTable) -> Iterator[NamedGpu]:
    if table == name_tables()[0]:
        # The files of other makers are not read for these.
        yield from _gpus_by_capability(table)
        return
    for chip in other_chips():
        if chip.maker != table.maker:
            continue
        for name in (*chip.products, chip.name, chip.architecture):
            yield NamedGpu(
                name,
                chip.name,
                chip.maker,
                chip.brand,
                architecture=chip.architecture,
                os=chip.os,
            )


def _gpus_by_capability(table: NameTable) -> Iterator[NamedGpu]:
    for product in products():
        gpu = NamedGpu(
            product.name,
            product.chip,
            table.maker,
            table.brand,
            capability=product.capability,
            arm=product.arm,
        )
        yield gpu
        if product.name == product.chip:
            generation = load_drivers().generation(product.capability)
            if generation:
                yield gpu._replace(name=generation.name)


def _spaced(name: str) -> str:
    """Return a name in lower case with single spaces for whatever stands between its words."""
    text = _SEPARATORS.sub(" ", name.lower()).strip()
    return re.sub(r"(\d) ?gi?b\b", r"\1gb", text).replace("max q", "maxq")


def _words(text: str, table: NameTable) -> _Words:
    return tuple(word for word in text.split() if word not in table.brands)


def _bare(words: _Words) -> _Words:
    return tuple(word for word in words if not FORM.fullmatch(word))


def _number(words: _Words) -> str:
    return "".join(word for word in _bare(words) if word not in _SERIES)


def _examples(gpus: Iterable[NamedGpu]) -> str:
    """Return one GPU of each code, the oldest first, by its shortest name."""
    shortest: dict[str, NamedGpu] = {}
    for gpu in sorted(gpus, key=lambda gpu: -len(gpu.name)):
        shortest[gpu.code] = gpu
    oldest_first = sorted(shortest.values(), key=_age)
    return " or ".join(f"--gpu {_quoted(gpu.code)} ({gpu.full_name})" for gpu in oldest_first)


def _age(gpu: NamedGpu) -> tuple[tuple[int, int], str]:
    return gpu.capability or (1000, 0), gpu.full_name


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def _suggestion(
    text: str,
    makers: Iterable[NameTable],
) -> str | None:
    """Return the listed names that a name with a number in it is a letter or two away from."""
    from difflib import get_close_matches  # few names are mistyped

    names: dict[str, str] = {}
    words = text.split()
    for table in makers:
        words = [word for word in words if word not in table.brands]
        for entry in _entries(table):
            names[" ".join(entry.words)] = entry.gpu.full_name
    near = get_close_matches(" ".join(words), names, n=3, cutoff=_NEAR)
    if not near or not re.search(r"\d", "".join(words)):
        return None
    suggestions = [_quoted(names[match]) for match in near]
    return f"Did you mean {' or '.join(suggestions)}?"
