"""Tests that the API and the command line have the same results."""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.clone import ROOT
from tests.lab.driver import NO_GPU, RTX_4090, FakeDriver
from tests.lab.processes import succeed
from tests.lab.workshop import Workshop

BY_THE_API = f"""
import json
import sys
sys.path.insert(0, {str(ROOT)!r})
from gpuinstall.api import GpuInstallError, install, lock
from tests.frozen import freeze
freeze()
errors, documents = [], []
for call in (lambda: install(".venv").to_dict(), lambda: {{"locks": [each.to_dict() for each in lock(".")]}}):
    document, error = None, None
    try:
        document = call()
    except GpuInstallError as failed:
        document, error = failed.data, (failed.code, failed.exit_code)
    errors.append(error)
    documents.append(document)
print(json.dumps([errors, documents]))
"""
PYPROJECT = '[project]\nname = "thing"\nversion = "1"\n'


@dataclass(frozen=True)
class Kind:
    """A kind of project folder: its files, and the commands run in it."""

    files: Mapping[str, str]
    before: tuple[tuple[str, ...], ...] = ()
    unset: tuple[str, ...] = ()
    driver: FakeDriver = NO_GPU


def ours(settings, **more):
    return Kind(
        {"pyproject.toml": f"{PYPROJECT}[tool.gpuinstall]\n{settings}\n"}, **more
    )


KINDS = {
    "nothing, on a GPU": Kind({}, driver=RTX_4090),
    "the project's dependencies": Kind(
        {"pyproject.toml": f'{PYPROJECT}dependencies = ["numpy", "torch>=2.6"]\n'}
    ),
    "requirements of ours": ours('requirements = ["torch==2.13.0", "numpy"]'),
    "targets": ours('targets = ["cpu", "cu126"]'),
    "a torch index": ours('torch-index = "{torch}"', unset=("GPUINSTALL_TORCH_INDEX",)),
    "a damaged lock": Kind({"pylock.cpu.toml": 'inputs = [\n    "torch",\n]\n'}),
    "another request in the project": ours(
        'requirements = ["torch", "numpy"]', before=(("install", "cowsay"),)
    ),
}
QUICK = {"requirements of ours", "a damaged lock"}


@pytest.mark.parametrize("name", mostly_heavy(KINDS, QUICK))
def test_api_and_command_line_are_equivalent(name, stand_in, tmp_path, play):
    kind = KINDS[name]
    play(kind.driver)
    command_line, api = (
        prepared(kind, tmp_path / caller, stand_in)
        for caller in ("command line", "API")
    )
    assert by_api(api) == by_command(command_line)
    assert locks(api.folder) == locks(command_line.folder) != {}
    assert packages(api.folder) == packages(command_line.folder)


def prepared(kind, folder, index):
    """Create a project folder of one kind, with its own caches."""
    variables = {
        name: text
        for name, text in index.environment().items()
        if name not in kind.unset
    }
    workshop = Workshop.made(folder, variables)
    for name, text in kind.files.items():
        addresses = text.replace("{torch}", index.torch_index).replace(
            "{index}", index.default_index
        )
        workshop.write(name, addresses)
    for words in kind.before:
        workshop.document(*words)
    return workshop


def by_command(workshop):
    """Return the results of ``gpuinstall install`` and ``gpuinstall lock``."""
    results = [
        json.loads(workshop.run(step, "--json").out) for step in ("install", "lock")
    ]
    errors = [
        (each["errors"][0]["code"], each["exit_code"]) if each["errors"] else None
        for each in results
    ]
    return plain(errors, [each.get("data") for each in results], workshop.folder)


def by_api(workshop):
    """Return the results of the same calls of the Python API."""
    command = [sys.executable, "-W", "error", "-c", BY_THE_API]
    done = succeed(command, env=workshop.environment, cwd=workshop.folder)
    errors, documents = json.loads(done.out)
    return plain(errors, documents, workshop.folder)


def plain(errors, documents, folder):
    """Return results without paths, sizes, and times."""
    installed, locked = json.loads(json.dumps(documents).replace(str(folder), "."))
    for key in ("seconds", "verdict", "rollback"):
        (installed or {}).pop(key, None)
    return (
        [tuple(error) if error else None for error in errors],
        installed,
        locked and locked["locks"],
    )


def locks(folder):
    return {path.name: path.read_text("utf-8") for path in folder.glob("pylock.*")}


def packages(folder):
    return sorted(
        path.name for path in (folder / ".venv").glob("lib/*/site-packages/*")
    )
