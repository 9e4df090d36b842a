"""Indexes in pip's configuration files."""

from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.sources.configuration import (
    parse_pip_file,
)

FOLDER = Path("/project")
PIP_FILE = FOLDER / "pip.conf"


def written(settings):
    """Return settings as their tool writes them."""
    return [(setting.key, setting.value) for setting in settings]


def test_indexes_and_certificates_are_read_from_pip_conf():
    text = """
[global]
index-url = https://index.example/simple
extra-index-url = https://a.example/simple
    https://b.example/simple
find_links = /wheels ./near https://index.example/links
[install]
cert = /ca.pem
"""
    settings = parse_pip_file(text, PIP_FILE, FOLDER)
    assert written(settings) == [
        ("--index-url", "https://index.example/simple"),
        ("--extra-index-url", "https://a.example/simple"),
        ("--extra-index-url", "https://b.example/simple"),
        ("--find-links", "/wheels"),
        ("--find-links", "/project/near"),
        ("--find-links", "https://index.example/links"),
        ("cert", "/ca.pem"),
    ]
    assert {setting.file for setting in settings} == {PIP_FILE}


def test_pip_section_install_precedes_global():
    text = "[install]\nindex-url = https://install.example\n[global]\nindex-url = https://global.example\n"
    settings = parse_pip_file(text, PIP_FILE, FOLDER)
    assert written(settings) == [("--index-url", "https://install.example")]


@given(st.text())
def test_arbitrary_pip_configuration_is_parsed_or_rejected(text):
    with suppress(ValueError):
        assert isinstance(parse_pip_file(text, PIP_FILE, FOLDER), list)
