"""Triton kernel for a check. Triton reads its source from this file."""

from __future__ import annotations

from importlib import import_module

tl = import_module("triton.language")
BLOCK = 256


@import_module("triton").jit
def kernel(numbers, results):  # type: ignore[no-untyped-def]
    """Square each number of an array, and add 1."""
    places = tl.arange(0, 256)
    x = tl.load(numbers + places)
    tl.store(results + places, x * x + 1)
