"""Record a real document of every command in docs/documents.

``python -m tools.documents`` runs the commands on two simulated RTX 4090s. In
``verify`` and ``doctor``, a kernel fails. The handwritten schemas in docs/schemas
describe every key, except in objects with ``additionalProperties``, whose keys are data
or are described by another schema. (Readers of a document must ignore unknown keys.)
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.driver import FakeDriver, FakeGpu, build, environment
from tests.lab.index import SimulatedIndex
from tests.lab.new_torch import make_new_torch
from tests.lab.recorded import read_recording
from tests.lab.releases import LINUX, catalog_index
from tests.lab.workshop import Workshop

from gpuinstall.base import process, uv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ROW = re.compile(
    r"^\|.*\(schemas/[\w-]+\.json\).*\(documents/[\w-]+\.json\)", re.MULTILINE
)
"""A row of docs/documents.md that has a recorded document."""
PYTHON = ".".join(map(str, sys.version_info[:2]))
RTX_4090 = FakeDriver((FakeGpu(), FakeGpu()), driver="535.183.01", cuda=12020)
NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
SLICES = ROOT / "tests" / "data" / "machines" / "kubernetes-a100-seven-slices"
BROKEN = ROOT / "tests" / "data" / "machines" / "ubuntu-24.04-mismatch"
PREPARATION = (
    f"install torch==2.13.0 --python {PYTHON}",
    f"lock torch --python {PYTHON} --target cpu",
    "probe --record records",
)
COMMANDS = {
    "probe": "probe",
    "probe-slices": "probe --machine slices.json",
    "probe-refusing": "probe --machine broken.json",
    "plan": f"plan torch torchvision --python {PYTHON}",
    "plan-refused": f"plan torch==2.15.0 --gpu 'RTX 5090' --driver 570.86.15 --python {PYTHON}",
    "install-dry-run": f"install torch --upgrade --python {PYTHON} --dry-run",
    "install": f"install torch --upgrade --python {PYTHON}",
    "install-into": "install --into --venv app torch",
    "sync": "sync",
    "verify": "verify",
    "doctor": "doctor",
    "explain": f"explain 'RuntimeError: {NO_KERNEL}'",
    "explain-other": "explain 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'",
    "lock": f"lock torch --python {PYTHON} --target cu126 --target cpu --upgrade",
    "lock-check": "lock check torch numpy --target cpu",
    "lock-download": "lock download wheels",
    "export": "export requirements --lock pylock.cpu.toml -o cpu.txt",
    "report": "report records",
    "env-list": "env list",
    "env-remove": "env remove --yes",
    # Last, because later commands would read the file that it writes.
    "hook": "hook uv",
}
FAILING = {"verify", "doctor"}


def main() -> None:
    """Write every document."""
    with tempfile.TemporaryDirectory() as folder:
        for name, document in record_documents(Path(folder)):
            text = json.dumps(shorten_document(document), indent=2, ensure_ascii=False)
            (DOCS / "documents" / f"{name}.json").write_text(
                f"{text}\n", encoding="utf-8"
            )


def record_documents(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run every command below ``folder`` and yield its portable document."""
    (folder / "project").mkdir()
    (folder / "failing.json").write_text(
        json.dumps({"*": {"failed": {"matmul-float32": NO_KERNEL}}}), "utf-8"
    )
    wheels = catalog_index(
        folder / "index",
        ["2.13.0", "2.14.1", "2.15.0"],
        platforms=[LINUX],
        pythons=[PYTHON],
    )
    make_new_torch(wheels, "cu132", python=PYTHON.replace(".", ""))
    with SimulatedIndex(wheels) as index:
        played = environment(RTX_4090, build(folder / "libraries"), folder)
        node = {"GPUINSTALL_NODE": "n1", "XDG_CONFIG_HOME": str(folder / "settings")}
        variables = {
            **index.environment(),
            **node,
            # The hook is written for the user.
            "XDG_CONFIG_HOME": str(folder / "settings"),
            **{name: played[name] for name in ("LAB_GPUS", "LD_LIBRARY_PATH")},
        }
        workshop = Workshop(folder / "project", folder / "caches", variables)
        failing = Workshop(
            workshop.folder,
            workshop.caches,
            {**variables, "LAB_VERDICT": str(folder / "failing.json")},
        )
        process.run(
            uv.venv_command(Path(sys.executable), workshop.folder / "app"),
            env=workshop.environment,
        )
        for name, recording in {"slices": SLICES, "broken": BROKEN}.items():
            machine = json.dumps(read_recording(recording).to_dict())
            (workshop.folder / f"{name}.json").write_text(machine, "utf-8")
        for command in PREPARATION:
            workshop.document(*shlex.split(command))
        for name, command in COMMANDS.items():
            runner = failing if name in FAILING else workshop
            printed = runner.run(*shlex.split(command), "--json").out
            yield name, json.loads(_elsewhere(printed, folder, index))


def shorten_document(value: Any, depth: int = 0) -> Any:
    """Shorten lists, and replace nested documents by their schemas."""
    if isinstance(value, list):
        has_objects = any(isinstance(entry, dict) for entry in value)
        kept = value[: 1 if has_objects else 3]
        return [shorten_document(entry, depth + 1) for entry in kept]
    if not isinstance(value, dict):
        return value
    if depth > 1 and "schema" in value:
        return {"schema": value["schema"]}
    return {key: shorten_document(entry, depth + 1) for key, entry in value.items()}


def find_undescribed_keys(
    value: object,
    schema: Mapping[str, Any],
    path: str = "",
) -> Iterator[str]:
    """Yield the keys of a document that its schema does not have."""
    if isinstance(value, list):
        items = schema.get("items", {})
        for entry in value:
            yield from find_undescribed_keys(entry, items, f"{path}[]")
    elif isinstance(value, dict) and not schema.get("additionalProperties"):
        properties = schema.get("properties", {})
        for name, inner in value.items():
            key = f"{path}.{name}".lstrip(".")
            if name in properties:
                yield from find_undescribed_keys(inner, properties[name], key)
            else:
                yield key


def read(file: str) -> dict[str, Any]:
    """Read a document or a schema."""
    document: dict[str, Any] = json.loads((DOCS / file).read_text(encoding="utf-8"))
    return document


def find_document_schemas() -> dict[str, str]:
    """Return the schema of each recorded document."""
    page = (DOCS / "documents.md").read_text(encoding="utf-8")
    schemas = {}
    for row in ROW.findall(page):
        [schema] = re.findall(r"\((schemas/[\w-]+\.json)\)", row)
        for name in re.findall(r"\(documents/([\w-]+)\.json\)", row):
            schemas[name] = schema
    return schemas


def _elsewhere(
    text: str,
    folder: Path,
    index: SimulatedIndex,
) -> str:
    """Replace paths and URLs with examples from a typical machine."""
    text = text.replace(index.torch_index, "https://download.pytorch.org/whl")
    text = re.sub(r"http://(127\.0\.0\.1|localhost):\d+", "https://index.example", text)
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", "index.example", text)
    text = text.replace(str(folder / "project"), "/home/me/project").replace(
        str(folder), "/home/me"
    )
    return text.replace(str(ROOT), "/home/me/gpuinstall")


if __name__ == "__main__":
    main()
