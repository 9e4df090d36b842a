"""A program of its own that asks NVML how each card fares: one JSON line a card that is reached.

Its argument is pynvml's folder. What the library prints for itself goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

sys.path.append(sys.argv[1])

import pynvml as nvml  # type: ignore[import-untyped,unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable


def asked(question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask; None where this driver or this card has no answer."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def described(card: Any) -> dict[str, Any]:
    """Ask one card."""
    return {
        "uncorrected": asked(nvml.nvmlDeviceGetTotalEccErrors, card, 1, 0),
        "pages_pending": asked(nvml.nvmlDeviceGetRetiredPagesPendingStatus, card),
        "rows": asked(nvml.nvmlDeviceGetRemappedRows, card),
        "slowed": asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, card),
        "width": asked(nvml.nvmlDeviceGetCurrPcieLinkWidth, card),
        "generation": asked(nvml.nvmlDeviceGetMaxPcieLinkGeneration, card),
        "widest": asked(nvml.nvmlDeviceGetMaxPcieLinkWidth, card),
    }


with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
    os.dup2(2, 1)
    nvml.nvmlInit()
    for index in range(nvml.nvmlDeviceGetCount()):
        reached = asked(nvml.nvmlDeviceGetHandleByIndex, index)
        if reached is not None:
            stream.write(json.dumps({"index": index, **described(reached)}) + "\n")
            stream.flush()
