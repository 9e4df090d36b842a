"""Where no build runs on every GPU: the set of GPUs to serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.machine import Gpu

Cover = tuple[int, ...]


def best_cover(covers: Iterable[Cover], gpus: tuple[Gpu, ...]) -> Cover:
    """Choose among sets of places in ``gpus``.

    First the set with the GPU of the highest compute capability, then the one with the most memory (unknown is 0),
    then the one with the most GPUs, then the one with the lowest indices.
    """

    def worth(cover: Cover) -> tuple[object, ...]:
        chosen = [gpus[place] for place in cover]
        return (
            max((gpu.compute_capability or (0, 0) for gpu in chosen), default=(0, 0)),
            sum(gpu.memory_mib or 0 for gpu in chosen),
            len(chosen),
            tuple(-gpu.index for gpu in chosen),
        )

    return max(set(covers), key=worth, default=())
