"""Builds for AMD and Intel GPUs, checked against their vendors' lists."""

from typing import NamedTuple

import pytest

from gpuinstall.base.machine import Gpu, Machine
from tests.frozen import frozen_catalog
from tests.unit.machine.made import outcome, planned

CODES = {
    "seven": "900 906 908 90a 942 1030 1100",
    "eight": "seven 1101",
    "eleven": "eight 1102 1200 1201",
    "fourteen": "eleven 950 1150 1151",
    "fifteen": "fourteen 1103",
    "client": "12.55 12.56 12.57 20.1 20.2 20.4",
    "clients": "client 12.71 12.74",
}
"""Chips with code in several builds, keyed by a list name for other tables."""

# torch minor versions, tags of builds, system, and architectures.
# # For AMD, the code of builds on the index; for Intel, the documentation.
TABLE = """
2.0                           | rocm5.3 rocm5.4.2   | linux   |
2.1                           | rocm5.5 rocm5.6     | linux   |
2.2                           | rocm5.6 rocm5.7     | linux   |
2.3                           | rocm5.7             | linux   |
2.3 2.4                       | rocm6.0             | linux   | seven
2.4 2.5 2.6                   | rocm6.1             | linux   | eight
2.5                           | rocm6.2             | linux   | seven
2.6                           | rocm6.2.4           | linux   | eight
2.7                           | rocm6.2.4 rocm6.3   | linux   | eleven
2.8 2.9                       | rocm6.3 rocm6.4     | linux   | eleven
2.10                          | rocm7.0 rocm7.1     | linux   | fourteen
2.11 2.12                     | rocm7.1 rocm7.2     | linux   | fourteen
2.13                          | rocm7.1 rocm7.2     | linux   | fifteen
2.14                          | rocm7.2             | linux   | fifteen
2.5                           | xpu                 | linux   | 12.60
2.5                           | xpu                 | windows |
2.6                           | xpu                 | linux   | 12.60 client
2.6                           | xpu                 | windows | client
2.7 2.8 2.9                   | xpu                 | linux   | 12.60 clients
2.7 2.8 2.9                   | xpu                 | windows | clients
2.10 2.11 2.12 2.13 2.14 2.15 | xpu                 | linux   | 12.60 clients 30
2.10 2.11 2.12 2.13 2.14 2.15 | xpu                 | windows | clients 30
"""
STRANGERS = {"rocm": "1031 1036 803", "xpu": "12.2 12.10 12.70"}


class Listed(NamedTuple):
    """Architectures of a torch minor version, tag, and system."""

    minor: str
    tag: str
    os: str
    chips: set[str]

    @property
    def kind(self):
        return "xpu" if self.tag == "xpu" else "rocm"


def chips_in(text):
    for word in text.split():
        if word in CODES:
            yield from chips_in(CODES[word])
        else:
            yield word


def listed():
    for line in TABLE.strip().splitlines():
        minors, tags, system, chips = line.split("|")
        for minor in minors.split():
            for tag in tags.split():
                yield Listed(minor, tag, system.strip(), {*chips_in(chips)})


LISTED = list(listed())
CHIPS = {
    (kind, chip)
    for kind, strangers in STRANGERS.items()
    for chips in (
        strangers.split(),
        *(one.chips for one in LISTED if one.kind == kind),
    )
    for chip in chips
}


def machine_with(kind, chip, os="linux", kernel=None):
    """Return a machine with one AMD or Intel GPU."""
    gpu = Gpu(0, vendor="amd", architecture=f"gfx{chip}")
    if kind == "xpu":
        gpu = Gpu(0, vendor="intel", architecture=f"xe {chip}.0")
    facts = {"amd": {"kernel": kernel}} if kernel else {}
    return Machine(os, "x86_64", gpus=(gpu,), makers=facts)


def minor_of(torch):
    return ".".join(str(torch).split(".")[:2])


@pytest.mark.parametrize(("kind", "chip"), sorted(CHIPS))
def test_plan_selects_only_builds_that_support_chip(kind, chip):
    wrong = []
    for minor, tag, os, chips in (one for one in LISTED if one.kind == kind):
        machine = machine_with(kind, chip, os)
        for torch in frozen_catalog().releases:
            if minor_of(torch) != minor:
                continue
            plan = planned(machine, tag, (f"torch=={torch}",))
            if (plan.choice is not None) != (chip in chips):
                wrong.append((str(torch), tag, os))

    assert wrong == []


@pytest.mark.parametrize(
    ("vendor", "chip", "backend", "code"),
    [("rocm", "1100", "rocm7.14", "split"), ("xpu", "12.2", "xpu", "no-build-ever")],
)
def test_backend_without_builds_for_a_chip_is_rejected(vendor, chip, backend, code):
    plan = planned(machine_with(vendor, chip), backend)

    assert (plan.status, plan.exit_code, outcome(plan)) == ("refused", 3, code)


def test_related_chip_code_does_not_match():
    plan = planned(machine_with("rocm", "1031"))

    assert (plan.exit_code, outcome(plan)) == (3, "no-build-ever")
    command, cpu = (plan.fix or "").splitlines()
    assert command.startswith(
        "python -m pip install --index-url https://stable.repo.amd.com/"
    )
    assert "'torch[device-gfx1031]==" in command
    assert cpu == "Run it again with --backend cpu: selects the CPU build"


def test_unsupported_linux_kernel_warns_for_rocm():
    near = planned(machine_with("rocm", "1100", kernel="6.17.0-5"))
    far = planned(machine_with("rocm", "1100", kernel="6.8.0-45"))

    assert [warning.code for warning in near.warnings] == ["not-proven"]
    assert [warning.code for warning in far.warnings] == [
        "not-proven",
        "kernel-far-from-rocm",
    ]
    assert "released 682 days apart" in far.warnings[1].message


# The older ROCm is closer to 6.12, and crashes.
@pytest.mark.parametrize("kernel", ["6.11.0", "6.12.0"])
def test_chip_warning_includes_minimum_linux_kernel(kernel):
    machine = machine_with("rocm", "1151", kernel=kernel)
    plan = planned(machine, None, ("torch==2.11.0",))

    assert outcome(plan) == "2.11.0+rocm7.2"
    assert "AMD names Linux 6.14 as the oldest kernel for this chip" in [
        warning.message for warning in plan.warnings
    ]


def test_amd_gpu_on_windows_suggests_amd_packages():
    plan = planned(machine_with("rocm", "1201", "windows"))

    assert (plan.exit_code, outcome(plan)) == (3, "amd-elsewhere")
    command, guide, *_ = (plan.fix or "").splitlines()
    assert command.startswith(
        "python -m pip install --index-url https://stable.repo.amd.com/rocm/whl-next/"
        " 'torch[device-gfx1201]==2.14.0+rocm10.1.0'"
        " 'torchvision[device-gfx1201]==0.29.0a0+rocm10.1.0' torchaudio==2.11.0.3+rocm10.1.0   # "
    )
    assert guide.startswith("AMD's guide: https://rocm.docs.amd.com/")
