"""How data is best loaded on this machine: how many workers, pinned or not, how far ahead."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from .context import CheckContext, Skip

BATCH = 32
PICTURE = (375, 500)
SIDE = 224
ENOUGH = 0.95


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
        picture = self.torch.full(
            (1, 3, *PICTURE),
            index % 256,
            dtype=self.torch.uint8,
        )
        small = self.torch.nn.functional.interpolate(
            picture.float(),
            SIDE,
            mode="bilinear",
            align_corners=False,
        )
        return small[0].div(255.0).sub(0.45).div(0.22)


def loading(context: CheckContext) -> dict[str, Any]:
    """Images a second that a DataLoader brings to the device with the best settings found, and the settings."""
    if not sys.platform.startswith("linux"):
        raise Skip("measured only on Linux")
    count = BATCH * (40 if context.on_gpu else 8)
    images = Images(context.torch, count)
    rates = {}
    for workers in worker_counts(len(os.sched_getaffinity(0))):
        rates[workers] = _rate(context, images, num_workers=workers)
    best = max(rates.values())
    workers = fewest(rates)
    pinned = False
    if context.on_gpu:
        rate = _rate(
            context,
            images,
            num_workers=workers,
            pin_memory=True,
        )
        pinned = rate > rates[workers]
    ahead = None
    if workers:
        rate = _rate(
            context,
            images,
            num_workers=workers,
            pin_memory=pinned,
            prefetch_factor=4,
        )
        ahead = 4 if rate > best / ENOUGH else 2
    settings = {"num_workers": workers, "pin_memory": pinned, "prefetch_factor": ahead}
    return {"value": best, "settings": settings}


def worker_counts(cores: int) -> list[int]:
    """Return the numbers of workers to try: none, and the powers of two up to the cores."""
    powers = (1, 2, 4, 8, 16)
    return [0, *(count for count in powers if count <= cores)]


def fewest(rates: dict[int, float]) -> int:
    """Return the fewest workers that reach 95 % of the best rate."""
    enough = ENOUGH * max(rates.values())
    return min(workers for workers, rate in rates.items() if rate >= enough)


def _rate(context: CheckContext, images: Images, **settings: Any) -> float:
    """Return how many images a second a DataLoader with these settings brings to the device."""
    if settings["num_workers"]:
        settings["multiprocessing_context"] = "fork"
    loader = context.torch.utils.data.DataLoader(
        images,
        batch_size=BATCH,
        **settings,
    )
    batches = iter(loader)
    # The first batch waits for the workers to start.
    _receive(context, next(batches))
    start = time.perf_counter()
    count = 0
    for batch in batches:
        count += len(_receive(context, batch))
    return count / (time.perf_counter() - start)


def _receive(context: CheckContext, batch: Any) -> Any:
    received = batch.to(context.device, non_blocking=True)
    context.synchronize()
    return received
