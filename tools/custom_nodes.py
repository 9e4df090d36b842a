"""Makes ``docs/evidence/custom-nodes.md``: what custom nodes of ComfyUI would do to torch, without the guard and with it.

The files of ``tools/custom_nodes`` hold what requirements files of custom nodes typically do. Each is resolved in the
folder of a node, by pip and by uv, from the default index; nothing is installed. What was measured is kept in a file, so
that a run goes on where the last one ended: ``python -m tools.custom_nodes RESULTS.json TORCH``, where TORCH is a wheel
of torch or a requirement.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.environments.guard import constraint_lines, renew_uv_guard, write_guard
from gpuinstall.files import write_atomically
from gpuinstall.uv import uv

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Results = dict[str, str]
    """What an installer would do, by ``installer: file in layout``."""

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "custom-nodes.md"
FILES = Path(__file__).parent / "custom_nodes"
WORK = Path(tempfile.gettempdir()) / "custom-nodes"
SECONDS = 400
BESIDE = ("torchvision==0.28.0", "torchaudio==2.11.0", "pip", "setuptools", "wheel")
"""What lies beside torch in each environment; the members of the family are those that go with torch 2.13."""
FAMILY = ("torch", "torchvision", "torchaudio")
COLUMNS = ("pip", "pip with the guard", "uv", "uv with the guard")
OUTCOMES = ("stays", "moves", "refused", "not resolved")
PIP = """
import sys
from pip._internal.cli.main import main
from pip._internal.operations.prepare import RequirementPreparer

# A dry run of pip fetches every wheel that it would install, also if it knows their metadata.
RequirementPreparer.prepare_linked_requirements_more = lambda *_, **__: None
sys.exit(main(sys.argv[1:]))
"""
_OUT_OF_REACH = re.compile(r"git\+|https?://")
_MOVE = re.compile(r"(?:Would install .*| \+ )\btorch(?:-|==)(\d\S*)")
_REFUSAL = re.compile(
    r"\(constraint\) torch|No solution found(?s:.*)torch(?:==2\.13\.0\+|vision==0\.28\.0|audio==2\.11\.0)",
)
"""How pip and uv name the guard's constraints where they keep them from a solution."""
INTRODUCTION = f"""# Custom nodes, with the guard and without it

What requirements files of ComfyUI's custom nodes would do to torch 2.13.0+cpu, in the folder of a portable ComfyUI
(Python without an environment around it, run with `-s`; its layout on Linux) and in a clone with a `venv`.
The files (`tools/custom_nodes`) were written after what such files hold. Each is resolved
as a manager of custom nodes does it, in the folder of the node: `pip install -r requirements.txt` and
`uv pip install -r requirements.txt`, once plain and once with the guard that `gpuinstall install --into` writes.
All packages come from the default index. PyTorch's own index could not be reached: the guard's constraints are those of
the installed torch, torchvision and torchaudio. Lines that lead to other places (`git+https`, `--extra-index-url`) were
left out; a star marks their files. Nothing was installed: pip's and uv's resolutions are shown, each with {SECONDS}
seconds on two cores that others used too. "Not resolved" is what failed for another reason than torch, with and without
the guard: a package that has to be built and cannot be, a version that is gone, a search that took too long. "–" is what
was not measured.

The index serves no metadata beside the wheels, and a dry run of pip would fetch every wheel that it tries, gigabytes for
some files. pip therefore runs with `--use-feature=fast-deps`, which reads METADATA out of the wheels by range, and without
the step that fetches what it would install; it chooses by the same metadata. uv does so by itself.
Made by `python -m tools.custom_nodes`.
"""


class Layout(NamedTuple):
    """A folder of ComfyUI with its environment."""

    name: str
    root: Path
    environment: Path
    nodes: Path
    options: tuple[str, ...] = ()
    """The options that its Python is run with."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.environment / "bin" / "python"


LAYOUTS = (
    Layout(
        "portable",
        WORK / "portable",
        WORK / "portable" / "python_embeded",
        WORK / "portable" / "ComfyUI" / "custom_nodes",
        ("-s",),
    ),
    Layout("clone", WORK / "clone", WORK / "clone" / "venv", WORK / "clone" / "custom_nodes"),
)


def make(layout: Layout, torch: str) -> None:
    """Make the folder of an application with torch in its environment."""
    layout.nodes.mkdir(parents=True)
    (layout.nodes.parent / "comfy").mkdir()
    (layout.nodes.parent / "main.py").touch()
    if layout.name == "portable":
        ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-*")
        shutil.copytree(sys.base_prefix, layout.environment, symlinks=True, ignore=ignored)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        (layout.environment / "lib" / version / "site-packages").mkdir()
    else:
        _run([uv(), "venv", "--python", sys.executable, layout.environment], layout.root)
    done = _run([uv(), "pip", "install", "--python", layout.python, torch, *BESIDE], layout.root)
    if done.returncode:
        raise SystemExit(done.stdout)


def guard(layout: Layout) -> None:
    """Write the guard of the installed members of PyTorch's family."""
    versions = {}
    for name in FAMILY:
        for folder in layout.environment.glob(f"lib/python*/site-packages/{name}-*.dist-info"):
            versions[name] = folder.name.removesuffix(".dist-info").partition("-")[2]
    lines = constraint_lines(versions, (), "cpu")
    source = f"torch=={versions['torch']}"
    write_guard(layout.environment, layout.environment, source, lines)
    renew_uv_guard(layout.environment)


def lift(layout: Layout) -> None:
    """Remove the guard."""
    for name in ("constraints.txt", "pip.conf"):
        (layout.environment / name).unlink(missing_ok=True)
    renew_uv_guard(layout.environment)


def measure(column: str, name: str, layout: Layout) -> str:
    """Return what an installer would do to torch with a file in the folder of a node."""
    node = layout.nodes / name
    node.mkdir(exist_ok=True)
    (node / "requirements.txt").write_text("".join(reachable(name)), encoding="utf-8")
    command: list[str | Path]
    if column.startswith("pip"):
        command = [layout.python, *layout.options, WORK / "pip_dry_run.py", "install"]
        # Of a wheel only the metadata is fetched.
        command += ["--use-feature=fast-deps"]
    else:
        command = [uv(), "pip", "install", "--python", layout.python]
    is_guarded = column.endswith("guard")
    (guard if is_guarded else lift)(layout)
    done = _run([*command, "--dry-run", "-r", "requirements.txt"], node)
    return _outcome(done, is_guarded=is_guarded)


def reachable(name: str) -> list[str]:
    """Return the lines of a file that lead to the default index."""
    lines = (FILES / f"{name}.txt").read_text("utf-8").splitlines(keepends=True)
    return [line for line in lines if not _OUT_OF_REACH.search(line)]


def page(results: Results) -> Iterator[str]:
    """Write the summary, and a table for each layout."""
    yield INTRODUCTION
    yield from _summary(results)
    for layout in LAYOUTS:
        yield f"\n## {layout.name}\n"
        yield f"| file | {' | '.join(COLUMNS)} |"
        yield "|---|---|---|---|---|"
        for name in names():
            lines = (FILES / f"{name}.txt").read_text("utf-8").splitlines()
            star = "" if len(reachable(name)) == len(lines) else "\\*"
            outcomes = [results.get(_key(column, name, layout), "–") for column in COLUMNS]
            yield f"| {name}{star} | {' | '.join(outcomes)} |"


def names() -> list[str]:
    """Return the names of the files."""
    return sorted(path.stem for path in FILES.glob("*.txt"))


def main() -> None:
    """Measure what is not measured yet, and make the page."""
    kept = Path(sys.argv[1])
    torch = sys.argv[2]
    results: Results = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    WORK.mkdir(exist_ok=True)
    write_atomically(WORK / "pip_dry_run.py", PIP)
    writing = Lock()

    def measure_in(layout: Layout, order: Sequence[str]) -> None:
        if not layout.root.exists():
            make(layout, torch)
        # uv is the quicker one.
        for installer in (COLUMNS[2:], COLUMNS[:2]):
            for name, column in product(order, installer):
                key = _key(column, name, layout)
                if key in results:
                    continue
                outcome = measure(column, name, layout)
                with writing:
                    results[key] = outcome
                    kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
                    PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")
                    print(f"{key}: {outcome}", flush=True)  # noqa: T201

    # One layout begins where the other ends: a run that is cut short has seen each file once.
    orders = (names(), names()[::-1])
    with ThreadPoolExecutor() as pool:
        list(pool.map(measure_in, LAYOUTS, orders))
    PAGE.write_text("\n".join(page(results)) + "\n", encoding="utf-8")


def _key(column: str, name: str, layout: Layout) -> str:
    return f"{column}: {name} in {layout.name}"


def _run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with the settings of no user, and return its output as one text."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PIP_", "UV_")) or name.endswith("CERT")
    }
    variables |= {
        "HOME": str(WORK),
        "XDG_CONFIG_HOME": str(WORK),
        "XDG_CACHE_HOME": str(WORK / "cache"),
    }
    words = list(map(str, command))
    try:
        return subprocess.run(
            words,
            cwd=folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, f"ERROR: not done after {SECONDS} s")


def _outcome(done: subprocess.CompletedProcess[str], *, is_guarded: bool) -> str:
    """Return what an installer would do to torch, in words that begin with one of the outcomes."""
    if done.returncode == 0:
        move = _MOVE.search(done.stdout)
        return f"moves to {move[1]}" if move else "stays"
    if is_guarded and _REFUSAL.search(done.stdout):
        return "refused"
    return f"not resolved: {_reason(done.stdout)}"


def _reason(output: str) -> str:
    """Return the line of an installer's output that says why it failed."""
    lines = [line.strip(" ×╰─▶│|") for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    reason = (errors or lines or [""])[0].removeprefix("ERROR: ")
    return reason.replace("|", "/").replace(str(WORK), "")[:100]


def _summary(results: Results) -> Iterator[str]:
    """Write how often what came of torch."""
    yield f"| layout | installer | files | {' | '.join(OUTCOMES)} |"
    yield "|---|---|---|---|---|---|---|"
    for layout in LAYOUTS:
        for column in COLUMNS:
            outcomes = Counter[str]()
            for name in names():
                outcome = results.get(_key(column, name, layout), "")
                outcomes.update(word for word in OUTCOMES if outcome.startswith(word))
            counts = " | ".join(str(outcomes[word]) for word in OUTCOMES)
            yield f"| {layout.name} | {column} | {outcomes.total()} of {len(names())} | {counts} |"


if __name__ == "__main__":
    main()
