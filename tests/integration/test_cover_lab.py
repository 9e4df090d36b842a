"""``gpuinstall lock cover``: the locks that serve a range of GPUs and drivers, written."""

from tests.lab.workshop import Workshop

CARDS = ("--gpu", "RTX 30", "--gpu", "RTX 40", "--gpu", "A800", "--gpu", "H800")


def test_the_locks_of_a_range_are_written_and_it_is_said_what_each_serves(stand_in, tmp_path):
    (tmp_path / "project").mkdir()
    workshop = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    words = ("lock", "cover", "torch", *CARDS, "--driver", ">=470")

    data = workshop.document(*words)["data"]
    assert [row["target"] for row in data["cover"]] == ["cu118", "cu126", "cu132"]
    assert data["unserved"] == "RTX 40, H800 with driver 470–515"
    done = workshop.run(*words)
    assert "Serves      cu126: RTX 30, RTX 40, A800, H800 with driver 525–575\n" in done.out
    assert "Uncovered   no build runs on RTX 40, H800 with driver 470–515" in done.out


def test_a_range_without_gpus_is_refused(stand_in, tmp_path):
    workshop = Workshop(tmp_path, tmp_path / "caches", stand_in.environment())
    assert (
        "lock cover requires either --gpu or --all-supported" in workshop.run("lock", "cover").err
    )
