"""``gpuinstall extensions``: what it says of a stand-in of the index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gpuinstall.cli.main import run_command_line
from tests.lab.extension_index import ExtensionIndex
from tests.unit.extensions.test_choice import library
from tests.unit.wheels.test_needs import FROM_2_10, UNTIL_2_8

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MACHINE = ["--gpu", "RTX 3090", "--driver", "550", "--python", "3.12"]


def test_the_pair_is_shown_with_what_torch_would_be_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUINSTALL_CACHE", str(tmp_path / "cache"))
    index = ExtensionIndex()
    good = index.add("cu126", "flash-attn", "cu.12.6.torch.2.12", library(tmp_path, FROM_2_10))
    bad = index.add(
        "cu126", "flash-attn", "cu.12.6.torch.2.13", library(tmp_path, UNTIL_2_8), version="2.8.4"
    )
    host = index.host()
    monkeypatch.setenv("GPUINSTALL_EXTENSION_INDEX", f"{host.url}/simple")

    assert run_command_line(["extensions", "flash-attn", *MACHINE]) == 0
    said = capsys.readouterr().out
    assert run_command_line(["extensions", "flash-attn", *MACHINE, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    host.close()

    assert "flash-attn 2.8.3+cu.12.6.torch.2.12 beside torch 2.12.1+cu126" in said
    assert "without it torch 2.14.1+cu126 would run here" in said
    assert (
        f"rejected {bad}: its name says torch 2.13, and its code works with torch 2.1 to 2.8: "
        "torch 2.13.0 lacks a symbol that it uses" in " ".join(said.split())
    )
    found = document["data"]["extensions"][0]
    assert (found["fit"]["file"], found["fit"]["source"], len(found["fit"]["sha256"])) == (
        good,
        "astral",
        64,
    )
    assert [(file["file"], file["code"]) for file in found["rejected"]] == [(bad, "torch-abi")]


def test_without_a_name_every_extension_of_the_catalogue_is_listed_and_no_source_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["extensions"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "flash-attn-3               astral; needs compute capability 9.0" in lines
    assert "flash-attn-4               default; needs compute capability 9.0" in lines
