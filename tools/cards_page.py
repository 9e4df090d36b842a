"""Makes ``docs/evidence/cards.md``: the states of cards that people meet, and what each command says there."""

from __future__ import annotations

from tests.lab.cards import COMMANDS
from tests.lab.states import STATES

HEAD = """# Cards in odd states

What each command says of machines as people have them, healthy ones among them that are easily accused. No card was
there: each machine is described once (`tests/lab/states.py`) and played by stand-ins of libcuda, NVML, sysfs, /proc,
/dev and nvidia-smi, in a mount namespace of its own; torch's kernels are played too, on a GPU that is opened through
the played libcuda. `tests/integration/test_cards.py` runs the real command line on every one and compares it with
this page, which is made from the same rows.

What is right stands first, with who says so: please correct it where you know better.

| machine | what is right | by |
|---|---|---|
"""
SAYS = """
What the commands say; `verify` is `verify --deep`. *Proven*: a kernel ran on the GPU before anything was downloaded;
*memory-only*: its memory was set and read back; *unproven*: it could not be tried, which is no fault. Codes are those
of the documents (`--json`), and stop nothing where they are a note. `run --any` chooses between torch 2.10.0 for CUDA
12.6 and 13.0, on a machine that it has not met before: what it started in stands there.
"""


ELSEWHERE = """
Not played as a whole machine, and tested part by part: a card's node that never opens or is denied
(`tests/unit/vendors/nvidia/test_card_nodes.py`), cuda-compat (`tests/integration/test_probe.py`), nvidia-smi's
refusals of each release (`test_smi.py`), the names and folders of the kernel module (`test_kernel_module.py`), WSL
(`tests/unit/probe/test_places.py`) and which of its several libcuda is named (`test_libcuda.py`), AMD with
ROCR_VISIBLE_DEVICES (`tests/unit/verify/test_kernel_run.py`), an MI300X in CPX
(`tests/unit/vendors/amd/test_machines.py`), and what libraries say of products that they do not have
(`tests/unit/verify/test_kernels.py`). No tool was started on a played AMD card or in a played WSL.
"""


def cards_page() -> str:
    """Return the rows as two tables: one that reads as sentences, one to compare the commands."""
    states = []
    answers = [
        f"| machine | {' | '.join(COMMANDS)} |",
        "|---" * (len(COMMANDS) + 1) + "|",
    ]
    for name, state in STATES.items():
        states.append(f"| {name} | {state.right} | {state.source} |")
        cells = " | ".join(state.says[command] for command in COMMANDS)
        answers.append(f"| {name} | {cells} |")
    return "\n".join([HEAD + "\n".join(states), SAYS, *answers, ELSEWHERE])
