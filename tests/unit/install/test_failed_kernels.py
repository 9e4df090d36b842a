"""The message about a failed verification."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpuinstall.base.finding import CheckResult
from gpuinstall.install.proof import KernelFailedError
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment

HALTED = "ModuleNotFoundError: import of torch halted"


@pytest.mark.parametrize(
    ("changed", "entry", "hint"),
    [
        ((), "F167", "gpuinstall doctor"),
        (
            ("card-note",),
            None,
            "Request another version of card-note; the environment is unchanged",
        ),
    ],
)
def test_package_that_prevents_importing_torch_is_named(changed, entry, hint):
    check = CheckResult(
        "import", "failed", 0.1, HALTED, id="F167", fixes=("gpuinstall doctor",)
    )
    environment = VerifiedEnvironment("3.12", "2.15.0+cu130", "cu130")
    verdict = Verdict(environment, (Device(0, "NVIDIA L4", (check,)),))
    build = SimpleNamespace(name="2.15.0+cu130")
    fit: Any = SimpleNamespace(
        choice=SimpleNamespace(build=build), plan=SimpleNamespace(to_dict=dict)
    )

    failed = KernelFailedError(fit, verdict, changed)

    assert (failed.finding.id, failed.hint) == (entry, hint)
    assert (failed.why or "").startswith(HALTED)
