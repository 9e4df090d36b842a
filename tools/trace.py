"""``python -m tools.trace``: how much of the house one installation, and one lock of a program, passes through.

Both run in the lab: its stand-in index, its driver of an RTX 4090, its catalogue. A function is a named one of the
package that was called (functions inside others are counted apart, comprehensions and lambdas not at all), a kind of
value a class of the package that an object was made of. ``-v`` names them all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import gpuinstall

if TYPE_CHECKING:
    from types import CodeType, FrameType

HOUSE = str(Path(gpuinstall.__path__[0]))
NAMED = (
    0x03  # CO_OPTIMIZED | CO_NEWLOCALS: the code of a function, and not that of a module or a class
)
JOURNEYS = {
    "installation": ("install",),
    "installation of a program": ("install", "painter"),
    "lock of a program": ("lock", "painter"),
}


class Trace:
    """The code that ran and the values that were made, in every thread."""

    def __init__(self) -> None:
        self.code: set[CodeType] = set()
        self.kinds: set[type] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Note a call of the house, and the object that a generated ``__init__`` or ``__new__`` makes."""
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(HOUSE):
            self.code.add(code)
        made = (
            frame.f_locals if code.co_filename == "<string>" or code.co_name == "__init__" else {}
        )
        kind = made.get("_cls") or type(made.get("self"))
        if kind.__module__.startswith("gpuinstall."):
            self.kinds.add(kind)

    def run(self, *words: str) -> int:
        """Run a command in this process."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            from tests.frozen import freeze

            from gpuinstall.cli.main import run_command_line

            freeze()
            return run_command_line(list(words))
        finally:
            sys.setprofile(None)

    def report(self, name: str, *, verbose: bool) -> str:
        """The numbers in a line, and with ``verbose`` the names behind them."""
        functions = {
            code
            for code in self.code
            if code.co_flags & NAMED == NAMED and not code.co_name.startswith("<")
        }
        outer = {code for code in functions if "<locals>" not in code.co_qualname}
        modules = Counter(os.path.relpath(code.co_filename, HOUSE) for code in outer)
        kinds = sorted(kind.__qualname__ for kind in self.kinds)
        inner = f"({len(functions)} with those inside others)"
        lines = [
            f"{name}: {len(outer)} functions {inner} in {len(modules)} modules, {len(kinds)} kinds of values"
        ]
        if verbose:
            lines += [f"  {count:4} {module}" for module, count in modules.most_common()]
            lines += [
                f"  {os.path.relpath(code.co_filename, HOUSE)} {code.co_qualname}" for code in outer
            ]
            lines.append(f"  {' '.join(kinds)}")
        return "\n".join(lines) + "\n"


def main() -> None:
    """Start each journey in a process of its own, in a folder and with caches that are new."""
    if sys.argv[1:2] == ["run"]:
        _, _, name, verbose, *words = sys.argv
        trace = Trace()
        status = trace.run(*words)
        sys.stdout.write(trace.report(name, verbose=verbose == "True"))
        sys.exit(status)
    from tests.lab.clone import ROOT
    from tests.lab.driver import FakeDriver, FakeGpu, build, environment
    from tests.lab.index import StandInIndex
    from tests.lab.releases import catalog_index
    from tests.lab.wheels import make_wheel
    from tests.lab.workshop import Workshop

    with tempfile.TemporaryDirectory() as place:
        folder, driver = Path(place), FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020)
        wheels = folder / "wheels"
        wheels.mkdir()
        catalog_index(wheels)
        make_wheel(wheels / "simple", "painter", "1.0", requires=["torch"])
        make_wheel(wheels / "simple", "painter", "2.0", requires=["torch==2.13.0", "numpy"])
        played = environment(driver, build(folder / "libraries"), folder)
        with StandInIndex(wheels) as index:
            for name, command in JOURNEYS.items():
                home = folder / "-".join(command)
                (home / "project").mkdir(parents=True)
                workshop = Workshop(home / "project", home / "caches", played | index.environment())
                verbose = str("-v" in sys.argv)
                trace_words = ("-m", "tools.trace", "run", name, verbose, *command, "--quiet")
                done = subprocess.run(
                    [sys.executable, *trace_words],
                    cwd=workshop.folder,
                    env=workshop.environment | {"PYTHONPATH": str(ROOT)},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    sys.stdout.write(done.stderr)
                    continue
                # What the command itself prints stands before.
                report = done.stdout.index(f"{name}: ")
                sys.stdout.write(done.stdout[report:])


if __name__ == "__main__":
    main()
