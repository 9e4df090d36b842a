"""A GPU found by its name, as people, shops, ``nvidia-smi``, MIG, vGPU and cluster labels write it.

A name is read exactly, or as the same model in another form (laptop, PCIe, 80 GB), or as part of longer names; where
those have chips of different capability it is ambiguous, never guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from difflib import get_close_matches
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.catalog.gpus import Product, brands, other_makers, products
from gpuinstall.errors import NoBuildError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.catalog.gpus import OtherMaker

FORM = re.compile(
    r"sxm\d*|pcie|hbm\d*e?|nvl\d*|\d+gb?|laptop|mobile|notebook|with|maxq|design|gpu|shared|graphics|device|"
    r"developer|kit|module|nvgpu"
)
"""The words of a name that tell one form of a model from another."""
_CUT_SHORT = re.compile(r"\S*(\.{3}|…)\s*$")
_MIG = re.compile(r" (mig\b|(\dc )?\dg \d+gb).*")
_VGPU = re.compile(r" (\d )?\d{1,3}[abcq](me)?$")
_ASK_THE_DRIVER = (
    "nvidia-smi -L prints its name; nvidia-smi --query-gpu=compute_cap --format=csv what it can execute, "
    "where 8.9 is --gpu sm_89"
)


class _Listed(NamedTuple):
    """A product; the words of its name, written as one too, without its form, and as every run of words in it."""

    product: Product
    words: tuple[str, ...]
    name: str
    model: str
    runs: frozenset[str]


def find_product(name: str) -> Product:
    """Find a GPU by its name; raise UsageError for none or several, NoBuildError for one of another maker.

    The product has the name as it was said where that leads to several of one capability.
    """
    found = _found(name)
    if maker := another_maker(name):
        message = f"{name!r} is {maker.maker}'s, and no GPU that builds are known for"
        raise NoBuildError("gpu-not-supported", message, hint=maker.instead)
    if not found:
        raise UsageError("gpu-unknown", f"no GPU that is known is called {name!r}", hint=_nearest(name))
    if len({product.capability for product in found}) > 1:
        raise UsageError("gpu-ambiguous", f"{name!r} stands for different chips", hint=f"say {_examples(found)}")
    names = {product.name for product in found}
    return found[0] if len(names) == 1 else found[0]._replace(name=_as_said(name))


def another_maker(name: str) -> OtherMaker | None:
    """Find the other maker that gives its GPUs such a name; raise UsageError where it is just one of NVIDIA's too."""
    text = _spaced(name)
    words = _words(text)
    if words != tuple(text.split()):
        return None
    maker = next((maker for maker in other_makers() if re.search(maker.names, text)), None)
    if maker and (found := _of_that_name(words)):
        hint = f"say {_quoted(found[0].name)} for NVIDIA's, {_quoted(f'{maker.maker} {name}')} for {maker.maker}'s"
        raise UsageError("gpu-ambiguous", f"{name!r} is a name of NVIDIA's and of {maker.maker}'s", hint=hint)
    return maker


def _found(name: str) -> list[Product]:
    if _CUT_SHORT.search(name):
        return _beginning(name) or _found(_CUT_SHORT.sub("", name))
    return next(filter(None, map(_matching, _readings(_spaced(name)))), [])


def _readings(text: str) -> Iterator[tuple[str, ...]]:
    """Read a name as it is, then as a slice of a card, as a virtual GPU, and without a brand said for good measure."""
    card = _MIG.sub("", text)
    whole = _VGPU.sub("", card)
    board = re.sub(r"(?<=\d)[a-z]{1,2}$", "", whole) if whole != card else whole
    for reading in (text, card, whole, board, text.replace("quadro ", "")):
        yield _words(reading)


def _matching(words: tuple[str, ...]) -> list[Product]:
    """Find the products with just this name, else of this model, else those whose name has it in it."""
    model = "".join(_bare(words))
    same = _of_that_name(words)
    if same or len(model) < 2 or not re.search(r"\d", model):
        return same
    return _containing(words) or _containing(_bare(words)) or _with_letter(model)


def _of_that_name(words: tuple[str, ...]) -> list[Product]:
    """Find the products with just this name, else of this model."""
    squeezed, model = "".join(words), "".join(_bare(words))
    exact = [one.product for one in _listed() if one.name == squeezed and len(model) > 1]
    return exact or [one.product for one in _listed() if one.model == model and len(model) > 1]


def _containing(words: tuple[str, ...]) -> list[Product]:
    """Find the products whose name has these words, in any order, or written as one."""
    squeezed, said = "".join(words), Counter(words)
    return [one.product for one in _listed() if squeezed in one.runs or said <= Counter(one.words)]


def _with_letter(model: str) -> list[Product]:
    """Find the boards of a model that are told apart by letters alone, as K40m and K40c."""
    return [one.product for one in _listed() if re.fullmatch(rf"{re.escape(model)}[a-z]{{1,2}}", one.model)]


def _beginning(name: str) -> list[Product]:
    """Find the products whose name begins like one that was cut short, with its brands or without."""
    said = _spaced(name).split()
    leading = len(list(takewhile(lambda word: word in brands(), said)))
    starts = ("".join(said[count:]) for count in range(leading + 1))
    return next(filter(None, map(_starting, starts)), [])


def _starting(start: str) -> list[Product]:
    written = ((one, _spaced(one.product.name).replace(" ", ""), one.name) for one in _listed())
    return [one.product for one, *texts in written if start and any(text.startswith(start) for text in texts)]


@cache
def _listed() -> tuple[_Listed, ...]:
    generations = [
        product._replace(name=generation.name)
        for product in products()
        if product.name == product.chip and (generation := load_drivers().generation(product.capability))
    ]
    named = [(product, _words(_spaced(product.name))) for product in (*products(), *generations)]
    return tuple(
        _Listed(product, words, "".join(words), "".join(_bare(words)), _runs(words)) for product, words in named
    )


def _spaced(name: str) -> str:
    """Write a name in lower case with single spaces for whatever stands between its words."""
    text = " ".join(re.findall(r"[^\W_]+", name.lower()))
    return re.sub(r"\bmax q\b", "maxq", re.sub(r"(\d) ?gi?b\b", r"\1gb", text))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split() if word not in brands())


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if not FORM.fullmatch(word))


def _runs(words: tuple[str, ...]) -> frozenset[str]:
    ends = range(1, len(words) + 1)
    return frozenset("".join(words[start:end]) for end in ends for start in range(end))


def _as_said(name: str) -> str:
    return re.sub(r"^nvidia[\s-]+", "", name.replace("_", " ").strip(), flags=re.IGNORECASE)


def _examples(found: list[Product]) -> str:
    """Name one product of each capability; its chip where the name alone says too little."""
    first = {product.capability: product for product in reversed(found)}
    names = Counter(name for name, _ in {(product.name, product.capability) for product in found})
    said = {one: product.name if names[product.name] == 1 else product.chip for one, product in sorted(first.items())}
    return " or ".join(f"--gpu {_quoted(text)} ({one.sm})" for one, text in said.items())


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


def _nearest(name: str) -> str:
    words = _words(_spaced(name))
    names = {" ".join(one.words): one.product.name for one in _listed()}
    near = get_close_matches(" ".join(words), names, n=3, cutoff=0.8) if _bare(words) else []
    return f"perhaps {' or '.join(_quoted(names[match]) for match in near)}" if near else _ASK_THE_DRIVER
