"""``gpuinstall table`` as a whole process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab.forked import gpuinstall


def run(*arguments: str) -> dict[str, Any]:
    done = gpuinstall("table", *arguments, "--json")
    document: dict[str, Any] = json.loads(done.out)
    assert document["exit_code"] == done.status
    return document


def table(*arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = run(*arguments)["data"]
    return data


def test_a_row_is_a_kind_of_gpu_and_a_column_a_range_of_drivers() -> None:
    rows = {row["gpu"]: row for row in table()["rows"]}

    assert rows["Pascal 6.0, 6.1"]["580"] == "2.14.1+cu126"
    assert rows["Pascal 6.0, 6.1"]["590"] == "–"
    assert rows["Ampere 8.0"]["610–615"] == "2.15.0+cu132"


def test_one_gpu_and_one_driver_are_one_cell() -> None:
    assert table("--gpu", "RTX 5090", "--driver", "570.86")["rows"] == [
        {"gpu": "GeForce RTX 5090 12.0", "570.86": "2.13.0+cu129"}
    ]


def test_a_gpu_that_is_asked_for_is_shown_where_nothing_runs_too() -> None:
    assert table("--gpu", "GT 710", "--gpu", "sm_89", "--driver", "470")["rows"] == [
        {"gpu": "GeForce GT 710 3.5", "470": "–"},
        {"gpu": "sm_89 8.9", "470": "–"},
    ]


def test_a_gpu_begins_with_the_first_driver_that_knows_it() -> None:
    cells = {
        driver: table("--gpu", "sm_89", "--driver", driver)["rows"][0][driver]
        for driver in ("515", "520.56.06")
    }

    assert cells == {"515": "–", "520.56.06": "2.7.1+cu118"}


@pytest.mark.parametrize("arguments", [("--driver", "banana"), ("--gpu", "Voodoo 2")])
def test_what_is_no_driver_and_no_gpu_is_exit_2(arguments: tuple[str, str]) -> None:
    assert run(*arguments)["exit_code"] == 2


def test_another_platform_has_another_table() -> None:
    assert (
        table("--gpu", "RTX 5070 Ti", "--driver", "572.83", "--os", "windows")["rows"][0]["572.83"]
        == "2.11.0+cu128"
    )


def test_the_table_reads_names_and_drivers_as_the_plan_does() -> None:
    assert table("--gpu", "nvidia_h100_80gb_hbm3", "--driver", "535-server")["rows"] == [
        {"gpu": "h100 80gb hbm3 9.0", "535": "2.14.1+cu126"}
    ]
    assert run("--gpu", "RTX 6000")["errors"][0]["code"] == "gpu-ambiguous"


def test_the_platform_of_the_table_is_the_one_of_what_is_named() -> None:
    assert table("--gpu", "DGX Spark", "--driver", "580")["arch"] == "aarch64"
    assert table("--gpu", "RTX 4090", "--driver", "31.0.15.3623")["os"] == "windows"


def test_people_are_told_the_platform_the_day_and_the_signs_that_are_there() -> None:
    nvidia = gpuinstall("table", "--gpu", "GTX 1080", "--gpu", "RTX 5090").out.splitlines()
    other = gpuinstall("table", "--gpu", "RX 7900 XTX").out.splitlines()

    assert nvidia[0].startswith("Newest PyTorch by GPU and driver: Linux x86_64, as of 20")
    assert nvidia[-1] == "cu126 is PyTorch for CUDA 12.6, and so on; – nothing runs"
    assert other[-3].startswith("AMD Radeon RX 7900 XTX  ")
    assert other[-1] == "not proven on a GPU yet", "neither sign is in it"


def test_other_makers_chips_have_the_builds_that_plan_gives_their_cards() -> None:
    others = {row["architecture"]: row for row in table()["others"]}

    for architecture in ("gfx942", "gfx1031", "gfx1100", "xe 20.1", "metal"):
        row = others[architecture]
        planned = json.loads(gpuinstall("plan", "--gpu", row["products"][0], "--json").out)["data"][
            "build"
        ]
        assert row["build"] == (f"{planned['torch']}+{planned['backend']}" if planned else "–"), (
            architecture
        )


def test_other_makers_chips_are_those_of_the_system_asked_for() -> None:
    builds = {row["architecture"]: row["build"] for row in table("--os", "windows")["others"]}

    assert (builds["gfx1100"], builds["xe 20.1"], "metal" in builds) == ("–", "2.15.0+xpu", False)
    assert table("--driver", "580")["others"] == []


def test_people_see_the_other_makers_chips_that_something_runs_on_and_that_nothing_is_proven() -> (
    None
):
    lines = gpuinstall("table").out.splitlines()

    assert any(
        line.startswith("Radeon RX 7900 XTX") and line.endswith("2.14.1 rocm7.2  Linux")
        for line in lines
    )
    assert not any("gfx1031" in line for line in lines)
    assert (
        "Other makers' GPUs need no particular driver; none of these builds is proven on a GPU yet"
        in lines
    )
    assert "macOS has one build, called cpu on the index, and it runs on the GPU (MPS)" in lines[-1]
