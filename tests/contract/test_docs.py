"""Tests of command output, generated parts, and links in the documentation."""

import ast
import inspect
import re

from tools.docs import (
    EXAMPLE,
    GETS,
    ROOT,
    generate_pages,
    pages,
    refresh_page,
    run,
)
from tools.site.__main__ import home, stage

from gpuinstall import api
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.install.install import InstallResult
from gpuinstall.lock.write import WrittenLock
from gpuinstall.verify.verdict import Verdict
from tests.lab.links import find_broken_links, markdown
from tests.lab.source import build_package_graph

PAGES = [page.relative_to(ROOT).as_posix() for page in pages()]


def test_documentation_shows_current_output_of_its_commands():
    texts = {page: (ROOT / page).read_text("utf-8") for page in PAGES}

    assert [page for page, text in texts.items() if refresh_page(text) != text] == [], (
        "run: make docs"
    )


def test_generated_pages_are_current():
    stale = [
        name
        for name, text in generate_pages().items()
        if (ROOT / name).read_text("utf-8") != text
    ]

    assert stale == [], "run: make docs"


def test_failure_index_lists_every_failure_once():
    page = (ROOT / "docs" / "failures.md").read_text("utf-8")
    rows = re.findall(r"(?m)^\| `.+?` \| (F\d+) .+ \| .+ \|$", page)

    assert sorted(rows) == sorted(load_failures())


def test_contributor_pages_mention_only_existing_names():
    folders = (ROOT, ROOT / "src/gpuinstall", ROOT / "tests/data/logs")
    lists = ("test_house.py", "machine/test_failures.py")
    read = [*(ROOT / "src").rglob("*.*")]
    read += [ROOT / "tests/unit" / name for name in lists]
    texts = (
        path.read_text("utf-8") for path in read if path.suffix in {".py", ".toml"}
    )
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    unknown = []
    for page in ("docs/architecture.md", "docs/extending.md"):
        # Code blocks can contain example names.
        text = re.sub(r"(?ms)^```.*?^```", "", (ROOT / page).read_text("utf-8"))
        for name in re.findall(r"`([\w./-]+)(?:\(\))?`", text):
            is_path = any((folder / name).exists() for folder in folders)
            if not is_path and not words.issuperset(re.findall(r"\w+", name)):
                unknown.append(name)

    others = {"libtorch_cuda.so"}
    assert [
        name for name in unknown if "acme" not in name.lower() and name not in others
    ] == []


def test_every_link_targets_an_existing_heading():
    written = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]

    assert (
        find_broken_links([*written, *sorted((ROOT / "docs").rglob("*.md"))], markdown)
        == []
    )


def test_every_link_of_the_site_works(tmp_path):
    stage(tmp_path / "source")
    pages = sorted((tmp_path / "source").rglob("*.md"))

    assert {page.stem for page in pages if page.parent.name == "failures"} == set(
        load_failures()
    )
    assert find_broken_links(pages, markdown) == []


def test_every_page_is_in_the_menu():
    listed = home(
        *((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/index.md"))
    )
    menu = {
        line
        for part in re.findall(r"```{toctree}(.+?)```", listed, re.DOTALL)
        for line in part.split("\n")
    }

    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - menu == {"index"}, (
        "name it in docs/index.md"
    )


def test_readme_lists_builds_for_example_machines():
    rows = GETS.findall((ROOT / "README.md").read_text("utf-8"))

    assert len(rows) == 3
    assert "nothing" not in {build for *_, build in rows}


def test_documented_pytest_command_matches_make_test():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    tests = re.search(r"^TESTS := \$\(DEV\) (.+)$", makefile, re.MULTILINE)
    recipe = re.search(r"^test-only:.*\n\t\$\(TESTS\) (.+)$", makefile, re.MULTILINE)

    assert tests is not None
    assert recipe is not None
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f".venv-dev/bin/python {tests[1]} {recipe[1]}\n" in page


def test_api_examples_run_without_error():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    _installer, example, on_this_machine = re.findall(
        r"```python\n(.+?)```", text, re.DOTALL
    )

    assert [shown["code"] for shown in EXAMPLE.finditer(text)] == [example]
    run(on_this_machine)


def test_api_page_parameters_match_function_signatures():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+\([^`]*\))(?: -> \w+)?`", text, re.MULTILINE)
    wrong = []
    for row in rows:
        call = ast.parse(row.replace("*, ", "").replace(", ...)", ")")).body[0].value
        listed = [one.id for one in call.args] + [one.arg for one in call.keywords]
        thing = getattr(api, call.func.id)
        fields = getattr(thing, "__struct_fields__", None)
        actual = list(fields or inspect.signature(thing).parameters)
        if listed != actual[: len(listed)]:
            wrong.append((row, actual))

    assert len(rows) == 10
    assert wrong == []


def test_results_have_the_attributes_of_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    results = {
        "install": InstallResult,
        "install_into": InstallResult,
        "lock": WrittenLock,
        "verify": Verdict,
    }
    missing = []
    for name, result in results.items():
        row = re.search(rf"^\| `{name}\(.*$", text, re.MULTILINE)
        assert row
        _action, _, listed = row[0].rpartition("; ")
        names = re.findall(r"`(\w+)(?:\(\))?`", listed)
        assert "to_dict" in names
        missing += [(name, one) for one in names if not hasattr(result, one)]

    assert missing == []


def test_architecture_page_lists_every_package():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = "".join(
        line.partition(" | ")[0] for line in text.splitlines() if line.startswith("| `")
    )

    assert set(re.findall(r"`(\w+)`", rows)) - {"plan"} == set(
        build_package_graph()
    ) - {
        "plan",
        "__main__",
        "gpuinstall",
    }


def test_contributing_guide_example_matches_a_real_test():
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    [example] = re.findall(r"```python\n.+?\n\n\n(.+?)```", page, re.DOTALL)

    file = ROOT / "tests/unit/base/test_versions.py"
    assert example in file.read_text("utf-8")
