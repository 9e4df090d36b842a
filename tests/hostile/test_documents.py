"""Tests that random project files are read, or rejected with a location."""

import random
import re

import pytest

from gpuinstall.base.config import read_config
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import DEFAULT_SOURCING
from gpuinstall.lock.request.declaration import read_declaration, read_inputs
from gpuinstall.lock.request.tools import (
    find_locked_versions,
    read_project_lock,
)
from gpuinstall.sources.configuration import read_uv_configuration
from gpuinstall.sources.sources import Sources
from tests.lab.own_sources import only_variables

PYPROJECT = """\
[project]
name = "paper"
version = "1"
requires-python = ">=3.10"
dependencies = ["torch>=2.1", "numpy<3; python_version >= '3.9'", "paper[fast]"]
[project.optional-dependencies]
fast = ["cowsay", "torch==2.14.1"]
slow = ["torch"]
[dependency-groups]
dev = ["pytest", { include-group = "docs" }]
docs = ["sphinx"]
[build-system]
requires = ["setuptools>=61"]
[tool.uv]
default-groups = ["dev"]
constraint-dependencies = ["numpy>=1.26"]
override-dependencies = ["sphinx<9"]
conflicts = [[{ extra = "fast" }, { extra = "slow" }]]
no-build-package = ["numpy"]
[tool.uv.sources]
torch = [{ index = "cpu", extra = "slow", marker = "sys_platform == 'linux'" }]
cowsay = { git = "https://index.example/cowsay", tag = "v1" }
[[tool.uv.index]]
name = "cpu"
url = "https://index.example/whl/cpu"
explicit = true
"""
POETRY = """\
[tool.poetry]
name = "paper"
package-mode = false
[tool.poetry.dependencies]
python = "^3.10"
torch = { version = "^2.3.1+cu121", source = "pytorch", platform = "linux" }
numpy = [{ version = "<2", python = "<3.12" }, { version = ">=2", python = ">=3.12" }]
rich = { version = "*", optional = true, extras = ["jupyter"] }
[tool.poetry.extras]
shown = ["rich"]
[tool.poetry.group.dev.dependencies]
pytest = "^8 || ^9"
[[tool.poetry.source]]
name = "pytorch"
url = "https://index.example/whl/cu121"
"""
CONDA = """\
name: paper
channels: [conda-forge]
dependencies:
  - python=3.11
  - pytorch=2.6.*
  - numpy >=1.24,<3
  - conda-forge::scipy
  - pip:
    - torchmetrics==1.2
    - -r more.txt
"""
REQUIREMENTS = """\
torch==2.6.0 --hash=sha256:0000000000000000000000000000000000000000000000000000000000000000
numpy>=1.24 ; python_version >= "3.9"
-e ./lib[fast]
--find-links wheels
-c more.txt
"""
TEAM = """\
version = 1
[[package]]
name = "numpy"
version = "2.3.4"
source = { registry = "https://index.example/simple" }
resolution-markers = ["extra == 'extra-5-paper-fast'"]
wheels = [{ url = "x", hash = "sha256:00" }]
"""
SEEDS = {
    "pyproject.toml": (PYPROJECT, POETRY),
    "environment.yml": (CONDA,),
    "requirements.txt": (REQUIREMENTS,),
    "uv.lock": (TEAM,),
}
WORDS = (
    *('"', "'", "[", "]", "{", "}", "=", ",", ":", "-", "|", "^", "~", "*", "#", "<<"),
    *(
        '""',
        "[]",
        "{}",
        "true",
        "1",
        "1.5",
        "[[1]]",
        '{ a = "b" }',
        "'x'",
        "2020-01-01",
    ),
    *("- a", "  ", "\n", "\t", "é", "==", ">=", "; ", "||", "@", "git+", "-r ", "${X}"),
)
ENVIRONMENT = {"PIP_CONFIG_FILE": "/dev/null", "UV_NO_CONFIG": ""}


def damaged(text, chance):
    """Replace some values, lines, or characters of a document."""
    for _ in range(chance.randint(1, 3)):
        spans = [one.span() for one in re.finditer(r'"[^"\n]*"|[\w.^>=<-]+|\S', text)]
        start, end = chance.choice(spans)
        other_start, other_end = chance.choice(spans)
        piece = chance.choice((chance.choice(WORDS), text[other_start:other_end], ""))
        text = text[:start] + piece + text[end:]
        if chance.random() < 0.2:
            lines = text.splitlines(keepends=True)
            lines.insert(chance.randrange(len(lines)), chance.choice(lines))
            text = "".join(lines)
    return text


def read(folder, name):
    """Read a project file with the reader that commands use."""
    if name == "uv.lock":
        lock = read_project_lock(folder)
        assert lock
        find_locked_versions(lock, {"python_version": "3.11"}, parts=())
        return
    read_config(folder)
    listed = read_declaration(folder).listed
    if name == "pyproject.toml":
        for part in (":dev", "[fast]"):
            listed |= read_inputs(str(folder / f"{name}{part}"))
    read_settings(folder, *listed.settings)


def read_settings(folder, *more):
    """Read the settings of a folder's files."""
    listed = read_declaration(folder).listed.settings
    with only_variables(ENVIRONMENT):
        configured = [*read_uv_configuration(folder, sourcing=DEFAULT_SOURCING)]
    settings = [*configured, *listed, *more]
    Sources().add_settings(settings, folder)


def is_complete(message, name, text):
    """Return whether an error names the file, location, and text."""
    rest = message.replace(name, "", 1)
    place = (
        r"line \d+|named |names \S+, which|\[[\w.-]+|[\w-]+\.[\w-]+|[\w-]+ = |[\w-]+: "
    )
    words = set(re.findall(r"[^\s\"'`,:;\[\](){}]{2,}", rest))
    marks = re.search(
        r"'.+'|= \S+ is not|line \d+: [^:]+: \S|named \S|: \S+ is neither|includes \S|column \d+\): \S",
        rest,
    )
    has_text = any(word in text for word in words) or marks
    has_place = re.search(place, rest)
    return name in message and has_place and has_text


def faults(folder, count):
    """Return the damaged documents that cause a wrong error."""
    found = []
    for number in range(count):
        chance = random.Random(number)
        name = chance.choice([*SEEDS])
        text = damaged(chance.choice(SEEDS[name]), chance)
        (folder / name).write_text(text, "utf-8")
        (folder / "more.txt").write_text("scipy\n", "utf-8")
        try:
            read(folder, name)
        except UsageError as error:
            if not is_complete(error.message, name, text):
                found.append((number, name, error.message))
        except Exception as error:  # noqa: BLE001  any other error is a bug
            found.append((number, name, repr(error)))
        (folder / name).unlink()
    return found


@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=pytest.mark.heavy)])
def test_random_documents_are_read_or_rejected(count, tmp_path):
    assert faults(tmp_path, count) == []


PLACES = {
    ("requirements.txt", "-f ../none"): "requirements.txt, line 1: .*none cannot be",
    ("requirements.txt", "-r http://h/a.txt"): "requirements.txt, line 1: http",
    ("requirements.txt", "-i https://[::1"): "line 1: --index-url: 'https",
    ("requirements.txt", "a\x7fb"): r"line 1: 'a\\x7fb' has a line break",
    (
        "pyproject.toml",
        '[project]\nname = "a"\nversion = "1"\ndependencies = [">1"]',
    ): r"malformed: \[project\] dependencies: '>1'",
    (
        "pyproject.toml",
        '[tool.uv]\noverride-dependencies = [">1"]',
    ): "malformed: override-dependencies: '>1'",
    (
        "pyproject.toml",
        '[tool.uv]\ndefault-groups = ["x"]',
    ): r"no group named x, which \[tool.uv\] default-groups selects",
    (
        "pyproject.toml",
        '[project]\nname = "a"\nversion = "1"\ndependencies = ["a[b]"]',
    ): r"no extra named b, which \[project\] dependencies selects",
}


@pytest.mark.parametrize(("file", "text"), PLACES)
def test_rejected_document_error_contains_location(tmp_path, file, text):
    (tmp_path / file).write_text(text, "utf-8", newline="")
    with pytest.raises(UsageError) as caught:
        read_settings(tmp_path)
    assert re.search(PLACES[file, text], caught.value.message)
