"""The authored files, and what is parsed of them beforehand."""

import json

import pytest
import tomli

from gpuinstall.catalog import authored

PARSED = ["builds", "drivers", "gpus"]


@pytest.mark.parametrize("name", PARSED)
def test_what_was_parsed_beforehand_is_the_file(name):
    text = (authored.TABLES / f"{name}.toml").read_text("utf-8")
    document = json.loads((authored.TABLES / f"{name}.json").read_text("utf-8"))
    del document["crc32"]

    assert document == tomli.loads(text), "run: make docs"
    assert authored.read_data(f"{name}.toml") == document


def test_after_an_edit_the_file_itself_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(authored, "TABLES", tmp_path)
    (tmp_path / "rows.toml").write_text('name = "new"')
    (tmp_path / "rows.json").write_text('{"crc32": 1, "name": "old"}')

    assert authored.read_data("rows.toml") == {"name": "new"}
