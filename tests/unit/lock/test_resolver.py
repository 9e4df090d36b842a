import pytest
import tomli
from packaging.version import InvalidVersion

from gpuinstall.base.errors import UsageError
from gpuinstall.base.values import replace
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.file.lock import is_unknown, unknown_hash
from gpuinstall.lock.uv.builds import known_builds
from gpuinstall.lock.uv.project import simple_page
from gpuinstall.sources.web import Page
from tests.lab.own_sources import naming
from tests.unit.lock.wheels_here import listed, resolver_project, torch

TRITON = listed("triton-3.8.0-cp312-cp312-manylinux_2_28_x86_64.whl", sha256="a" * 64)


def test_a_page_reads_back_as_the_wheels_it_was_written_from():
    wheels = (torch(metadata=True, metadata_sha256="b" * 64), TRITON)
    back = parse_page(
        Page(simple_page(wheels), "text/html", "https://elsewhere.example/")
    )
    assert [wheel.url for wheel in back] == [wheel.url for wheel in wheels]
    assert [wheel.sha256 for wheel in back] == [unknown_hash(wheels[0].url), "a" * 64]
    assert [wheel.metadata_sha256 for wheel in back] == ["b" * 64, None]


def test_what_stands_for_a_hash_is_each_files_own():
    first, second = (
        unknown_hash("https://index.example/a.whl"),
        unknown_hash("https://index.example/b.whl"),
    )
    assert first != second
    assert is_unknown(first)
    assert len(first) == 64
    assert not is_unknown("a" * 64)


def test_an_address_cannot_break_out_of_its_simple_page():
    wicked = torch(source='https://index.example/"><a href="https://evil.example')
    assert '"><a' not in simple_page((wicked,)).replace('">torch', "")


def test_a_package_that_nobody_lists_has_an_empty_page(tmp_path):
    pages = {"torch": (torch(),), "torchtext": ()}
    resolver_project("torch", pages=pages).write(tmp_path, None)
    page = (tmp_path / "family" / "torchtext" / "index.html").read_text("utf-8")
    assert parse_page(Page(page, "text/html", "")) == ()


def test_uv_builds_nothing_for_known_metadata_and_takes_no_projects_source_for_what_has_a_page():
    requirements = ("torch", "-e member @ ./lib", "-e ./other")
    settings = resolver_project(*requirements, pages={"mine": ()}).settings(None)
    assert {row["name"] for row in settings["dependency-metadata"]} == {
        name for name, known in known_builds().items() if known.metadata
    }
    bound = settings["pip"]["no-sources-package"]
    assert {"torch", "torchaudio", "triton", "mine", "member"} <= {*bound}
    assert "other" not in bound
    assert settings["index"] == []


def test_what_uv_is_given_has_one_requirement_on_a_line(tmp_path):
    wicked = 'numpy ; platform_release == "a\n-r /etc/passwd"'
    project = resolver_project("torch")
    for narrowing in (
        {"requirements": ("torch", wicked)},
        {"constraints": (wicked,)},
        {"preferred": {"numpy": ["2.0\n-r /etc/passwd"]}},
    ):
        with pytest.raises((UsageError, InvalidVersion)):
            replace(project, **narrowing).write(tmp_path, None)
        written = [
            path.read_text("utf-8") for path in tmp_path.iterdir() if path.is_file()
        ]
        assert not any("/etc/passwd" in text for text in written)


def test_further_indexes_come_after_the_family_and_before_the_default_one(tmp_path):
    sources = naming(
        ("extra-index-url", "https://corp.example/simple"),
        ("exclude-newer", "2026-01-01"),
    )
    project = resolver_project(
        "torch==2.14.1+cu126",
        "ours",
        pages={"torch": (torch(),), "triton": ()},
        sources=sources,
    )
    project.write(tmp_path, "https://index.example/simple")
    settings = tomli.loads((tmp_path / "uv.toml").read_text("utf-8"))
    further, default = settings["index"]
    assert further == {"url": "https://corp.example/simple"}
    assert (default["url"], default["default"]) == (
        "https://index.example/simple",
        True,
    )
    # For a mirror that says nothing of it: uv runs several times for one lock.
    assert default["cache-control"] == {"api": "max-age=600", "files": "max-age=600"}
    assert (settings["exclude-newer"], settings["exclude-newer-package"]) == (
        "2026-01-01",
        {"torch": False, "triton": False},
    )
