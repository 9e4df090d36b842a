"""A program of its own that asks NVML how each card fares: one JSON line a card. Its argument is pynvml's folder."""

from __future__ import annotations

import json
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


nvml.nvmlInit()
for index in range(nvml.nvmlDeviceGetCount()):
    card = nvml.nvmlDeviceGetHandleByIndex(index)
    facts = {
        "index": index,
        "uncorrected": asked(nvml.nvmlDeviceGetTotalEccErrors, card, 1, 0),
        "pages_pending": asked(nvml.nvmlDeviceGetRetiredPagesPendingStatus, card),
        "rows": asked(nvml.nvmlDeviceGetRemappedRows, card),
        "slowed": asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, card),
        "width": asked(nvml.nvmlDeviceGetCurrPcieLinkWidth, card),
        "generation": asked(nvml.nvmlDeviceGetMaxPcieLinkGeneration, card),
        "widest": asked(nvml.nvmlDeviceGetMaxPcieLinkWidth, card),
    }
    print(json.dumps(facts), flush=True)  # noqa: T201  the answer
