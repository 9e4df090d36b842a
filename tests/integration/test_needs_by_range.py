"""Tests of the libraries that real wheels need, read by range requests."""

import re
import sys
import time
from typing import NamedTuple

import pytest

from gpuinstall.wheels.needs import TableCache, built_cuda_majors, read_needs
from tests.integration.test_wheels_by_range import (
    index,  # noqa: F401  the fixture
)

pytestmark = [pytest.mark.heavy, pytest.mark.network]


class Measured(NamedTuple):
    """A wheel and the torch and CUDA versions that it needs.

    ``torch`` is ``>=2.13`` (stable ABI), ``2.8 2.9``, ``-``, or ``?``. ``cuda`` lists
    the CUDA major versions of the libraries.
    """

    package: str
    version: str
    torch: str
    cuda: tuple[int, ...]
    glibc: str
    platform: str = "linux_x86_64"


WHEELS = [
    Measured("xformers", "0.0.32.post2", "2.8", (12,), "2.27"),
    Measured("xformers", "0.0.34", ">=2.10", (12,), "2.14"),
    Measured("torchvision", "0.25.0", "2.10 2.11", (12,), "2.27"),
    Measured("torchvision", "0.29.2", ">=2.13", (13,), "2.27"),
    Measured("torchao", "0.18.0", ">=2.11", (13,), "2.14"),
    Measured("vllm", "0.33.0", ">=2.13", (13,), "2.26"),
    Measured("vllm", "0.33.0", ">=2.13", (13,), "2.17", "linux_aarch64"),
    Measured("sgl-kernel", "0.3.21", "2.9", (12,), "2.27"),
    Measured("bitsandbytes", "0.50.2", "-", (11, 12, 13), "2.32"),
    Measured("onnxruntime-gpu", "1.18.1", "-", (11,), "2.27"),
    Measured("onnxruntime-gpu", "1.31.1", "-", (13,), "2.28"),
    Measured("ctranslate2", "4.8.5", "?", (), "2.17"),
    Measured("torchao", "0.15.0", "2.8 2.9", (12,), "2.14"),
    Measured("onnxruntime-gpu", "1.30.0", "-", (13,), "2.28"),
    Measured("cupy-cuda12x", "14.2.0", "?", (12,), "2.17"),
    Measured("fbgemm-gpu", "1.5.0", "2.10", (12,), "2.14"),
    Measured("sglang-kernel", "0.4.10", "2.14 2.15", (13,), "2.14"),
]


@pytest.mark.parametrize(
    "wheel",
    WHEELS,
    ids=lambda wheel: f"{wheel.package}-{wheel.version}-{wheel.platform}",
)
def test_wheel_requirements_are_read_by_range(
    index,  # noqa: F811
    wheel,
    capsys,
):
    started = time.monotonic()
    opened = index.wheel(wheel.package, wheel.version, wheel.platform)
    needs = read_needs(
        TableCache(opened),
        [name for name in opened.members if re.search(r"\.so(\.|$)", name)],
    )
    torch = needs.torch
    with capsys.disabled():
        cost = f"{opened.bytes_read / 1e6:6.2f} MB {time.monotonic() - started:5.1f} s"
        sys.stdout.write(
            f"\n{wheel.package} {wheel.version:14} of {opened.size / 1e6:4.0f} MB: {cost}"
        )

    assert (spoken(torch), built_cuda_majors(needs, (), ()), needs.glibc) == (
        wheel.torch,
        wheel.cuda,
        wheel.glibc,
    )
    pins = [
        found
        for text in opened.metadata().get_all("Requires-Dist", ())
        if (found := _pin(str(text)))
    ]
    assert all(torch.verdict(pin) is not False for pin in pins)


def spoken(torch):
    """Return the compatible torch versions in the format of the table."""
    said = {
        "stable": f">={torch.oldest}",
        "ordinary": " ".join(torch.fits),
        "none": "-",
        "unknown": "?",
    }
    return said[torch.kind]


def _pin(text):
    found = re.match(r"torch ?\(?== ?(\d+\.\d+)", text)
    return found[1] if found else None
