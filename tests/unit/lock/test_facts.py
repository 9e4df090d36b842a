"""What wheels say that METADATA does not."""

from gpuinstall.lock.solve.facts import left_out
from gpuinstall.wheels.learned.row import LearnedRow

NEEDS = ("libcutensor.so.2", "libcudss.so.0", "libcutensornet.so.2", "libnvinfer.so.10")


def row(**facts):
    return LearnedRow(
        "painter",
        "1.0",
        "cu126",
        "linux-x86_64",
        file="painter-1.0-cp312-cp312-linux_x86_64.whl",
        url="https://index.example/painter.whl",
        size=1,
        bytes=1,
        learned="2026-01-01T00:00:00+00:00",
        cuda="12.0",
        **facts,
    )


def test_missing_requirements_have_a_stable_order():
    linked = ("tensorrt-cu13-libs", "cutensor-cu12", "cutensornet-cu12", "cudss-cu12")
    reading = row(needs=NEEDS)

    assert left_out(reading, linked) == (
        "cutensor-cu12",
        "cutensornet-cu12",
        "tensorrt-cu12-libs",
    )
    required = row(needs=NEEDS, requires=("cutensor-cu12>=2",))
    assert left_out(required, linked[:2]) == ("tensorrt-cu12-libs",)
    assert left_out(reading, ()) == ()
