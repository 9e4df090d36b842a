"""``python -m tools.recording DIR NAME``: a recorded machine that somebody sent becomes a case of the tests.

It is copied to tests/data/machines/NAME with machine.json, what the probe makes of it today, and SOURCE. Read both
before you commit: machine.json has to be what the machine *is*, and the folder must hold nothing private.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from gpuinstall.probe import read_recording

MACHINES = Path(__file__).resolve().parent.parent / "tests" / "data" / "machines"
PRIVATE = re.compile(
    r"/(?:home|Users)/(?!user\b)[\w.-]+|\b[\w.+-]+@[\w-]+\.\w+|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"
)
"""A home folder, an address of mail, and one of a network card; serial numbers and host names are not recorded."""


def main() -> None:
    """Copy, conclude, and name what looks private."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    recording = Path(sys.argv[1])
    case = MACHINES / sys.argv[2]
    private = []
    for path in files(recording):
        hit = PRIVATE.search(path.read_text("utf-8"))
        if hit:
            private.append(f"{path.name}: {hit[0]}")
    if private:
        sys.exit("This looks private; change it in the recording first:\n" + "\n".join(private))
    machine = read_recording(recording).to_dict()
    shutil.copytree(recording, case)
    (case / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    (case / "SOURCE").write_text(
        "Recorded by gpuinstall probe --record, and sent by its owner.\n", encoding="utf-8"
    )
    gpus = ", ".join(gpu["name"] for gpu in machine["gpus"])
    sys.stdout.write(f"{case}: {gpus or 'no GPU'}\n")


def files(folder: Path) -> list[Path]:
    """Return the files of a recording, by name."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
