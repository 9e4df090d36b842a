import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.process import Finished
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.base.versions import (
    ComputeCapability,
    CudaVersion,
    DriverVersion,
)
from gpuinstall.verify.devices import DeviceTarget
from gpuinstall.verify.diagnosis import (
    Verification,
    diagnose,
    diagnose_checks,
    report_wrong_build,
)
from gpuinstall.verify.interpreter import FoundTorch, Interpreter
from gpuinstall.verify.kernel_run import KernelReport, KernelRun, read_kernel_report
from gpuinstall.verify.kernels.context import MARK
from gpuinstall.verify.verdict import Verdict, VerifiedEnvironment

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
PYTHON = Path("/data/envs/it/bin/python")
NO_LIBRARY = "cannot open shared object file: No such file or directory"


CUDA = {"cuda": "13.0"}


def proof(driver="580.95.05", torch=CUDA, version="2.14.1"):
    found = Driver(DriverVersion.parse(driver), CudaVersion(13, 0))
    machine = Machine("linux", "x86_64", driver=found, distribution="Ubuntu 24.04")
    own = FoundTorch("3.12.1", True, None, {"__version__": version, **torch})
    run = KernelRun(PYTHON, (), "quick")
    return Verification(machine, Interpreter(own, own), run, Reporter())


def card(capability="8.9"):
    chip = ComputeCapability.parse(capability)
    gpu = Gpu(0, "NVIDIA X", "GPU-x", compute_capability=chip)
    return DeviceTarget(0, "NVIDIA X", "cuda", ("GPU-x",), gpu, "nvidia")


PROOF = proof()
CARD = card()


def failed(name, text, *, on=CARD, context=PROOF, program=None, settings=""):
    """Return the result of a check that failed with a text."""
    record = CheckResult(name, "failed", 0.1, text.splitlines()[0], evidence=text)
    report = KernelReport(
        (record,),
        architectures=("sm_75", "sm_80", "sm_90a"),
        loader_settings=settings,
    )
    context = replace(context, run=replace(context.run, program=program))
    (check,) = diagnose_checks(on, report, context)
    return check


CAUSES = {
    ("elementwise", NO_IMAGE): "F38",
    ("import", "ImportError: libc10.so: version 'GLIBCXX_3.4.30' not found"): "F59",
    ("import", "killed by SIGILL"): "F62",
    ("import", "SyntaxError: invalid syntax"): "F167",
    ("device", "CUDA error: uncorrectable ECC error encountered"): "F09",
    ("linear", "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"): "F50",
    ("convolution", "the result is off by 1"): "F51",
    ("optimizer-step", "RuntimeError: something odd"): None,
    ("sort", "the result is not equal to the expected one"): None,
}


def test_check_failure_is_classified_by_check_and_message():
    assert {check: failed(*check).id for check in CAUSES} == CAUSES


def test_check_failure_classification_depends_on_gpu_and_driver():
    engine = (
        "RuntimeError: GET was unable to find an engine to execute this computation"
    )
    barely = proof(driver="525.60.13")

    assert failed("elementwise", NO_IMAGE, on=card("6.1")).id == "F37"
    assert failed("elementwise", NO_IMAGE, on=card("12.0")).id == "F38"
    assert failed("convolution", engine, on=card("6.1")).id == "F55"
    unsupported = "CUDA error: operation not supported"
    assert failed("optimizer-step", unsupported, context=barely).id == "F19"


def test_vendor_of_torch_determines_missing_code_cause():
    nvidia, radeon = CARD.gpu, Gpu(1, "AMD X", vendor="amd", architecture="gfx906")
    of_amd = proof(torch={"hip": "7.2"}, version="2.14.1+rocm7.2")
    both = replace(of_amd, machine=replace(of_amd.machine, gpus=(nvidia, radeon)))
    target = DeviceTarget(1, "AMD X", "cuda", ("1",), radeon, "amd")
    assert failed("elementwise", NO_IMAGE, on=target, context=both).id == "F79"


def test_missing_torch_is_reported():
    text = "No module named 'torch'"
    check = failed("import", text, context=proof(version=None))
    assert check.id is None
    assert check.message == "torch is not installed in this environment"
    assert [*map(str, check.fixes)] == ["gpuinstall install --reinstall-package torch"]


def test_wrong_torch_build_suggests_gpuinstall_install():
    (check,) = report_wrong_build(CARD, proof(torch={}, version="2.14.1+cpu")).checks
    assert check.id == "F33"
    assert str(check.fixes[0]).startswith("gpuinstall install")


def test_variable_that_breaks_import_precedes_general_cause():
    check = failed(
        "import",
        "ImportError: undefined symbol: __nvJitLinkComplete_12_4",
        settings="LD_LIBRARY_PATH=/opt/cuda/lib64",
    )
    assert check.id == "F49"
    words = "it passes without LD_LIBRARY_PATH=/opt/cuda/lib64"
    assert str(check.message).endswith(words)
    assert [*map(str, check.fixes)] == ["unset LD_LIBRARY_PATH"]


def test_unknown_failure_has_no_fix():
    assert failed("sort", "the numbers differ").fixes == ()


def test_failed_torch_import_suggests_reinstallation():
    lost = replace(PROOF, altered=("torch/_C.so",))
    (advice,) = failed("import", "ImportError: x", context=lost).fixes
    assert str(advice).startswith("gpuinstall install --reinstall-package torch ")


def test_killed_check_refers_to_kernel_log():
    killed = "killed by SIGKILL: the system does this when the machine or the job runs out of memory"
    assert str(failed("import", killed).fixes[0]).startswith("sudo dmesg")


CAUSES_OF_PROGRAMS = {
    ("torchvision", "the result is not equal to the expected one"): "F47",
    ("torchvision", "ModuleNotFoundError: No module named 'PIL'"): None,
    ("torchaudio", f"OSError: libc10_cuda.so: {NO_LIBRARY}"): "F48",
    ("torchcodec", f"OSError: libnvrtc.so.13: {NO_LIBRARY}"): "F56",
    ("vllm", NO_IMAGE): "F56",
    ("bitsandbytes", NO_IMAGE): "F71",
}


def test_package_check_failure_has_expected_cause():
    assert {
        (program, text): failed(f"{program}-x", text, program=program).id
        for program, text in CAUSES_OF_PROGRAMS
    } == CAUSES_OF_PROGRAMS


def test_fix_reinstalls_torch_and_the_crashing_extension():
    check = failed("torch-scatter-import", "killed by SIGSEGV", program="torch_scatter")
    assert str(check.fixes[0]).startswith("gpuinstall install torch torch-scatter ")


KEYS = (
    "name status seconds message evidence begin unproven architectures id fixes other"
)
VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=9) | st.just("failed"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(st.sampled_from(KEYS.split()), VALUES)))
def test_any_report_results_in_a_verdict(lines):
    failure = {"name": "sort", "status": "failed", "message": NO_IMAGE}
    out = "".join(f"{MARK}{json.dumps(line)}\n" for line in [*lines, failure])
    report = read_kernel_report(Finished(("python",), 0, out, ""), 180)

    document = Verdict(
        VerifiedEnvironment(architectures=report.architectures or ()),
        (diagnose(CARD, report, PROOF),),
    ).to_dict()

    written = json.dumps(document, allow_nan=False)
    assert Verdict.from_dict(json.loads(written)).status == document["status"]
