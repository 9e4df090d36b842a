"""Run gpuinstall with the frozen catalog: ``python tests/frozen …``."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent.parent)

    from gpuinstall.__main__ import main
    from tests.frozen import freeze
    from tests.lab import own_gpus

    freeze()
    own_gpus.play()
    main()
