"""``gpuinstall lock --cover``: the locks that serve a range of GPUs and drivers, written and priced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.index import StandInIndex

CARDS = ("--gpu", "RTX 30", "--gpu", "RTX 40", "--gpu", "A800", "--gpu", "H800")


def test_the_locks_of_a_range_are_written_and_it_is_said_what_each_serves_and_adds(
    stand_in: StandInIndex, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    workshop = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    words = ("lock", "torch", "--cover", *CARDS, "--driver", ">=470")

    fewest = workshop.document(*words)["data"]
    assert [row["target"] for row in fewest["cover"]] == ["cu118"]
    assert fewest["unserved"] == "RTX 40, H800 with driver 470–515"
    each = workshop.document(*words, "--per-target", "newest")["data"]
    assert [(row["target"], row["torch"]) for row in each["locks"]] == [
        ("cu118", "2.7.1+cu118"),
        ("cu126", "2.14.1+cu126"),
        ("cu132", "2.15.0+cu132"),
    ]
    assert [row["serves"].rpartition(" ")[2] for row in each["cover"]] == ["520", "525–575", "580–615"]
    assert all(0 < row["added"] <= row["bytes"] for row in each["cover"])
    done = workshop.run(*words, "--per-target", "newest")
    assert "Serves      cu126: RTX 30, RTX 40, A800, H800 with driver 525–575 (" in done.out
    assert "None        no build runs on RTX 40, H800 with driver 470–515" in done.out


def test_a_range_without_gpus_and_one_torch_too_many_are_refused(stand_in: StandInIndex, tmp_path: Path) -> None:
    workshop = Workshop(tmp_path, tmp_path / "caches", stand_in.environment())
    assert "--cover takes --gpu" in workshop.run("lock", "--cover").err
    refused = workshop.run("lock", "--cover", "--all-supported", "--per-target", "newest")
    assert refused.status == 3
    assert "two versions of torch for cu118" in refused.err
