import tomli

from gpuinstall.base.values import replace
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.file.lock import is_placeholder, placeholder_hash
from gpuinstall.lock.resolve.knowledge import Fact, Knowledge
from gpuinstall.lock.uv.builds import load_known_builds
from gpuinstall.lock.uv.project import format_simple_page
from gpuinstall.sources.web import Page
from tests.lab.own_sources import naming
from tests.unit.lock.wheels_here import listed, resolver_project, torch

TRITON = listed("triton-3.8.0-cp312-cp312-manylinux_2_28_x86_64.whl", sha256="a" * 64)


def test_generated_index_page_parses_to_same_wheels():
    wicked = 'https://index.example/"><a href="https://evil.example'
    wheels = (
        torch(metadata=True, metadata_sha256="b" * 64),
        TRITON,
        torch(source=wicked),
    )
    page = Page(
        format_simple_page(wheels, has_placeholders=True),
        "text/html",
        "https://elsewhere.example/",
    )
    read = [(one.url, one.sha256, one.metadata_sha256) for one in parse_page(page)]
    first, second, third = (wheel.url for wheel in wheels)
    assert read == [
        (first, placeholder_hash(first), "b" * 64),
        (second, "a" * 64, None),
        (third, placeholder_hash(third), None),
    ]
    # Each file has its own placeholder hash.
    assert placeholder_hash(first) != placeholder_hash(third)
    assert len(placeholder_hash(first)) == 64
    assert is_placeholder(placeholder_hash(first))
    assert not is_placeholder("a" * 64)


def test_uv_settings_contain_metadata_without_project_sources():
    requirements = ("torch", "-e member @ ./lib", "-e ./other")
    project = resolver_project(*requirements, pages={"mine": ()})
    settings = project.settings(None)
    assert {row["name"] for row in settings["dependency-metadata"]} == {
        name for name, known in load_known_builds().items() if known.metadata
    }
    bound = project.without_sources
    assert {"torch", "torchaudio", "triton", "mine", "member"} <= bound
    assert "other" not in bound
    assert settings["index"] == []


def test_malformed_preferred_version_is_omitted(tmp_path):
    preferred = {"numpy": ["2.0\n-r /etc/passwd"], "rich": ["14.0"]}
    project = replace(resolver_project("torch"), preferred=preferred)
    project.write(tmp_path, None)
    assert tomli.loads(project.preferences)["packages"] == [
        {"name": "rich", "version": "14.0"}
    ]
    files = filter(lambda path: path.is_file(), tmp_path.rglob("*"))
    assert not any("/etc/passwd" in path.read_text("utf-8") for path in files)


def test_extra_indexes_precede_the_default_index(tmp_path):
    sources = naming(
        ("extra-index-url", "https://corp.example/simple"),
        ("exclude-newer", "2026-01-01"),
    )
    pages = {"torch": (torch(),), "triton": ()}
    project = resolver_project("torch", "ours", pages=pages, sources=sources)
    project.write(tmp_path, "https://index.example/simple")
    settings = tomli.loads((tmp_path / "uv.toml").read_text("utf-8"))
    assert settings["index"] == [
        {"url": "https://corp.example/simple"},
        {
            "url": "https://index.example/simple",
            "default": True,
            # uv runs several times for one lock, and mirrors may not set a lifetime.
            "cache-control": {"api": "max-age=600", "files": "max-age=600"},
        },
    ]
    page = (tmp_path / "family" / "triton" / "index.html").read_text("utf-8")
    assert parse_page(Page(page, "text/html", "")) == ()
    assert settings["exclude-newer"] == "2026-01-01"
    assert settings["exclude-newer-package"] == {"torch": False, "triton": False}


def test_many_uninspected_releases_are_only_counted():
    known = Knowledge.from_facts([Fact("a", str(n), unread="large") for n in range(4)])
    assert known.format_unread_releases("a") == " (4 releases not inspected: large)"
