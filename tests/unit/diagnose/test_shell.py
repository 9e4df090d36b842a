"""Variables of a shell that decide over builds."""

from gpuinstall.diagnose.evidence import read_overrides
from tests.unit.diagnose.evidence import found as found_in


def found(environ):
    return [
        (finding.code, finding.id, finding.fix)
        for finding in found_in(overrides=read_overrides(environ))
    ]


def test_an_ordinary_shell_does_no_harm(tmp_path):
    environ = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    assert found(environ) == []


def test_what_decides_over_builds_is_one_finding():
    environ = {
        "UV_TORCH_BACKEND": "cpu",
        "PIP_CONSTRAINT": "/etc/pip/constraint.txt",
        "UV_INDEX": "",
    }
    ((code, entry, fix),) = found(environ)
    assert (code, entry) == ("override-left-behind", "F32")
    assert (fix or "").startswith("unset UV_TORCH_BACKEND PIP_CONSTRAINT\n")


def test_the_backend_that_shellenv_has_set_decides_nothing_else():
    for backend, expected in (
        ("cu126", ()),
        ("cu130", ("UV_TORCH_BACKEND",)),
        (None, ("UV_TORCH_BACKEND",)),
    ):
        assert read_overrides({"UV_TORCH_BACKEND": "cu126"}, backend) == expected
