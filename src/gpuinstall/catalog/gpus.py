"""The GPUs by name: what a product is called, which chip it is, what that can execute.

Most are told by compute capability (``gpus.toml``). The chips of other makers are told by the
name of the code that they run, ``gfx1100``: each maker has a file.

A name is read as people, shops, ``nvidia-smi`` and MIG write it: exactly, or as the same model in another form (laptop,
PCIe, 80 GB), or as part of longer names. If those run different code, of one maker or several, it is ambiguous and
never guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import NoBuildError, UsageError
from gpuinstall.base.shell import quoted
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog import authored
from gpuinstall.catalog.drivers import load_drivers

_Words = tuple[str, ...]

OTHER_MAKERS = ("amd", "intel", "apple")
_FORM = re.compile(
    r"sxm\d*|pcie|hbm\d*e?|nvl\d*|\d+gb?|laptop|mobile|notebook|with|maxq|design|gpu|"
    r"graphics|device|developer|kit|module|nvgpu"
)
"""The words of a name that tell one form of a model from another."""
_SEPARATORS = re.compile(r"[\W_]+")
_MEMORY = re.compile(r"(\d) ?gi?b\b")
_SERIES = frozenset({"gt", "gtx", "rtx", "rx"})
"""The words before a number that people leave out: 780M is one of two makers."""
_LONGEST = 200
"""The letters that are read: no name of a GPU has half as many."""
_COUNT = re.compile(r"\A[1-9]\d? ?[x×*] ?(?=[A-Za-z])")
"""How many of a GPU there are, which changes nothing: 4x A100, 8×H100."""
_MIG = re.compile(r" (mig\b|(\dc )?\dg \d+gb).*")
_ASK_THE_DRIVER = (
    "nvidia-smi -L prints its name; "
    "nvidia-smi --query-gpu=compute_cap --format=csv what it can execute, where 8.9 is --gpu sm_89"
)
_NEAR = 0.75
"""The least likeness of a suggestion: a name of four letters, such as B580, may differ in one."""


class Product(NamedTuple):
    """A GPU by its name: a product, its chip, or the name of its code."""

    name: str
    chip: str
    maker: str = "nvidia"
    """As documents name it."""
    brand: str = "NVIDIA"
    """As people name it."""
    capability: ComputeCapability | None = None
    """NVIDIA's have one."""
    architecture: str | None = None
    """The name of the code that another maker's runs."""
    os: str | None = None
    """The only system that has it; None: any."""
    arm: bool = False
    """Whether it is sold beside 64-bit ARM processors alone."""
    products: tuple[str, ...] = ()
    """Of another maker's chip, the names of those that have it."""

    @property
    def code(self) -> str:
        """The name of the code that it runs."""
        if self.capability:
            return self.capability.sm
        return str(self.architecture)

    @property
    def full_name(self) -> str:
        """Its name with its maker's before it, which NVIDIA's products do without."""
        if self.capability or self.name.startswith(self.brand):
            return self.name
        return f"{self.brand} {self.name}"


@cache
def load_gpus() -> dict[str, Any]:
    """Return the authored rows."""
    return authored.read_data("gpus.toml")


@cache
def products() -> tuple[Product, ...]:
    """Return every product: from the PCI list, the product lines, and the chips themselves."""
    table = load_gpus()
    arm_chips = {row.get("chip") for row in table["arm"]}
    # Of those with a name, the only system that has it.
    arm_names = {row["name"]: row.get("os") for row in table["arm"] if "name" in row}
    found = []
    for name, chip in _names_and_chips():
        own = [arm_names[word] for word in name.split() if word in arm_names]
        product = Product(
            name,
            chip,
            capability=_capability(chip),
            os=own[0] if own else None,
            arm=bool(own) or chip in arm_chips,
        )
        found.append(product)
    return tuple(found)


@cache
def other_chips() -> tuple[Product, ...]:
    """Return the chips of all other makers, each maker's together."""
    chips: list[Product] = []
    for maker in OTHER_MAKERS:
        table = authored.read_chips(maker)
        for row in table["chips"]:
            whole = {**table, **row, "name": row["chip"]}
            chips.append(read_object(Product, whole))
    return tuple(chips)


@cache
def product_of(device: int) -> Product | None:
    """Return NVIDIA's product with this PCI device id; None if it is not listed."""
    table = load_gpus()
    key = f"{device:04x}"
    chip, _, listed = table["pci"].get(key, "").partition(": ")
    for row in table["ranges"]:
        if not chip and row["first"] <= key <= row["last"]:
            chip = row["chip"]
    if chip not in table["chips"]:
        return None
    return Product(
        name=next(_names(listed or chip)),
        chip=chip,
        capability=_capability(chip),
    )


@cache
def _capability(chip: str) -> ComputeCapability:
    return ComputeCapability.parse(load_gpus()["chips"][chip])


def _names_and_chips() -> Iterator[tuple[str, str]]:
    table = load_gpus()
    own_names = {row["id"]: row["names"] for row in table["names"]}
    for key, text in table["pci"].items():
        chip, _, listed = text.partition(": ")
        for name in own_names.get(key, _names(listed)):
            yield name, chip
    for row in table["lines"]:
        yield row["name"], row["chip"]
    for chip in table["chips"]:
        yield chip, chip


def _names(listed: str) -> Iterator[str]:
    """Yield the names in ``GA107M [GeForce RTX 3050 Mobile / Max-Q]``: one with a slash stands for several."""
    _, bracket, inside = listed.partition("[")
    if bracket:
        listed = inside.rstrip("]")
    names = listed.split("/")
    first, *others = [name.strip() for name in names]
    yield first
    family = first.rsplit(" ", 1)[0]
    for other in others:
        yield other if " " in other else f"{family} {other}"


@cache
def find_gpu(name: str) -> Product:
    """Return the GPU of a name; with the name as written if several run the same code.

    Raises:
        UsageError: if no GPU has the name, or several that run different code.
        NoBuildError: if no build is known for the GPU.
    """
    name = _COUNT.sub("", name[:_LONGEST])
    text = _spaced(name)
    matches = _matches(text)
    for row in load_gpus()["no_builds"]:
        # Of a newer series, a GPU that is listed has builds, and the name of one that is not may be mistyped.
        is_meant = row["older"] or not matches
        if is_meant and re.search(row["names"], text):
            suggestion = None if row["older"] else _suggestion(text)
            raise NoBuildError(
                "gpu-not-supported",
                f"no build of torch is known for {row['maker']}'s {name}",
                hint=suggestion or row["instead"],
            )
    if not matches:
        assumed = _assumed(name, text)
        if assumed:
            return assumed
        hint = _suggestion(text) or _ASK_THE_DRIVER
        raise UsageError("gpu-unknown", f"unknown GPU: {name!r}", hint=hint)
    if len({gpu.code for gpu in matches}) > 1:
        hint = f"Use {_examples(matches)}"
        raise UsageError("gpu-ambiguous", f"{name!r} is ambiguous", hint=hint)
    first = matches[0]
    own = _words(_spaced(first.name), first.maker)
    is_named = _has_name(own, _words(text, first.maker))
    if is_named and len({gpu.name for gpu in matches}) == 1:
        return first
    return first._replace(name=name.replace("_", " ").strip())


def _assumed(name: str, text: str) -> Product | None:
    """Return a card that nothing lists, as one of the family that its name leaves no doubt of."""
    for row in load_gpus()["assumed"]:
        if re.search(row["names"], text):
            return Product(
                f"{name.strip().removeprefix('NVIDIA ')}, taken for an {row['family']}",
                row["family"],
                capability=ComputeCapability.parse(row["capability"]),
            )
    return None


def _matches(text: str) -> list[Product]:
    """Return the GPUs of a name as it is, else as a slice of a card, else without Quadro.

    Of each reading, those with just this name, else of this model, else with it in their names, else with the model.
    """
    for reading in (text, _MIG.sub("", text), text.replace("quadro ", "")):
        makers = load_gpus()["brands"]
        words = {maker: _words(reading, maker) for maker in makers}
        for is_match in (_has_name, _contains):
            # All words of a name, or those of its model.
            for part in (tuple, _model):
                matches = [
                    gpu
                    for gpu, own in _entries()
                    if is_match(part(own), part(words[gpu.maker]))
                ]
                if matches:
                    return matches
    return []


def _has_name(own: _Words, words: _Words) -> bool:
    """Whether a GPU's words are those of a name, which may leave out its series."""
    return bool(words) and "".join(words) in _spellings(own)


@cache
def _spellings(own: _Words) -> set[str]:
    """Return a GPU's words as one, with its series and without."""
    return {"".join(own), "".join(word for word in own if word not in _SERIES)}


def _contains(own: _Words, words: _Words) -> bool:
    """Whether a GPU's words have those of a name, one of which has a number, or begin with them, written as one."""
    if not re.search(r"\d", "".join(_model(words))):
        return False
    if Counter(words) <= Counter(own):
        return True
    beginnings = {"".join(own[:count]) for count in range(len(own))}
    return "".join(words) in beginnings


@cache
def _model(words: _Words) -> _Words:
    """Return the words of a name without those of its form; none if one letter is left, which is no model."""
    model = tuple(word for word in words if not _FORM.fullmatch(word))
    if len("".join(model)) > 1:
        return model
    return ()


@cache
def _entries() -> tuple[tuple[Product, _Words], ...]:
    """Return every GPU with the words of its name."""
    return tuple((gpu, _words(_spaced(gpu.name), gpu.maker)) for gpu in _gpus())


def _gpus() -> Iterator[Product]:
    for gpu in products():
        yield gpu
        if gpu.capability and gpu.name == gpu.chip:
            drivers = load_drivers()
            generation = drivers.generation(gpu.capability)
            first = drivers.first_drivers.get(gpu.capability)
            # Of a chip whose first driver is not known no card is either.
            if generation and not (first and first.after):
                yield gpu._replace(name=generation.name)
    for chip in other_chips():
        for name in (*chip.products, chip.chip, chip.code):
            yield chip._replace(name=name)


def _spaced(name: str) -> str:
    """Return a name in lower case with single spaces for whatever stands between its words."""
    text = _SEPARATORS.sub(" ", name.lower()).strip()
    return _MEMORY.sub(r"\1gb", text).replace("max q", "maxq")


def _words(text: str, maker: str) -> _Words:
    """Return the words of a name without those that tell no two chips of a maker apart."""
    brands = _brands()[maker]
    return tuple(word for word in text.split() if word not in brands)


@cache
def _brands() -> dict[str, frozenset[str]]:
    brands = load_gpus()["brands"]
    return {maker: frozenset(words.split()) for maker, words in brands.items()}


def _examples(gpus: Iterable[Product]) -> str:
    """Return one GPU of each code, by its shortest name."""
    # Of those with one code the last one stays: the shortest.
    longest_first = sorted(gpus, key=lambda gpu: -len(gpu.name))
    by_code = {gpu.code: gpu for gpu in longest_first}
    # sm_89 comes before sm_120.
    codes = sorted(by_code, key=lambda code: (len(code), code))
    return " or ".join(
        f"--gpu {quoted(code)} ({by_code[code].full_name})" for code in codes
    )


def _suggestion(text: str) -> str | None:
    """Return the listed names that a name with a number in it is a letter or two away from."""
    from difflib import get_close_matches  # few names are mistyped

    for maker in load_gpus()["brands"]:
        text = " ".join(_words(text, maker))
    names = {" ".join(words): gpu.full_name for gpu, words in _entries()}
    near = get_close_matches(text, names, n=3, cutoff=_NEAR)
    if not near or not re.search(r"\d", text):
        return None
    return f"Did you mean {' or '.join(quoted(names[match]) for match in near)}?"
