import tomli

from gpuinstall.base.values import replace
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.resolve.facts import Fact, Facts
from gpuinstall.lock.uv.builds import load_known_builds
from gpuinstall.sources.web import Page
from tests.lab.own_sources import naming
from tests.unit.lock.wheels_here import resolver_project, torch


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
    known = Facts.from_facts([Fact("a", str(n), unread="large") for n in range(4)])
    assert known.format_unread_releases("a") == " (4 releases not inspected: large)"
