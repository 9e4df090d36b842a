"""Requests declared by the files of a folder."""

import re
import sys

import pytest

from gpuinstall.base.config import read_config
from gpuinstall.base.errors import UsageError
from gpuinstall.lock.request.declaration import (
    declare_project,
    find_build_files,
    read_declaration,
    read_inputs,
)
from gpuinstall.lock.request.pyproject import ProjectFile
from gpuinstall.sources.requirements_file import join_files
from tests.lab.clone import ROOT
from tests.lab.index_text import steps_of
from tests.lab.own_sources import read_sources
from tests.lab.parsed import required, written

PROJECT = (
    '[project]\nname = "thing"\nversion = "1"\ndependencies = ["torch>=2.9", "numpy"]\n'
    '[dependency-groups]\ndev = ["pytest"]\n'
)
BACKEND = '[build-system]\nrequires = ["hatchling"]\n'


def lines(declared):
    return {name: written(file.lines) for name, file in declared.files.items()}


def whole(declared):
    return written(join_files(declared.files.values()).requirements)


def write(folder, **files):
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, "utf-8")
    return folder


FOLDERS = (ROOT / "tests/data/folders.txt").read_text("utf-8").rstrip()
"""Files of a folder, and the request that they declare."""


def title(paragraph):
    return paragraph.partition("\n")[0]


@pytest.mark.parametrize("paragraph", FOLDERS.split("\n\n"), ids=title)
def test_first_requirements_file_determines_the_request(tmp_path, paragraph):
    _, *steps = steps_of(paragraph)
    for line, below in steps:
        if line.startswith("$ "):
            folder, _, shown = line.removeprefix("$ ").rpartition(" && ")
            declared = read_declaration(tmp_path / folder.removeprefix("cd "))
            assert (str(declared), [*whole(declared)]) == (shown, below)
        else:
            (tmp_path / line).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / line).write_text("\n".join((*below, "")), "utf-8")


def test_exported_requirements_are_not_a_request(tmp_path):
    head = "# From pylock.cpu.toml, for Python 3.12.\n"
    write(
        tmp_path,
        requirements__txt=head + "six==1.17.0\n",
        environment__yml="dependencies: [rich]\n",
    )
    declared = read_declaration(tmp_path)
    assert declared.file == "environment.yml"
    assert declared.unread == {"requirements.txt": "uv pip install -r requirements.txt"}


def test_configured_requirement_replaces_all_members(tmp_path):
    write(tmp_path, pyproject__toml='[tool.uv.workspace]\nmembers = ["lib", "more"]\n')
    for name in "lib", "more":
        (tmp_path / name).mkdir()
        write(tmp_path / name, pyproject__toml=PROJECT + BACKEND)
    configured = read_declaration(tmp_path, required("-e ./lib"))
    assert written(configured.listed.requirements) == ("-e ./lib",)


def test_members_use_the_sources_of_the_root(tmp_path):
    root = """
[tool.uv]
sources.torch = { index = "cpu" }
sources.six = { path = "libs/six" }
sources.rich = { index = "corp" }
sources.attrs = { git = "https://git.example/attrs" }
workspace.members = ["app"]
[[tool.uv.index]]
name = "cpu"
url = "https://download.pytorch.org/whl/cpu"
explicit = true
[[tool.uv.index]]
name = "corp"
url = "https://index.example/simple"
explicit = true
"""
    project = '[project]\nname = "app"\nversion = "1"\ndependencies = ["torch", "six", "rich", "attrs"]\n'
    project += '[tool.uv.sources]\nattrs = { path = "../attrs" }\n'
    for name in "app", "other":
        (tmp_path / name).mkdir()
        write(tmp_path / name, pyproject__toml=project)
    write(tmp_path, pyproject__toml=root)
    listed = read_declaration(tmp_path / "app").listed
    expected = ("torch", "six @ ../libs/six", "rich", "attrs @ ../attrs")
    assert written(listed.requirements) == expected
    values = {one.package: one.value for one in listed.settings}
    assert values["torch"] == "https://download.pytorch.org/whl/cpu"
    assert values["rich"] == "https://index.example/simple"
    # A folder that is not a member ignores the root, as in uv.
    other = written(read_declaration(tmp_path / "other").listed.requirements)
    assert other == ("torch", "six", "rich", "attrs @ ../attrs")


def test_no_sources_applies_to_sources_of_the_root(tmp_path):
    root = '[tool.uv]\nno-sources-package = ["six"]\n[tool.uv.workspace]\nmembers = ["app"]\n'
    six = '[tool.uv.sources]\nsix = { git = "https://git.example/six" }\n'
    project = '[project]\nname = "app"\nversion = "1"\ndependencies = ["six"]\n'
    (tmp_path / "app").mkdir()
    write(tmp_path / "app", pyproject__toml=project)
    write(tmp_path, pyproject__toml=root + six)
    ignored = read_sources(None, {}, tmp_path / "app").uv.no_sources
    listed = read_declaration(tmp_path / "app", no_sources=ignored).listed
    assert (written(listed.requirements), listed.settings) == (("six",), ())


def test_cache_keys_list_build_files(tmp_path):
    (tmp_path / "src").mkdir()
    for name in "a.c", "b.c", "b.h":
        (tmp_path / "src" / name).touch()
    own = ["pyproject.toml", "setup.py", "setup.cfg"]
    cases = {
        "[{ file = 'src/**/*.c' }, 'gen.in', { env = 'A' }]": ["src/a.c", "src/b.c"],
        "['../*.c', '/etc/passwd', 'src/b.h']": ["src/b.h"],
        "3": [],
    }
    found = {}
    for keys in cases:
        write(tmp_path, pyproject__toml=f"[tool.uv]\ncache-keys = {keys}\n")
        found[keys] = sorted(set(find_build_files(tmp_path)) - {*own})
    assert found == cases


@pytest.mark.skipif(sys.platform == "win32", reason="requires Unix links")
@pytest.mark.parametrize("pattern", ["**/*.c", "*/*/*/*/*/*/*/*/*.c"])
def test_cache_keys_end_with_links_in_cycle(tmp_path, pattern):
    for number in range(10):
        (tmp_path / f"link{number}").symlink_to(".")
    (tmp_path / "a.c").touch()
    write(tmp_path, pyproject__toml=f"[tool.uv]\ncache-keys = ['{pattern}']\n")
    found = {*find_build_files(tmp_path)} - {"pyproject.toml", "setup.py", "setup.cfg"}
    assert found == ({"a.c"} if "**" in pattern else set())


@pytest.mark.skipif(sys.platform == "win32", reason="requires Unix links")
def test_symlink_outside_the_project_is_rejected(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    write(tmp_path, requirements__txt="rich\n", pyproject__toml=PROJECT)
    for name, read in (
        ("requirements.txt", read_declaration),
        ("pyproject.toml", read_config),
    ):
        link = folder / name
        link.symlink_to(f"../{name}")
        with pytest.raises(UsageError, match="a link points outside") as refused:
            read(folder)
        way = f"rm {link}   # removes only the link; then run it again"
        assert refused.value.hint == way
        link.unlink()


def test_extra_and_group_may_share_a_name(tmp_path):
    extras = 'optional-dependencies = { gpu = ["thing[base]", "rich"], base = ["six"], dev = ["tox"] }\n'
    groups = '[dependency-groups]\ndev = ["pytest"]\n'
    write(
        tmp_path,
        pyproject__toml=f'[project]\nname = "thing"\nversion = "1"\n{extras}{groups}',
    )
    read = [
        read_inputs(str(tmp_path / f"pyproject.toml{name}"))
        for name in ("[gpu]", ":dev")
    ]
    assert [written(one.requirements) for one in read] == [("six", "rich"), ("pytest",)]


def test_optional_poetry_group_is_requested_by_name(tmp_path):
    write(
        tmp_path,
        pyproject__toml="[tool.poetry.group.gpu]\noptional = true\n"
        '[tool.poetry.group.gpu.dependencies]\ntorch = "^2.1"\n',
    )
    group = read_inputs(str(tmp_path / "pyproject.toml:gpu"))
    assert written(group.requirements) == ("torch<3,>=2.1",)


def test_script_is_rejected_as_requirements_file(tmp_path):
    script = tmp_path / "train.py"
    script.write_text('# /// script\n# dependencies = ["torch"]\n# ///\n', "utf-8")
    with pytest.raises(UsageError, match="is a script") as refused:
        read_inputs(str(script))
    assert refused.value.hint == f"uv run {script}"


MALFORMED = (
    '[project]\ndependencies = "idna"\n',
    "[project]\ndependencies = [1]\n",
    '[project]\ndependencies = {six = "1"}\n',
    '[project]\nname = "thing"\nversion = "1"\ndependencies = ["thing[test]"]\noptional-dependencies.test = "idna"\n',
    '[tool.uv]\ndev-dependencies = "idna"\n',
    "[tool.uv]\nconstraint-dependencies = [1]\n",
    '[tool.uv]\ndefault-groups = "dev"\n[dependency-groups]\ndev = []\n',
    '[dependency-groups]\ndev = "idna"\n',
    '[project]\ndependencies = ["torch=="]\n',
    '[dependency-groups]\ndev = [{include-group = "missing"}]\n',
    '[tool.uv]\ndefault-groups = ["missing"]\n',
    '[project]\ndependencies = ["six"]\n[tool.uv.sources]\nsix = {index = "x", marker = []}\n',
    '[project]\nname = "thing"\nversion = "1"\ndependencies = ["thing[missing]"]\n',
    '[tool.poetry.dependencies]\nidna = {version = "*", extras = "all"}\n',
)
MALFORMED_CONDA = (
    "dependencies: six\n",
    "dependencies: {six: 1}\n",
    "dependencies: [pip: idna]\n",
    "dependencies: [pip: [{six: 1}]]\n",
    "six\n",
)


def test_malformed_declarations_are_rejected(tmp_path):
    passed = []
    for name, texts in (
        ("pyproject.toml", MALFORMED),
        ("environment.yml", MALFORMED_CONDA),
    ):
        for text in texts:
            (tmp_path / name).write_text(text, "utf-8")
            try:
                passed.append((text, whole(read_declaration(tmp_path))))
            except UsageError as error:
                is_clear = re.search(f"{name} (is malformed: |has no )", error.message)
                if not is_clear or "object" in error.message:
                    passed.append((text, error.message))
        (tmp_path / name).unlink()
    assert passed == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("pyproject.toml", "[project", "is malformed"),
        ("all.toml", 'lock-version = "1.0"', "line 1: "),
        ("Pipfile.lock", "{}", "line 1: "),
    ],
)
def test_unsupported_file_is_rejected(tmp_path, name, text, why):
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(UsageError, match=f"{name}.*{why}"):
        read_inputs(str(tmp_path / name))


def test_package_with_workspace_source_is_rejected():
    sources = {"numpy": {"workspace": True}, "torch": {"index": "pytorch-cu126"}}
    project = {"dependencies": ["torch", "numpy"]}
    pyproject = {"project": project, "tool": {"uv": {"sources": sources}}}
    with pytest.raises(UsageError, match="numpy is not a member of the workspace"):
        declare_project(ProjectFile(pyproject))


def test_recursive_groups_are_read_once(tmp_path):
    groups = ["g0 = ['idna']"]
    for one in range(60):
        twice = f"{{include-group = 'g{one}'}}, {{include-group = 'G{one}'}}"
        groups += [f"g{one + 1} = [{twice}]"]
    text = "\n".join(
        ["[dependency-groups]", *groups, "dev = [{include-group = 'g60'}]"]
    )
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    assert written(read_declaration(tmp_path).listed.requirements) == ("idna",)
