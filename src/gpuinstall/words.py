"""A machine in words: ``--gpu "RTX 5090" --driver 570.86 --os windows``."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from gpuinstall.catalog.gpus import products
from gpuinstall.errors import UsageError
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from gpuinstall.catalog.gpus import Product

_MAKER = {"nvidia", "geforce", "tesla", "quadro", "hgx"}
_TRIM = re.compile(r"\b(sxm\d*|pcie|hbm\d*e?|nvl|\d+ ?gi?b|laptop|mobile|notebook|with|max-?q|design|gpu)\b")


def machine_in_words(gpus: tuple[str, ...], driver: str | None, os: str | None, arch: str | None) -> Machine:
    """Make a machine of the names of its GPUs and its driver; raise UsageError for a name that nothing has.

    Nothing else is known of it: not its memory, its Pythons or its glibc.
    """
    if driver is None:
        raise UsageError("driver-missing", "--gpu needs --driver", hint='for example --gpu "RTX 4090" --driver 580')
    return Machine(
        os=os or "linux",
        arch=arch or ("arm64" if os == "macos" else "x86_64"),
        driver=Driver(driver_in_words(driver), found_via="words"),
        gpus=tuple(gpu_in_words(name, index) for index, name in enumerate(gpus)),
    )


def find_product(name: str) -> Product:
    """Find a GPU by its name, with or without the maker's words; raise UsageError with the nearest for no match."""
    words = _words(name)
    found = _matching(words) or _matching(_words(_TRIM.sub(" ", name.lower())))
    capabilities = {product.capability for product in found}
    if len(capabilities) == 1:
        return found[0]
    if not found:
        raise UsageError("gpu-unknown", f"no NVIDIA GPU is called {name!r}", hint=f"perhaps {_nearest(name)}")
    chips = " or ".join(sorted({f"--gpu {product.chip} ({product.capability.sm})" for product in found}))
    raise UsageError("gpu-ambiguous", f"{name!r} was sold with different chips", hint=f"say {chips}")


def driver_in_words(text: str) -> DriverVersion:
    """Read a driver's version; raise UsageError where it is none."""
    try:
        return DriverVersion.parse(text)
    except ValueError as error:
        raise UsageError("driver-malformed", str(error)) from None


def gpu_in_words(name: str, index: int = 0) -> Gpu:
    """Make a GPU of its name, or of ``sm_89``; raise UsageError for a name that nothing has."""
    exact = re.fullmatch(r"sm_?(\d{2,3})", name.lower())
    if exact:
        return Gpu(index, name, compute_capability=ComputeCapability.from_sm(int(exact[1])), found_via="words")
    product = find_product(name)
    return Gpu(index, f"NVIDIA {product.name}", compute_capability=product.capability, found_via="words")


def _words(name: str) -> tuple[str, ...]:
    """Cut a name into words and numbers, ``rtx5070ti`` as ``RTX 5070 Ti``, without the maker's words."""
    return tuple(word for word in re.findall(r"[a-z]+|[0-9]+", name.lower()) if word not in _MAKER)


def _matching(words: tuple[str, ...]) -> list[Product]:
    """Find the products with just this name, else those whose name begins or ends so."""
    if not words:
        return []
    size = len(words)
    named = [(product, _words(product.name)) for product in products()]
    exact = [product for product, name in named if name == words]
    return exact or [product for product, name in named if words in (name[:size], name[-size:])]


def _nearest(name: str) -> str:
    names = {" ".join(_words(product.name)): product.name for product in products()}
    near = get_close_matches(" ".join(_words(name)), names, n=3, cutoff=0.4)
    return " or ".join(f'"{names[match]}"' for match in near) or "it is listed as in nvidia-smi -L"
