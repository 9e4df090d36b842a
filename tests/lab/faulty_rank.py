"""What makes a rank stand still or die in its first all-reduce: put into an environment by a ``.pth`` file.

LAB_FAULTS names a JSON file: a node's name -> "hang" or "die".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
import json
import os
import signal
import sys
import threading
import time

FAULTS = {faults!r}


def spoil(fault):
    number = signal.SIGSTOP if fault == "hang" else signal.SIGKILL
    while not hasattr(sys.modules.get("torch.distributed"), "all_reduce"):
        time.sleep(0.002)
    sys.modules["torch.distributed"].all_reduce = lambda *_, **__: os.kill(os.getpid(), number)


told = sys.orig_argv[-1]
if told.startswith("{{") and '"rank"' in told and os.path.exists(FAULTS):
    with open(FAULTS) as file:
        fault = json.load(file).get(json.loads(told)["node"])
    if fault:
        threading.Thread(target=spoil, args=(fault,), daemon=True).start()
"""


def put_into(site: Path, faults: Path | str) -> None:
    """Let ranks of an environment read ``faults``."""
    (site / "lab_faulty_rank.py").write_text(TEXT.format(faults=str(faults)), encoding="utf-8")
    (site / "lab_faulty_rank.pth").write_text("import lab_faulty_rank\n", encoding="utf-8")
