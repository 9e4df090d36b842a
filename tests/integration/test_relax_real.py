"""``--relax`` on the real default index: a short file of 2022 for a card of 2025."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli

from tests.lab.workshop import Workshop

pytestmark = pytest.mark.network

OF_2022 = """\
torch==1.12.1+cu113
torchvision==0.13.1+cu113
einops==0.4.1
numpy==1.23.1
"""


def test_a_file_of_2022_is_locked_for_a_new_card(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "requirements.txt").write_text(OF_2022, encoding="utf-8")
    variables = {"PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": ""}
    workshop = Workshop(folder, tmp_path / "caches", variables)

    words = ("--gpu", "RTX 5090", "--driver", "580.95.05", "--relax")
    lock = workshop.document("lock", *words)["data"]["locks"][0]

    document = tomli.loads(Path(lock["path"]).read_text("utf-8"))
    versions = {package["name"]: package["version"] for package in document["packages"]}
    assert document["tool"]["gpuinstall"]["relaxed"] == {
        "torch": "torch==1.12.1+cu113",
        "torchvision": "torchvision==0.13.1+cu113",
    }
    assert (versions["einops"], versions["numpy"]) == ("0.4.1", "1.23.1")
