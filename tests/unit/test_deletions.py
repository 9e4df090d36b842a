"""Tests that docs/deletions.md lists each module that deletes files."""

import ast
import re

from tests.lab.clone import ROOT

DELETING = {
    "unlink",
    "rmdir",
    "rmtree",
    "removedirs",
    "remove_file",
    "remove_path",
    "dispose",
}
_ROW = re.compile(
    r"^\| `(?P<module>[\w/.]+\.py)` \|.*\| `(?P<test>[\w/]+\.(py::\w+|txt: [^`]+))` \|$",
    re.MULTILINE,
)


def rows():
    page = (ROOT / "docs" / "deletions.md").read_text("utf-8")
    return list(_ROW.finditer(page.partition("## What is deleted")[2]))


def test_every_module_that_deletes_files_is_documented():
    assert {row["module"] for row in rows()} == deleting_modules()


def test_documented_deletion_tests_exist():
    missing = []
    for row in rows():
        file, _, name = row["test"].partition(": " if ".txt: " in row["test"] else "::")
        begin = f"def {name}(" if file.endswith(".py") else f"# {name}"
        if begin not in (ROOT / "tests" / file).read_text("utf-8"):
            missing.append(row["test"])
    assert missing == []


def deleting_modules():
    """Return the modules with code that deletes files."""
    package = ROOT / "src" / "gpuinstall"
    modules = set()
    if names_deletion(ROOT / "bootstrap.py"):
        modules.add("bootstrap.py")
    for file in package.rglob("*.py"):
        if names_deletion(file):
            modules.add(file.relative_to(package).as_posix())
    return modules


def names_deletion(file):
    """Return whether a module refers to a function that deletes."""
    text = file.read_text("utf-8")
    if not any(name in text for name in DELETING):
        return False
    for node in ast.walk(ast.parse(text)):
        names = {getattr(node, "id", None), getattr(node, "attr", None)}
        if names & DELETING:
            return True
    return False
