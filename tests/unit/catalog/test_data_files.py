"""Catalog files and their parsed copies."""

import json

import pytest
import tomli

from gpuinstall.catalog import data_files
from gpuinstall.machine.symptoms import SYMPTOMS

PARSED = ["builds.toml", "drivers.toml", "gpus.toml", *SYMPTOMS]


@pytest.mark.parametrize("name", PARSED)
def test_json_copy_equals_its_toml_table(name):
    path = data_files.TABLES / name
    text = path.read_text("utf-8")
    document = json.loads(path.with_suffix(".json").read_text("utf-8"))
    del document["crc32"]

    assert document == tomli.loads(text), "run: make docs"
    assert data_files.read_data(name) == document


def test_outdated_json_copy_of_toml_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr(data_files, "TABLES", tmp_path)
    (tmp_path / "rows.toml").write_text('name = "new"')
    (tmp_path / "rows.json").write_text('{"crc32": 1, "name": "old"}')

    assert data_files.read_data("rows.toml") == {"name": "new"}
