"""The values that options take, for a shell to complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click


def gpus(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Names of GPUs that hold what was typed."""
    from gpuinstall.catalog.gpus import products

    return _items(dict.fromkeys(product.name for product in products()), typed, anywhere=True)


def backends(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Tags of backends."""
    return _items(_tags(), typed)


def targets(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem]:
    """Kinds of machine to lock for."""
    from gpuinstall.catalog import load_catalog
    from gpuinstall.lock.target import Target

    builds = load_catalog().builds
    named = dict.fromkeys(str(Target(one.backend.tag, one.os, one.arch)) for one in builds)
    return _items(sorted(named), typed)


def _tags() -> list[str]:
    from gpuinstall.catalog import load_catalog

    return sorted({build.backend.tag for build in load_catalog().builds})


def _items(values: Iterable[str], typed: str, *, anywhere: bool = False) -> list[CompletionItem]:
    wanted = typed.lower().strip("'\"")
    fits = [value for value in values if (wanted in value.lower() if anywhere else value.lower().startswith(wanted))]
    return [CompletionItem(value) for value in fits]
