"""A GPU found by its name, as people, shops, ``nvidia-smi``, MIG, vGPU and cluster labels write it.

A name is read exactly, or as the same model in another form (laptop, PCIe, 80 GB), or as part of longer names; where
those run different code it is ambiguous, never guessed. Each maker's names are read alike; a number that several makers
sell is ambiguous too.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.catalog.gpus import NameTable, load_gpus, name_tables, other_chips, products
from gpuinstall.errors import NoBuildError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.versions import ComputeCapability

FORM = re.compile(
    r"sxm\d*|pcie|hbm\d*e?|nvl\d*|\d+gb?|laptop|mobile|notebook|with|maxq|design|gpu|shared|graphics|device|"
    r"developer|kit|module|nvgpu"
)
"""The words of a name that tell one form of a model from another."""
_BETWEEN = re.compile(r"[\W_]+")
_SERIES = frozenset({"gt", "gtx", "rtx", "rx"})
"""The words before a number that people leave out: 780M is one of two makers, 7900 XTX of one."""
_LONGEST = 200
"""The letters that are read: no name of a GPU has half as many."""
_COUNT = re.compile(r"\A(?P<count>[1-9]\d?) ?[x×*] ?(?=[A-Za-z])")
"""How many of a GPU there are: 4x A100, 8×H100."""
_MIG = re.compile(r" (mig\b|(\dc )?\dg \d+gb).*")
_VGPU = re.compile(r" (\d )?\d{1,3}[abcq](me)?$")
_ASK_THE_DRIVER = (
    "nvidia-smi -L prints its name; nvidia-smi --query-gpu=compute_cap --format=csv what it can execute, "
    "where 8.9 is --gpu sm_89"
)
_NEAR = 0.75
"""The least likeness of a suggestion: a name of four letters, such as B580, may differ in one of them."""


class NamedGpu(NamedTuple):
    """A GPU by its name: a product, its chip, or the name of its code.

    NVIDIA's have a ``capability``, others an ``architecture``. ``os`` is the only system that has it; ``arm``: it is
    sold beside 64-bit ARM processors alone.
    """

    name: str
    chip: str
    maker: str
    brand: str
    capability: ComputeCapability | None = None
    architecture: str | None = None
    os: str | None = None
    arm: bool = False

    @property
    def code(self) -> str:
        """The name of the code that it runs."""
        return self.capability.sm if self.capability else str(self.architecture)

    @property
    def full_name(self) -> str:
        """Its name with its maker's before it, which NVIDIA's products do without."""
        return self.name if self.capability or self.name.startswith(self.brand) else f"{self.brand} {self.name}"


class _Listed(NamedTuple):
    """A GPU; the words of its name, written as one too, and without its form."""

    gpu: NamedGpu
    words: tuple[str, ...]
    name: str
    model: str


def counted_names(name: str) -> list[str]:
    """Return the name of each GPU that a name such as ``4x A100`` stands for."""
    count = _COUNT.match(name)
    return [name[count.end() :]] * int(count["count"]) if count else [name]


@cache
def find_gpu(name: str) -> NamedGpu:
    """Find a GPU by its name; raise UsageError for none or several, NoBuildError for one that no build is known for.

    It has the name as it was written where that leads to several that run the same code.
    """
    name = _COUNT.sub("", name[:_LONGEST])
    text = _spaced(name)
    words = {*text.split()}
    # The makers that a word of it belongs to, else all.
    makers = [table for table in name_tables() if words & table.marks] or name_tables()
    matches = [gpu for gpus in _by_maker(name, makers).values() for gpu in gpus]
    brands = {table.brand for table in makers}
    rows = (row for row in load_gpus()["no_builds"] if row["maker"] in brands and re.search(row["names"], text))
    if (row := next(rows, None)) and (row["older"] or not matches):
        theirs = [table for table in makers if table.brand == row["maker"] and not row["older"]]
        hint = (_suggestion(text, theirs) if theirs else None) or row["instead"]
        raise NoBuildError("gpu-not-supported", f"no build of torch is known for {row['maker']}'s {name}", hint=hint)
    if not matches:
        raise UsageError("gpu-unknown", f"unknown GPU: {name!r}", hint=_suggestion(text, makers) or _ASK_THE_DRIVER)
    if len({gpu.code for gpu in matches}) > 1:
        raise UsageError("gpu-ambiguous", f"{name!r} is ambiguous", hint=f"Use {_examples(matches)}")
    first = matches[0]
    if len({gpu.name for gpu in matches}) == 1:
        return first
    written = name.replace("_", " ").strip()
    return first._replace(name=re.sub(rf"^{first.brand}[\s-]+", "", written, flags=re.IGNORECASE))


def capability_of(name: str) -> ComputeCapability | None:
    """Return what all GPUs of a name can execute; None if the name is unknown or means different chips."""
    try:
        return find_gpu(name).capability
    except (NoBuildError, UsageError):
        return None


def _by_maker(name: str, makers: Sequence[NameTable]) -> dict[str, list[NamedGpu]]:
    """Find the GPUs of each maker; the makers whose GPU has just this number come before those with a longer one."""
    matches = {table.maker: gpus for table in makers if (gpus := _of_maker(name, table))}
    if len(matches) < 2:
        return matches
    numbers = {table.maker: _number(_words(_spaced(name), table)) for table in makers}
    exact = {
        maker: gpus
        for maker, gpus in matches.items()
        if any(_number(listed.words) == numbers[maker] for listed in _listed(maker) if listed.gpu in gpus)
    }
    return exact or matches


def _of_maker(name: str, table: NameTable) -> list[NamedGpu]:
    if name.rstrip().endswith(("...", "…")):
        return _beginning(name, table) or _of_maker(" ".join(name.split()[:-1]), table)
    readings = dict.fromkeys(_readings(_spaced(name), table))
    return next(filter(None, (_matching(words, table.maker) for words in readings)), [])


def _readings(text: str, table: NameTable) -> Iterator[tuple[str, ...]]:
    """Read a name as it is, then as a slice of a card, as a virtual GPU, and without a brand said for good measure."""
    card = _MIG.sub("", text)
    whole = _VGPU.sub("", card)
    board = re.sub(r"(?<=\d)[a-z]{1,2}$", "", whole) if whole != card else whole
    for reading in (text, card, whole, board, text.replace("quadro ", "")):
        yield _words(reading, table)


def _matching(words: tuple[str, ...], maker: str) -> list[NamedGpu]:
    """Find the GPUs with just this name, else of this model, else those whose name has it in it, whole or lettered."""
    bare, listed = _bare(words), _listed(maker)
    squeezed, model = "".join(words), "".join(bare)
    if len(model) < 2:
        return []
    same = [entry.gpu for entry in listed if entry.name == squeezed]
    same = same or [entry.gpu for entry in listed if entry.model == model]
    if same or not re.search(r"\d", model):
        return same
    lettered = re.compile(rf"{re.escape(model)}[a-z]{{1,2}}")  # boards told apart by letters alone, K40m and K40c
    return (
        _containing(words, maker)
        or (_containing(bare, maker) if bare != words else [])
        or [entry.gpu for entry in listed if lettered.fullmatch(entry.model)]
    )


def _containing(words: tuple[str, ...], maker: str) -> list[NamedGpu]:
    """Find the GPUs whose name has these words, in any order, or written as one."""
    squeezed, counted = "".join(words), Counter(words)
    # Most of a thousand names are passed over by the cheap half of the question.
    written = (entry for entry in _listed(maker) if squeezed in entry.name or set(words) <= set(entry.words))
    return [entry.gpu for entry in written if squeezed in _runs(entry.words) or counted <= Counter(entry.words)]


def _beginning(name: str, table: NameTable) -> list[NamedGpu]:
    """Find the GPUs whose name begins like one that was cut short, with its brands or without."""
    words = _spaced(name).split()
    leading = len(list(takewhile(lambda word: word in table.brands, words)))
    starts = ("".join(words[count:]) for count in range(leading + 1))
    written = [(entry, _spaced(entry.gpu.name).replace(" ", "")) for entry in _listed(table.maker)]
    matches = (
        [entry.gpu for entry, whole in written if start and (whole.startswith(start) or entry.name.startswith(start))]
        for start in starts
    )
    return next(filter(None, matches), [])


@cache
def _listed(maker: str) -> tuple[_Listed, ...]:
    table = next(table for table in name_tables() if table.maker == maker)
    named = ((gpu, _words(_spaced(gpu.name), table)) for gpu in _gpus(maker))
    return tuple(_Listed(gpu, words, "".join(words), "".join(_bare(words))) for gpu, words in named)


def _gpus(maker: str) -> Iterator[NamedGpu]:
    first = name_tables()[0]
    for product in products() if maker == first.maker else ():
        generation = load_drivers().generation(product.capability) if product.name == product.chip else None
        for name in (product.name, *((generation.name,) if generation else ())):
            yield NamedGpu(name, product.chip, maker, first.brand, product.capability, arm=product.arm)
    for chip in other_chips() if maker != first.maker else ():
        for name in (*chip.products, chip.name, chip.architecture) if chip.maker == maker else ():
            yield NamedGpu(name, chip.name, maker, chip.brand, architecture=chip.architecture, os=chip.os)


def _spaced(name: str) -> str:
    """Write a name in lower case with single spaces for whatever stands between its words."""
    text = _BETWEEN.sub(" ", name.lower()).strip()
    # A plan reads a thousand names, and few of them hold one of these.
    text = re.sub(r"(\d) ?gi?b\b", r"\1gb", text) if "gb" in text or "gib" in text else text
    return re.sub(r"\bmax q\b", "maxq", text) if "max q" in text else text


def _words(text: str, table: NameTable) -> tuple[str, ...]:
    return tuple(word for word in text.split() if word not in table.brands)


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if not _tells_a_form(word))


@cache
def _tells_a_form(word: str) -> bool:
    return FORM.fullmatch(word) is not None


def _number(words: tuple[str, ...]) -> str:
    return "".join(word for word in _bare(words) if word not in _SERIES)


def _runs(words: tuple[str, ...]) -> frozenset[str]:
    ends = range(1, len(words) + 1)
    return frozenset("".join(words[start:end]) for end in ends for start in range(end))


def _examples(gpus: list[NamedGpu]) -> str:
    """Name one GPU of each code, the oldest first: by its shortest name, or by its chip where several have the name."""
    first = {gpu.code: gpu for gpu in sorted(gpus, key=lambda gpu: -len(gpu.name))}
    ordered = sorted(first.values(), key=lambda gpu: (gpu.capability or (1000, 0), gpu.full_name))
    names = Counter(name for name, _ in {(gpu.name, gpu.code) for gpu in gpus})
    texts = [(gpu.full_name if names[gpu.name] == 1 or not gpu.capability else gpu.chip, gpu.code) for gpu in ordered]
    return " or ".join(f"--gpu {_quoted(text)} ({code})" for text, code in texts)


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def _suggestion(text: str, makers: Sequence[NameTable]) -> str | None:
    """Suggest the listed names that a name with a number in it is a letter or two away from."""
    names = {" ".join(entry.words): entry.gpu.full_name for table in makers for entry in _listed(table.maker)}
    brands = frozenset[str]().union(*(table.brands for table in makers))
    words = " ".join(word for word in text.split() if word not in brands)
    near = get_close_matches(words, names, n=3, cutoff=_NEAR) if re.search(r"\d", words) else []
    return f"Did you mean {' or '.join(_quoted(names[match]) for match in near)}?" if near else None
