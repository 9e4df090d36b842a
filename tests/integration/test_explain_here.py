"""``gpuinstall explain`` on the machine where it failed: the text and what is found there, told apart."""

import pytest

from tests.lab.driver import NO_GPU, FakeDriver
from tests.lab.environments import small_torch
from tests.stories.test_stories import CARDS

NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)
GTX_1080 = FakeDriver((CARDS["GTX 1080"],))
CERTAIN = 0.99


def explained(workshop, *text):
    data = workshop.document("explain", *text)["data"]
    first = [(cause["id"], cause["confidence"]) for cause in data["causes"][:1]]
    here = data["here"] or {"found": []}
    return first, {row["id"]: row["fits"] for row in here["found"]}


@pytest.fixture
def found(workshop, play):
    """Play a machine with a small torch; return the first cause of a text there, and which faults fit it."""

    def look(text, driver, build):
        play(driver)
        torch, _, backend = build.partition("+")
        venv = workshop.folder / ".venv"
        if not venv.exists():
            small_torch(venv, backend, torch)
        return explained(workshop, text)

    return look


def test_a_text_of_another_machine_is_left_as_it_is(workshop, found):
    for line in ("NVIDIA GeForce RTX 5090", "PyTorch version: 2.9.0+cu130"):
        first, fits = found(f"{line}\n{NO_KERNEL}", GTX_1080, "2.7.1+cu128")
        assert first[0][1] < CERTAIN
        assert not any(fits.values())
    said = workshop.run("explain", f"PyTorch version: 2.9.0+cu130\n{NO_KERNEL}").out
    assert "names another torch or another card than these" in said


def test_a_sure_text_is_not_looked_for(workshop, play):
    play(GTX_1080)
    text = "AssertionError: Torch not compiled with CUDA enabled"
    assert workshop.document("explain", text)["data"]["here"] is None


def test_a_library_of_the_text_is_looked_for(workshop, found):
    text = "libcaffe2.so: cannot open shared object file: No such file or directory"
    first, fits = found(text, NO_GPU, "2.14.1+cu126")
    assert fits["F102"]
    library = workshop.folder / ".venv/lib/libcaffe2.so"
    library.touch()
    data = workshop.document("explain", text)["data"]
    assert data["here"]["libraries"] == {"libcaffe2.so": None}
    site = next(workshop.folder.glob(".venv/lib/python*/site-packages"))
    (site / "torch/lib").mkdir()
    library.rename(site / "torch/lib/libcaffe2.so")
    again, fits = found(text, NO_GPU, "2.14.1+cu126")
    # A library that is not there may be needed by nothing here: it decides nothing.
    assert first == again == [("F102", 0.35)]
    assert "F102" not in fits
