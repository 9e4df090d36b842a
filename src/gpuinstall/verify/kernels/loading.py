"""How data is best loaded on this machine: how many workers, pinned or not, how far ahead."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Any

from .context import CheckContext, Skip

BATCH = 32
PICTURE = (375, 500)
SIDE = 224
ENOUGH = 0.95
MOST_WORKERS = 16


class Images:
    """Pictures of the size that a decoder gives, made small and normalized as training wants them."""

    def __init__(self, torch: Any, count: int) -> None:
        self.torch = torch
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index >= self.count:
            raise IndexError(index)
        picture = self.torch.full((1, 3, *PICTURE), index % 256, dtype=self.torch.uint8).float()
        small = self.torch.nn.functional.interpolate(
            picture, SIDE, mode="bilinear", align_corners=False
        )
        return small[0].div(255.0).sub(0.45).div(0.22)


def loading(context: CheckContext) -> dict[str, Any]:
    """Images a second that a DataLoader brings to the device with the best settings found, and the settings."""
    if not sys.platform.startswith("linux"):
        raise Skip("measured only on Linux")
    count = BATCH * (40 if context.on_gpu else 8)
    rates = {
        workers: _rate(context, count, workers)
        for workers in worker_counts(len(os.sched_getaffinity(0)))
    }
    workers = fewest(rates)
    pinned = context.on_gpu and _rate(context, count, workers, pin=True) > rates[workers]
    ahead = (
        4
        if workers
        and _rate(context, count, workers, pin=pinned, ahead=4) > max(rates.values()) / ENOUGH
        else 2
    )
    settings = {
        "num_workers": workers,
        "pin_memory": pinned,
        "prefetch_factor": ahead if workers else None,
    }
    return {"value": max(rates.values()), "settings": settings}


def worker_counts(cores: int) -> list[int]:
    """Give the numbers of workers to try: none, and the powers of two up to the cores."""
    return [0, *(1 << power for power in range(5) if 1 << power <= min(cores, MOST_WORKERS))]


def fewest(rates: dict[int, float]) -> int:
    """Choose the fewest workers that reach 95 % of the best rate."""
    return min(workers for workers, rate in rates.items() if rate >= ENOUGH * max(rates.values()))


def _rate(
    context: CheckContext, count: int, workers: int, pin: bool = False, ahead: int = 2
) -> float:
    options = {"multiprocessing_context": "fork", "prefetch_factor": ahead} if workers else {}
    make = partial(
        context.torch.utils.data.DataLoader, batch_size=BATCH, num_workers=workers, pin_memory=pin
    )
    batches = iter(make(Images(context.torch, count), **options))
    _arrived(context, next(batches))
    start, images = time.perf_counter(), 0
    for batch in batches:
        images += len(_arrived(context, batch))
    return images / (time.perf_counter() - start)


def _arrived(context: CheckContext, batch: Any) -> Any:
    there = batch.to(context.device, non_blocking=True)
    context.synchronize()
    return there
