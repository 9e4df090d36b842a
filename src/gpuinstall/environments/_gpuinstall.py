"""Make pip apply the constraints of this environment.

gpuinstall copies this module into an environment, because pip's own settings
can only contain the absolute path of a constraints file, which a move changes.
"""

from __future__ import annotations

import os
import sys


def constrain_pip(constraints: str) -> None:
    """Set pip's variable for constraints if this process runs pip.

    Args:
        constraints: The constraints of the user's own pip settings, which the variable overrides.
    """
    words = getattr(sys, "orig_argv", ("pip",))
    names = {os.path.basename(word).partition(".")[0].rstrip("23") for word in words}  # noqa: PTH119  imported slowly
    # pip starts itself again for another environment.
    is_for_other = any(word.partition("=")[0] == "--python" for word in words)
    file = os.path.join(sys.prefix, "gpuinstall-constraints.txt")  # noqa: PTH118
    if names.isdisjoint({"pip", "-mpip"}) or is_for_other or not os.path.isfile(file):
        return
    from pathlib import Path

    # pip splits the list at spaces.
    own = Path(file).as_uri()
    others = os.environ.get("PIP_CONSTRAINT", constraints).split()
    os.environ["PIP_CONSTRAINT"] = " ".join([*filter(own.__ne__, others), own])
