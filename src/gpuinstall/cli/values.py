"""The values that options take, for a shell to complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click
    from click.shell_completion import CompletionItem

    from gpuinstall.catalog import Build


def gpus(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of GPUs that hold what was typed."""
    from gpuinstall.catalog.gpus import other_chips, products

    names = (*(product.name for product in products()), *(name for chip in other_chips() for name in chip.products))
    return _items(dict.fromkeys(names), typed, anywhere=True)


def backends(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Tags of backends."""
    return _items(sorted({build.backend.tag for build in _builds()}), typed)


def targets(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Kinds of machine to lock for."""
    from gpuinstall.lock.target import Target

    return _items(sorted({str(Target(build.backend.tag, build.os, build.arch)) for build in _builds()}), typed)


def _builds() -> tuple[Build, ...]:
    """Those of every maker that can be installed."""
    from gpuinstall.catalog import load_catalog

    catalog = load_catalog()
    further = (build for read in catalog.further.values() for build in read().builds)
    return tuple(build for build in (*catalog.builds, *further) if build.absent is None)


def _items(values: Iterable[str], typed: str, *, anywhere: bool = False) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    wanted = typed.lower().strip("'\"")
    fits = [value for value in values if (wanted in value.lower() if anywhere else value.lower().startswith(wanted))]
    return [CompletionItem(value) for value in fits]
