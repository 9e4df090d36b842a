"""What pip's and uv's own configuration says about indexes."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.sources.configuration import (
    Indexes,
    merged,
    parse_pip_environment,
    parse_pip_file,
    parse_uv_environment,
    parse_uv_table,
)

FOLDER = Path("/project")


def test_pip_file_gives_default_extra_find_links_and_certificates():
    text = """
[global]
index-url = https://index.example/simple
extra-index-url = https://a.example/simple
    https://b.example/simple
find_links = /wheels ./near https://index.example/links
[install]
cert = /ca.pem
"""
    assert parse_pip_file(text, FOLDER) == Indexes(
        default="https://index.example/simple",
        extra=("https://a.example/simple", "https://b.example/simple"),
        find_links=("/wheels", "/project/near", "https://index.example/links"),
        certificates="/ca.pem",
    )


def test_pip_section_install_beats_global():
    text = "[install]\nindex-url = https://install.example\n[global]\nindex-url = https://global.example\n"
    assert parse_pip_file(text, FOLDER).default == "https://install.example"


def test_pip_sections_of_other_commands_do_not_count():
    assert parse_pip_file("[search]\nindex-url = https://index.example\n", FOLDER) == Indexes()


def test_pip_variables_are_read_and_empty_ones_say_nothing():
    environ = {
        "PIP_INDEX_URL": "",
        "PIP_FIND_LINKS": "/wheels",
        "PIP_CERT": "/ca.pem",
        "HOME": "/home/x",
    }
    assert parse_pip_environment(environ, FOLDER) == Indexes(
        find_links=("/wheels",), certificates="/ca.pem"
    )


def test_uv_variables_may_carry_names_and_the_newer_default_wins():
    environ = {
        "UV_DEFAULT_INDEX": "main=https://index.example/simple",
        "UV_INDEX_URL": "https://old.example/simple",
        "UV_INDEX": "torch=https://a.example/whl https://b.example/?key=1",
        "UV_FIND_LINKS": "/wheels, /more",
    }
    assert parse_uv_environment(environ, FOLDER) == Indexes(
        default="https://index.example/simple",
        extra=("https://a.example/whl", "https://b.example/?key=1"),
        find_links=("/wheels", "/more"),
    )


def test_uv_table_knows_default_extra_and_explicit_indexes():
    table = {
        "index": [
            {"name": "torch", "url": "https://torch.example/whl", "explicit": True},
            {"url": "https://extra.example/simple"},
            {"url": "https://index.example/simple", "default": True},
        ],
        "find-links": ["wheels"],
    }
    assert parse_uv_table(table, FOLDER) == Indexes(
        default="https://index.example/simple",
        extra=("https://extra.example/simple",),
        find_links=("/project/wheels",),
    )


def test_first_configuration_wins_and_lists_are_joined():
    strong = Indexes(default="https://a.example", find_links=("/a", "/b"))
    weak = Indexes(default="https://b.example", find_links=("/b", "/c"), certificates="/ca.pem")
    assert merged([strong, weak]) == Indexes("https://a.example", (), ("/a", "/b", "/c"), "/ca.pem")


@given(st.text())
def test_any_pip_file_is_read_or_refused(text):
    with suppress(ValueError):
        assert isinstance(parse_pip_file(text, FOLDER), Indexes)


@pytest.mark.parametrize(
    "table", [{"find-links": "/wheels"}, {"index": [{"name": "x"}]}, {"index": ["x"]}]
)
def test_uv_table_of_another_shape_is_refused(table):
    with pytest.raises((KeyError, TypeError, AttributeError)):
        parse_uv_table(table, FOLDER)
