"""Real wheels of the default index, read by range: what their native code needs, beside what was measured of them."""

import re
import sys
import time
from typing import NamedTuple

import pytest

from gpuinstall.wheels.elf import read_elf
from gpuinstall.wheels.needs import read_needs
from tests.integration.test_wheels_by_range import (
    index,  # noqa: F401  the fixture
)
from tests.lab.native import readelf

pytestmark = [pytest.mark.heavy, pytest.mark.network]


class Measured(NamedTuple):
    """A wheel and what it needs; ``torch`` is as ``>=2.13`` (stable), ``2.8 2.9`` (ordinary), ``-`` (none) or ``?``."""

    package: str
    version: str
    torch: str
    cuda: int | None
    glibc: str
    platform: str = "linux_x86_64"


WHEELS = [
    Measured("xformers", "0.0.32.post2", "2.8", 12, "2.27"),
    Measured("xformers", "0.0.33.post2", "2.9", 12, "2.27"),
    Measured("xformers", "0.0.34", ">=2.10", 12, "2.14"),
    Measured("torchvision", "0.24.1", "2.9", 12, "2.17"),
    Measured("torchvision", "0.25.0", "2.10 2.11", 12, "2.27"),
    Measured("torchvision", "0.29.2", ">=2.13", 13, "2.27"),
    Measured("torchaudio", "2.8.0", "2.8", 12, "2.27"),
    Measured("torchaudio", "2.10.0", ">=2.10", 12, "2.27"),
    Measured("torchaudio", "2.11.0", ">=2.11", 13, "2.27"),
    Measured("torchao", "0.18.0", ">=2.11", 13, "2.14"),
    Measured("vllm", "0.10.2", "2.8", 12, "2.29"),
    Measured("vllm", "0.17.1", "2.10", 12, "2.29"),
    Measured("vllm", "0.33.0", ">=2.13", 13, "2.26"),
    Measured("vllm", "0.33.0", ">=2.13", 13, "2.17", "linux_aarch64"),
    Measured("sgl-kernel", "0.3.21", "2.9", 12, "2.27"),
    Measured("bitsandbytes", "0.50.2", "-", None, "2.32"),
    Measured("transformer-engine-cu13", "2.20.2", "-", 13, "2.27"),
    Measured("onnxruntime-gpu", "1.18.1", "-", 11, "2.27"),
    Measured("onnxruntime-gpu", "1.19.2", "-", 12, "2.27"),
    Measured("onnxruntime-gpu", "1.26.0", "-", 12, "2.27"),
    Measured("onnxruntime-gpu", "1.27.0", "-", 13, "2.27"),
    Measured("onnxruntime-gpu", "1.31.1", "-", 13, "2.28"),
    Measured("ctranslate2", "4.8.5", "?", None, "2.17"),
    # Not in the tables above: each ordinary one beside the torch that its METADATA pins, where the table has that.
    Measured("torchvision", "0.23.0", "2.8 2.9", 12, "2.17"),
    Measured("torchvision", "0.26.0", "2.11", 13, "2.27"),
    Measured("torchvision", "0.27.0", "2.12", 13, "2.27"),
    Measured("torchaudio", "2.9.1", "2.9", 12, "2.27"),
    Measured("xformers", "0.0.35", ">=2.10", 12, "2.3"),
    Measured("bitsandbytes", "0.47.0", "-", None, "2.4"),
    Measured("vllm", "0.11.0", "2.8", 12, "2.29"),
    Measured("vllm", "0.20.0", "2.11", 13, "2.34"),
    Measured("vllm", "0.24.0", "2.11", 13, "2.28"),
    # Of 2.8 the table does not have what the device's own library exports.
    Measured("torchao", "0.15.0", "2.8 2.9", 12, "2.14"),
    Measured("onnxruntime-gpu", "1.23.2", "-", 12, "2.27"),
    Measured("onnxruntime-gpu", "1.30.0", "-", 13, "2.28"),
    Measured("cupy-cuda12x", "14.2.0", "?", 12, "2.17"),
    Measured("cupy-cuda13x", "14.2.0", "?", 13, "2.17"),
    Measured("jax-cuda12-plugin", "0.12.0.1", "-", None, "2.16"),
    Measured("fbgemm-gpu", "1.5.0", "2.10", 12, "2.14"),
    Measured("torchcodec", "0.10.0", "2.10", None, "2.14"),
    Measured("sglang-kernel", "0.4.10", "2.14 2.15", 13, "2.14"),
    Measured("transformer-engine-cu12", "2.20.2", "-", 12, "2.27"),
    Measured("ctranslate2", "4.4.0", "?", None, "2.17"),
]
WHOLE = [
    ("torchvision", "0.29.2"),
    ("torchaudio", "2.9.1"),
    ("torchao", "0.18.0"),
    ("torchcodec", "0.10.0"),
    ("xformers", "0.0.35"),
    ("bitsandbytes", "0.50.2"),
]


@pytest.mark.parametrize(
    "wheel", WHEELS, ids=lambda wheel: f"{wheel.package}-{wheel.version}-{wheel.platform}"
)
def test_what_a_wheel_needs_is_read_of_a_part_of_it(
    index,  # noqa: F811
    wheel,
    capsys,
):
    started = time.monotonic()
    opened = index.wheel(wheel.package, wheel.version, wheel.platform)
    needs = read_needs(opened, [name for name in opened.members if re.search(r"\.so(\.|$)", name)])
    torch = needs.torch
    with capsys.disabled():
        cost = f"{opened.bytes_read / 1e6:6.2f} MB {opened.requests:3} requests {time.monotonic() - started:5.1f} s"
        sys.stdout.write(
            f"\n{wheel.package} {wheel.version:14} of {opened.size / 1e6:4.0f} MB: {cost}"
        )

    assert (spoken(torch), needs.cuda, needs.glibc) == (wheel.torch, wheel.cuda, wheel.glibc)
    pins = [
        found
        for text in opened.metadata().get_all("Requires-Dist", ())
        if (found := _pin(str(text)))
    ]
    assert all(torch.verdict(pin) is not False for pin in pins)


@pytest.mark.parametrize(("package", "version"), WHOLE)
def test_the_libraries_needed_are_those_that_readelf_names_of_the_whole_file(
    index,  # noqa: F811
    package,
    version,
    tmp_path,
):
    opened = index.wheel(package, version, "linux_x86_64")
    compared = 0
    for name, member in opened.members.items():
        if not re.search(r"\.so(\.|$)", name):
            continue
        beginning = read_elf(opened.beginning(name, 256 << 10), whole=False)
        file = tmp_path / "library.so"
        file.write_bytes(b"".join(opened.stream(name)))
        whole = read_elf(file.read_bytes(), whole=True)
        said = readelf(file, "-d")
        soname = "".join(re.findall(r"SONAME.*\[(.*)\]", said))
        assert whole, name
        assert sorted(whole.needs) == sorted(re.findall(r"NEEDED.*\[(.*)\]", said)), name
        if beginning and member.compress_size > 256 << 10:
            assert {*beginning.needs} - {soname} == {*whole.needs}, name
            assert beginning.undefined() == whole.undefined(), name
        compared += 1
    assert compared


def spoken(torch):
    """Which torch a wheel fits, as the table above writes it."""
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
