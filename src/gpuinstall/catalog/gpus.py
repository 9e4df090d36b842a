"""Find GPUs by name, with their chip and architecture.

NVIDIA's GPUs (``gpus.toml``) have a compute capability. Every other vendor has its own
file, in which a chip has the name of an architecture, such as ``gfx1100``.

The user may give the complete name of a GPU, a form of the model (laptop, PCIe, 80 GB),
or a part of the name. A name that matches GPUs with different architectures is
ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import accumulate, chain
from typing import Any, NamedTuple

from gpuinstall.base.advice import Advice, Hint
from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import GpuInstallError, NoBuildError, UsageError
from gpuinstall.base.shell import quote_word
from gpuinstall.base.vendors import VENDOR_ROWS
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog import data_files
from gpuinstall.catalog.drivers import load_drivers

_Words = tuple[str, ...]

_FORM = re.compile(
    r"sxm\d*|pcie|hbm\d*e?|nvl\d*|\d+gb?|laptop|mobile|notebook|with|maxq|design|gpu|"
    r"graphics|device|developer|kit|module|nvgpu"
)
"""Words that distinguish variants of a model."""
_SEPARATORS = re.compile(r"[\W_]+")
_MEMORY = re.compile(r"(\d) ?gi?b\b")
_SERIES = frozenset({"gt", "gtx", "rtx", "rx"})
"""Words before a model number that may be omitted."""
_LONGEST = 200
"""The maximum length of a GPU name, twice the longest known name."""
_COUNT = re.compile(r"\A[1-9]\d? ?[x×*] ?(?=[A-Za-z])")
"""A number of GPUs, which is ignored, as in 4x A100 or 8×H100."""
_MIG = re.compile(r" (mig\b|(\dc )?\dg \d+gb).*")
_VGPU = re.compile(r" \d{1,2}[abcq]$")
"""The profile in the name of a virtual GPU, as in GRID A100-10C."""
_LISTED = re.compile(
    r"(?P<chip>[^\[\]:]*)(?P<products>\[[^\[\]]+\])( \(rev \w+\))?\s*\Z"
)
"""A line of lspci, as in Navi 31 [Radeon RX 7900 XT/7900 XTX]."""
_VARIANT = re.compile(r"[1-9]\d{0,2}gb|[1-9]\d?[abcq]|sxm\d*|hbm\d*e?|nvl\d*")
"""A size of memory, the profile of a virtual GPU, or a form with a number."""
_ASK_THE_DRIVER = Advice(
    "nvidia-smi",
    ("--query-gpu=name,compute_cap", "--format=csv"),
    note="on that machine: prints the name and the capability; for 8.9, use --gpu sm_89",
)
_NEAR = 0.75
"""The minimum similarity of a suggested GPU name."""


class Product(NamedTuple):
    """A GPU, named by its product, chip, or architecture."""

    name: str
    chip: str
    maker: str = "nvidia"
    """The vendor's name in JSON documents."""
    brand: str = "NVIDIA"
    """The vendor's name in messages."""
    capability: ComputeCapability | None = None
    """The compute capability of an NVIDIA GPU, or None."""
    architecture: str | None = None
    """The architecture of another vendor's GPU."""
    os: str | None = None
    """The operating system, if the GPU supports only one."""
    arm: bool = False
    """Whether all machines with the GPU have 64-bit ARM processors."""
    products: tuple[str, ...] = ()
    """The products with the chip, for vendors other than NVIDIA."""

    @property
    def code(self) -> str:
        """The name of the GPU's architecture."""
        if self.capability:
            return self.capability.sm
        return str(self.architecture)

    @property
    def full_name(self) -> str:
        """The GPU's name, preceded by the vendor unless it is NVIDIA."""
        if self.capability or self.name.startswith(self.brand):
            return self.name
        return f"{self.brand} {self.name}"


@cache
def load_gpus() -> dict[str, Any]:
    """Return the contents of ``gpus.toml``."""
    return data_files.read_data("gpus.toml")


def _read_tables() -> dict[str, dict[str, Any]]:
    """Return the table of each vendor's GPUs, NVIDIA's first."""
    first, *others = (row.name for row in VENDOR_ROWS)
    return {first: load_gpus(), **{one: data_files.read_vendor(one) for one in others}}


@cache
def load_products() -> tuple[Product, ...]:
    """Return NVIDIA's products from the PCI list, product lines, and chips."""
    table = load_gpus()
    arm_chips = {row.get("chip") for row in table["arm"]}
    # The only operating system of each ARM name, if any.
    arm_names = {row["name"]: row.get("os") for row in table["arm"] if "name" in row}
    found = []
    for name, chip in _list_names_and_chips():
        own = [arm_names[word] for word in name.split() if word in arm_names]
        product = Product(
            name,
            chip,
            capability=_find_capability(chip),
            os=own[0] if own else None,
            arm=bool(own) or chip in arm_chips,
        )
        found.append(product)
    return tuple(found)


@cache
def load_other_chips() -> tuple[Product, ...]:
    """Return the chips of all other vendors."""
    chips: list[Product] = []
    for vendor in VENDOR_ROWS[1:]:
        table = data_files.read_vendor(vendor.name)
        own = {**table, "maker": vendor.name, "brand": vendor.label}
        rows = [{**own, **row, "name": row["chip"]} for row in table["chips"]]
        chips += [read_object(Product, row) for row in rows]
    return tuple(chips)


@cache
def find_product_by_id(key: str) -> Product | None:
    """Return the NVIDIA product with a PCI device ID such as ``2684``."""
    table = load_gpus()
    chip, _, listed = table["pci"].get(key, "").partition(": ")
    for row in table["ranges"]:
        if not chip and row["first"] <= key <= row["last"]:
            chip = row["chip"]
    if chip not in table["chips"]:
        return None
    return Product(
        name=next(_parse_names(listed or chip)),
        chip=chip,
        capability=_find_capability(chip),
    )


@cache
def _find_capability(chip: str) -> ComputeCapability:
    return ComputeCapability.parse(load_gpus()["chips"][chip])


def _list_names_and_chips() -> Iterator[tuple[str, str]]:
    table = load_gpus()
    own_names = {row["id"]: row["names"] for row in table["names"]}
    for key, text in table["pci"].items():
        chip, _, listed = text.partition(": ")
        for name in own_names.get(key, _parse_names(listed)):
            yield name, chip
    for row in table["lines"]:
        yield row["name"], row["chip"]
    for chip in table["chips"]:
        yield chip, chip


def _parse_names(listed: str) -> Iterator[str]:
    """Yield the names in ``GA107M [GeForce RTX 3050 Mobile / Max-Q]``."""
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
    """Find a GPU by its name.

    If the name matches several GPUs of one architecture, the result has the name as
    written.

    Raises:
        UsageError: The name matches no GPU, or GPUs with different architectures.
        NoBuildError: No build is known for the GPU.
    """
    name = _COUNT.sub("", name[:_LONGEST])
    listed = _LISTED.search(name)
    if listed:
        return _find_listed(name, listed["chip"], listed["products"])
    text = _normalize_name(name)
    matches = _find_matches(text)
    for row in chain.from_iterable(
        table["no_builds"] for table in _read_tables().values()
    ):
        if not re.search(row["names"], text):
            continue
        if row["older"]:
            raise NoBuildError(
                "gpu-not-supported",
                f"no known build of torch supports the {row['maker']} {name}",
                hint=row["instead"],
            )
        # An unlisted GPU may have a listed chip.
        if not matches:
            raise UsageError(
                "gpu-unknown",
                f"the list of {row['maker']} GPUs does not contain {name!r}",
                hint=_suggest_names(text) or row["instead"],
            )
    if not matches:
        assumed = _guess_product(name, text)
        if assumed:
            return assumed
        hint: Hint = _suggest_names(text) or _ASK_THE_DRIVER
        raise UsageError("gpu-unknown", f"unknown GPU: {name!r}", hint=hint)
    if len({gpu.code for gpu in matches}) > 1:
        hint = f"Use {_format_examples(matches)}"
        raise UsageError("gpu-ambiguous", f"{name!r} is ambiguous", hint=hint)
    first = matches[0]
    own = _split_words(_spell_words(first.name), first.maker)
    is_named = _has_name(own, _split_words(text, first.maker))
    if is_named and len({gpu.name for gpu in matches}) == 1:
        return first
    return first._replace(name=name.replace("_", " ").strip())


def _find_listed(name: str, chip: str, products: str) -> Product:
    """Find a GPU by its line of lspci: by its products, or else by its chip.

    Raises:
        GpuInstallError: Neither determines the architecture.
    """
    plain = re.sub(r"(?<=\d)[A-Z]+$", "", chip.strip())
    found = []
    for reading in (*_parse_names(products), chip, plain):
        with suppress(GpuInstallError):
            found.append(find_gpu(reading))
    if not found:
        return find_gpu(next(_parse_names(products)))
    if len({gpu.code for gpu in found}) > 1:
        return found[-1]._replace(name=name)
    return found[0]


def _guess_product(name: str, text: str) -> Product | None:
    """Return an unlisted GPU whose name identifies its family."""
    for row in load_gpus()["assumed"]:
        if re.search(row["names"], text):
            return Product(
                f"{name.strip().removeprefix('NVIDIA ')}, assumed to be an {row['family']}",
                row["family"],
                capability=ComputeCapability.parse(row["capability"]),
            )
    return None


def _find_matches(text: str) -> list[Product]:
    """Return the GPUs that match a name or, if none, a variant of it.

    A GPU matches by its whole name or by its model, and then by a name or model that
    contains the given one.
    """
    for reading in _list_readings(text):
        words = {maker: _split_words(reading, maker) for maker in _load_brands()}
        for is_match in (_has_name, _contains):
            # Compare whole names first, then only the words of the model.
            for part in (tuple, _select_model_words):
                matches = [
                    gpu
                    for gpu, own in _load_entries()
                    if is_match(part(own), part(words[gpu.maker]))
                ]
                if matches:
                    return matches
    return []


def _list_readings(text: str) -> tuple[str, ...]:
    """Return a name as written, without a profile, and without Quadro."""
    return (
        text,
        _MIG.sub("", text),
        _VGPU.sub("", text),
        text.replace("quadro ", ""),
    )


def _has_name(own: _Words, words: _Words) -> bool:
    """Return whether a GPU has this name, which may omit the series."""
    return bool(words) and "".join(words) in _spell_name(own)


@cache
def _spell_name(own: _Words) -> set[str]:
    """Return a GPU's name without spaces, with and without the series."""
    return {"".join(own), "".join(word for word in own if word not in _SERIES)}


def _contains(own: _Words, words: _Words) -> bool:
    """Return whether a GPU's name contains a given name with a number."""
    if not re.search(r"\d", "".join(_select_model_words(words))):
        return False
    if all(words.count(word) <= own.count(word) for word in words):
        return True
    return "".join(words) in accumulate(own[:-1])


@cache
def _select_model_words(words: _Words) -> _Words:
    """Return the words of a model, without its variant.

    A model with a single character is ignored.
    """
    model = tuple(word for word in words if not _FORM.fullmatch(word))
    if len("".join(model)) > 1:
        return model
    return ()


@cache
def _load_entries() -> tuple[tuple[Product, _Words], ...]:
    """Load all known GPUs, with the words of their names."""
    return tuple(
        (gpu, _split_words(_spell_words(gpu.name), gpu.maker)) for gpu in _list_gpus()
    )


def _list_gpus() -> Iterator[Product]:
    for gpu in load_products():
        yield gpu
        if gpu.capability and gpu.name == gpu.chip:
            drivers = load_drivers()
            generation = drivers.generation(gpu.capability)
            first = drivers.first_drivers.get(gpu.capability)
            # If the first driver of a chip is unknown, the chip has no products yet.
            if generation and not (first and first.after):
                yield gpu._replace(name=generation.name)
    for chip in load_other_chips():
        for name in (*chip.products, chip.chip, chip.code):
            yield chip._replace(name=name)


def _normalize_name(name: str) -> str:
    """Return a name in lower case with single spaces between its known words.

    Spaces and hyphens do not matter: RTX6000 and RTX-6000 are RTX 6000.
    """
    text = _spell_words(name)
    known = _find_known_words(text.replace(" ", ""))
    if known:
        return " ".join(known)
    # A number may follow another, as in GRID M3-3020.
    words = [_find_known_words(word) or [word] for word in text.split()]
    return " ".join(chain.from_iterable(words))


def _find_known_words(joined: str) -> list[str]:
    """Split a name without spaces into the fewest known words, if possible."""
    known, longest = _load_words()
    best: list[list[str] | None] = [[]]
    for end in range(1, len(joined) + 1):
        splits = []
        for start in range(max(0, end - longest), end):
            before, word = best[start], joined[start:end]
            is_after_digit = joined[start - 1 : start].isdigit()
            is_split_number = is_after_digit and word[0].isdigit()
            is_variant = _VARIANT.fullmatch(word) is not None
            # A single letter is a word in RTX 5090 D V2 and TITAN X, but not in HBM3.
            is_letter = len(word) == 1 and not is_after_digit and end < len(joined)
            is_word = word in known and not is_letter
            if before is not None and (is_variant or (is_word and not is_split_number)):
                splits.append([*before, word])
        # A longer first word is a model: A16-4Q is no A1.
        best.append(min(splits, key=_rank_split, default=None))
    return best[-1] or []


def _rank_split(words: list[str]) -> tuple[int, list[int]]:
    return len(words), [-len(word) for word in words]


@cache
def _load_words() -> tuple[frozenset[str], int]:
    """Return the words of all GPU names, and the length of the longest."""
    words = {word for gpu in _list_gpus() for word in _spell_words(gpu.name).split()}
    words = words.union(*_load_brands().values())
    return frozenset(words), max(map(len, words))


def _spell_words(name: str) -> str:
    """Return a name in lower case with single spaces between its words."""
    text = _SEPARATORS.sub(" ", name.lower()).strip()
    return _MEMORY.sub(r"\1gb", text).replace("max q", "maxq")


def _split_words(text: str, maker: str) -> _Words:
    """Return the words of a name without the vendor's brands."""
    brands = _load_brands()[maker]
    return tuple(word for word in text.split() if word not in brands)


@cache
def _load_brands() -> dict[str, frozenset[str]]:
    tables = _read_tables().items()
    return {name: frozenset(table["brands"].split()) for name, table in tables}


def _format_examples(gpus: Iterable[Product]) -> str:
    """Format one GPU for each architecture as examples in a message."""
    # The dictionary keeps the last GPU of each architecture.
    longest_first = sorted(gpus, key=lambda gpu: -len(gpu.name))
    by_code = {gpu.code: gpu for gpu in longest_first}
    # Sort sm_89 before sm_120.
    codes = sorted(by_code, key=lambda code: (len(code), code))
    return " or ".join(
        f"--gpu {quote_word(code)} ({by_code[code].full_name})" for code in codes
    )


def _suggest_names(text: str) -> str | None:
    """Return the known GPU names that are most similar to a name."""
    from difflib import get_close_matches  # rarely needed

    for maker in _load_brands():
        text = " ".join(_split_words(text, maker))
    names = {" ".join(words): gpu.full_name for gpu, words in _load_entries()}
    near = get_close_matches(text, names, n=3, cutoff=_NEAR)
    if not near or not re.search(r"\d", text):
        return None
    return f"Did you mean {' or '.join(quote_word(names[match]) for match in near)}?"
