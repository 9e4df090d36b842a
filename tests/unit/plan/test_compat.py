"""What forward compatibility would give: named by a refusal, and only if every GPU can use it."""

import re
from dataclasses import replace

from gpuinstall.base.machine import Environment, JetsonRelease
from gpuinstall.base.request import Request
from gpuinstall.plan import choose
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

OLD = "550.163.01"
A100 = machine("A100", driver=OLD)
WSL = replace(A100, environment=Environment(wsl=True))
JETSON = replace(A100, environment=Environment(jetson=JetsonRelease("36.4.0")))


def offered(on, catalog=None):
    """The package and the build that a request for CUDA 13 is advised to take, in words."""
    refusal = choose(on, Request(("torch",), backend="cu130"), catalog or frozen_catalog())
    found = re.search(r"--cuda-compat: torch (\S+) with (.+), without root", refusal.fix or "")
    return f"{found[2]}: {found[1]}" if found else None


def test_only_an_old_driver_of_data_centre_gpus_is_offered_it():
    newest = "cuda-compat 13.0: 2.15.0+cu130"
    rows = [
        (A100, newest),
        (machine("T4", driver="535.183.01"), newest),
        (machine("H100", "A100", driver="570.148.08"), newest),
        (machine("A100", driver="580.95.05"), None),
        (machine("A100", driver="595.45.04"), None),
        (machine("A100", driver="470.57.02"), None),
        (machine("A100", driver=None), None),
        (machine("RTX 4090", driver=OLD), None),
        (machine("A100", "RTX 4090", driver=OLD), None),
        (machine("A100", driver=OLD, os="windows"), None),
        (WSL, None),
        (JETSON, None),
    ]
    wrong = []
    for on, expected in rows:
        package = offered(on)
        if package != expected:
            wrong.append((on.gpus[0].name, str(on.driver), package, expected))

    assert wrong == []


def test_volta_can_have_no_libraries_of_590():
    volta = machine("V100", driver=OLD)
    catalog = frozen_catalog()
    of_590 = [package for package in catalog.drivers.compat if package.driver.branch == 590]
    drivers = replace(catalog.drivers, compat=tuple(of_590))

    above = replace(catalog, drivers=drivers)

    assert offered(volta, above) is None
