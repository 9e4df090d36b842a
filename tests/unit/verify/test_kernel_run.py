import json

import pytest

from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.process import Finished
from gpuinstall.verify import kernel_run
from gpuinstall.verify.devices import DeviceTarget
from gpuinstall.verify.kernel_run import (
    INTERPRETING,
    KernelRun,
    count_checks,
    read_kernel_report,
)
from gpuinstall.verify.kernels.context import MARK
from tests.lab.listener import Listener

BEGIN, END = (
    {"begin": "import"},
    {"name": "import", "status": "passed", "seconds": 2.0, "message": "torch"},
)


def ended(*lines, status=0, err=""):
    return Finished(
        ("python",),
        status,
        "".join(f"{MARK}{json.dumps(line)}\n" for line in lines),
        err,
    )


def test_finished_checks_of_all_devices_are_counted(tmp_path, monkeypatch):
    program, listener = tmp_path / "python", Listener()
    lines = ended(BEGIN, END, {"checks": 2}, {"begin": "copy"}, {"name": "copy"})
    program.write_text(f"#!/bin/sh\ncat << 'END'\n{lines.out}torch\nEND\n", "utf-8")
    program.chmod(0o755)
    cards = [DeviceTarget(number, "H200", "cuda") for number in range(2)]
    monkeypatch.setattr(kernel_run, "COUNT_S", 0)

    KernelRun(program, (), "quick").run_all(cards, count_checks("work", listener))
    assert listener.waits[-1] == "work (2 of 4)"
    assert not any(wait.startswith("work (3") for wait in listener.waits)


def test_unfinished_check_counts_as_failed():
    begun = {"begin": "convolution"}
    crashed = read_kernel_report(ended(BEGIN, END, begun, status=-11, err="x"), 180)
    late = read_kernel_report(ended(BEGIN, END, begun, status=None), 180)
    assert crashed.records[-1] == CheckResult(
        "convolution", "failed", 0.0, "killed by SIGSEGV", evidence="x"
    )
    assert late.records[-1].message == "not finished after 180 s"
    assert (crashed.hung, late.hung) == (False, True)
    assert read_kernel_report(ended(BEGIN, status=0), 180).failed


def test_child_crash_outside_checks_is_a_failure():
    silent = read_kernel_report(ended(status=-9), 180)
    late = read_kernel_report(ended(BEGIN, END, status=-11), 180)
    assert silent.records[0].name == "start"
    assert late.records[-1].name == "exit"


def test_untestable_device_is_not_a_failure():
    skipped = {"name": "device", "status": "skipped", "message": "busy"}
    found = read_kernel_report(ended(BEGIN, END, {"unproven": "busy"}, skipped), 180)
    assert found.unproven == "busy"
    assert found.records[-1].status == "skipped"


def test_truncated_last_line_is_ignored():
    whole = ended(BEGIN, END, {"begin": "sort"}, status=-9)
    cut = Finished(whole.argv, -9, whole.out + f'{MARK}{{"name": "sort", "sta', "")
    assert [record.name for record in read_kernel_report(cut, 180).records] == [
        "import",
        "sort",
    ]


@pytest.mark.parametrize(
    "line",
    [
        {"architectures": 8.6},
        {"architectures": "sm_90"},
        {"architectures": [9]},
        {"begin": 1},
        {"unproven": 1},
        {"name": "sort", "status": "good"},
        {"name": "sort", "status": "passed", "seconds": "1"},
        {"name": "sort", "status": "passed", "seconds": float("nan")},
        {"name": "sort", "status": "passed", "message": ["x"]},
        {"name": 7, "status": "passed"},
    ],
)
def test_malformed_report_is_a_failure_of_torch(line):
    found = read_kernel_report(ended(BEGIN, END, {"begin": "sort"}, line), 180)

    assert found.failed
    assert found.records[-1].name == "sort"
    assert "malformed" in (found.records[-1].message or "")


def test_child_environment_excludes_misleading_variables(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nenv >&2\nexit 3\n", "utf-8")
    python.chmod(0o755)
    cards = [
        DeviceTarget(1, "AMD", "cuda", ("1",), vendor="amd"),
        DeviceTarget(0, "H200", "cuda", vendor="nvidia"),
    ]
    for name in (
        "NVIDIA_TF32_OVERRIDE",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "TRITON_INTERPRET",
        "TORCHDYNAMO_DISABLE",
        "TORCH_COMPILE_DISABLE",
        "KEPT",
    ):
        monkeypatch.setenv(name, "0")

    reports = KernelRun(python, (), "quick").run_all(cards)

    amd, nvidia = (
        dict(line.partition("=")[::2] for line in one.records[0].evidence.splitlines())
        for one in reports
    )
    assert (amd["HIP_VISIBLE_DEVICES"], amd["KEPT"]) == ("1", "0")
    assert "ROCR_VISIBLE_DEVICES" not in amd
    assert nvidia.keys().isdisjoint({"NVIDIA_TF32_OVERRIDE", *INTERPRETING})
    # Compiled code runs from there, and /tmp is often noexec.
    assert nvidia["TMPDIR"] == str(own_cache_folder() / "temporary")
