"""The causes that a machine refutes and confirms."""

from pathlib import Path

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import replace
from gpuinstall.base.versions import Backend, find_torch_backend
from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.diagnose.explanation import explain_text
from gpuinstall.diagnose.predicates import PREDICATES, LocalFact, companions, idle
from gpuinstall.diagnose.reading import InstalledTorch, LocalReading, read_environment
from gpuinstall.machine.vendors import VENDORS
from tests.unit.catalog.failures.held_out import answers
from tests.unit.diagnose.evidence import Site
from tests.unit.plan.machines import card, machine

NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"
TOO_OLD = "The NVIDIA driver on your system is too old (found version 11040)."
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
CUDART_12 = "ImportError: libcudart.so.12: cannot open shared object file: No such file"
UNABLE = "RuntimeError: Torch is not able to use GPU"
OF_EXTENSION = (
    'File "/opt/venv/lib/python3.12/site-packages/detectron2/_C_loader.py", line 3\n'
    f"    from . import _C\n{CUDART_12}"
)
OF_WINDOWS = "DLL load failed while importing x: A dynamic link library (DLL) initialization routine failed."
HIDDEN = {"CUDA_VISIBLE_DEVICES": "-1"}
CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"


def read(*cards, torch=None, environ=None, venv=Path("absent"), **facts):
    """Return a reading of a simulated machine with a release of torch."""
    facts = {"driver": "580.95.05", "cuda": "13.0", **facts}
    there = machine(*cards, **facts)
    reading = LocalReading(there, venv, markers={}, environ=environ or {})
    if torch is None:
        return reading
    return replace(
        reading, torch=reading.find_torch(torch, find_torch_backend(torch, None))
    )


@pytest.mark.parametrize(
    ("text", "reading", "causes", "refuted"),
    [
        (NO_KERNEL, read("RTX 5090", torch="2.13.0+cu130"), [], ["F37", "F38"]),
        (NO_KERNEL, read("RTX 5090", torch="2.13.0+cpu"), [], ["F37", "F38"]),
        (NO_KERNEL, read("RTX 5090", torch="2.13.0+cu126"), ["F38"], ["F37"]),
        (NO_KERNEL, read("GTX 1080", torch="2.13.0+cu130"), ["F37"], ["F38"]),
        # The build has code for older and newer GPUs.
        (NO_KERNEL, read("Thor", torch="2.9.1+cu128"), ["F38"], ["F37"]),
        (NO_KERNEL, read("H100"), [], ["F37", "F38"]),
        (NO_KERNEL, read("RTX 5090"), ["F38"], ["F37"]),
        (NO_KERNEL, read("GTX 1080"), ["F37"], ["F38"]),
        (MISMATCH, read("RTX 4090"), [], ["F03"]),
        (TOO_OLD, read("RTX 4090", torch="2.13.0+cu130"), [], ["F02"]),
        (TOO_OLD, read("RTX 4090"), [], ["F02"]),
        (TOO_OLD, read("A100", driver="470.82.01", cuda="11.4"), ["F02"], []),
        (CUDART_12, read("RTX 5090", torch="2.13.0+cu130"), ["F56"], []),
        (OF_WINDOWS.replace("x", "torch"), read("A100"), ["F65"], []),
        (OF_EXTENSION, read("RTX 5090", torch="2.13.0+cu130"), ["F56"], []),
        (OF_EXTENSION, read("A100", torch="2.13.0+cu126"), ["F102"], []),
        (UNABLE, read("A100", torch="2.13.0+cu126", environ=HIDDEN), ["F15"], []),
        (CPU_BUILD, read("A100", torch="2.13.0+cu130"), [], ["F33"]),
        (CPU_BUILD, read(torch="2.13.0+cu130"), [], ["F33"]),
        (CPU_BUILD, read("A100", torch="2.13.0+cpu"), ["F33"], []),
        (UNABLE, read("A100", torch="2.13.0+cpu"), ["F33"], []),
        (UNABLE, read("A100", torch="2.13.0+cu130"), ["F103"], []),
        # The text mentions another GPU, torch, or system.
        (f"{NO_KERNEL} GTX 1080", read("A100", torch="2.13.0+cu130"), ["F37"], []),
        (
            f"torch-2.9.0+cu130 {TOO_OLD}",
            read("A100", torch="2.13.0+cu130"),
            ["F02"],
            [],
        ),
        (f"docker run x\n{TOO_OLD}", read("A100", torch="2.13.0+cu130"), ["F02"], []),
    ],
)
def test_reported_causes_depend_on_gpu_and_torch(text, reading, causes, refuted):
    explanation = explain_text(text, reading, {})
    assert [cause.id for cause in explanation.causes] == causes
    assert [one.id for one in explanation.refuted] == refuted


NO_GPUS = "RuntimeError: No CUDA GPUs are available"
UNKNOWN_ERROR = (
    "CUDA unknown error - this may be due to an incorrectly set up environment"
)


@pytest.mark.parametrize(
    ("text", "entry", "code"),
    [
        (
            "modprobe: ERROR: could not insert 'nvidia': No such device",
            "F05",
            "nouveau-holds-gpu",
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            "F05",
            "nouveau-holds-gpu",
        ),
        (NO_GPUS, "F23", "wsl-linux-driver"),
        (NO_GPUS, "F17", "mig-without-instances"),
        (UNKNOWN_ERROR, "F13", "device-nodes-unusable"),
    ],
)
def test_finding_of_this_machine_decides_cause_and_fix(text, entry, code):
    finding = Finding(code, "found", entry, fixes=("the machine's fix",))
    explanation = explain_text(text, read("A100", problems=(finding,)), {})

    assert [cause.id for cause in explanation.causes] == [entry]
    assert explanation.causes[0].fix == ("the machine's fix",)
    assert explanation.facts == {entry: LocalFact(True, "found")}


def test_note_about_this_machine_decides_no_cause():
    note = Finding("lost-gpu-stops-cuda", "found", "F08", blocking=False)
    explanation = explain_text(NO_GPUS, read("A100", problems=(note,)), {})

    assert [cause.id for cause in explanation.causes] == ["F15"]


def test_refuted_cause_mentions_torch_and_the_gpu():
    reading = read("RTX 5090", torch="2.13.0+cu130")
    expected = (
        "the installed torch 2.13.0+cu130 has code for this RTX 5090: "
        "the error comes from an extension or from another environment"
    )
    (fact,) = explain_text(NO_KERNEL, reading, {}).to_dict()["machine"]
    assert fact == {"fact": expected, "confirms": [], "refutes": ["F37", "F38"]}


def test_failure_table_predicates_match_defined_functions():
    names = {failure.here for failure in load_failures().values()} - {None}
    assert names - {*VENDORS, "jetson", "macos", "windows", "wsl"} == PREDICATES.keys()


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"torch": "2.9.1+cpu"},
        {"driver": "470.82.01", "cuda": "11.4"},
    ],
)
def test_machine_facts_do_not_confirm_wrong_causes(facts):
    reading = read("RTX 4090", **{"torch": "2.9.1+cu128", **facts})
    wrong = []
    for answer in answers()[::6]:
        causes = explain_text(answer.text, reading, {}).causes
        is_certain = causes and causes[0].certainty == "certain"
        is_new = is_certain and not answer.is_certain
        if is_new and causes[0].id not in answer.right:
            wrong.append((answer.text, answer.named, causes[0]))
    assert wrong == []


NVIDIA = card("RTX 4090")
AMD = Gpu(1, "AMD Radeon RX 7900 XTX", vendor="amd", architecture="gfx1100")
OLD_AMD = Gpu(1, "AMD Radeon HD 8570", vendor="amd")
ARC = Gpu(1, "Intel Arc A770", vendor="intel", architecture="acm-g10")


@pytest.mark.parametrize(
    ("gpus", "torch", "supported", "others"),
    [
        (("V100", "RTX 4090"), "2.13.0+cu130", "1", "0"),
        (("RTX 4090", "V100", "GTX 1080"), "2.13.0+cu130", "0", "1,2"),
    ],
)
def test_fix_selects_the_gpus_that_the_build_supports(gpus, torch, supported, others):
    text = f"{NO_KERNEL} on cuda:1"
    first, *_ = explain_text(text, read(*gpus, torch=torch), {}).causes

    assert first.id == "F40"
    fix = "\n".join(map(str, first.fix))
    assert f"CUDA_VISIBLE_DEVICES={supported} " in fix
    assert f"--gpus {others} " in fix
    # Without a machine, no GPU is known.
    assert "VISIBLE" not in "".join(map(str, classify(text)[0].fix))


def test_gpu_is_idle_if_torch_uses_none():
    cases = [
        ("its own GPU next to another vendor's", "cu126", (NVIDIA, AMD), []),
        ("its own GPU next to an Arc", "cu126", (NVIDIA, ARC), []),
        ("another vendor's GPU", "cu126", (AMD,), ["F99"]),
        ("a GPU without builds", "cu126", (OLD_AMD,), []),
        ("another vendor's GPU, for ROCm", "rocm6.4", (NVIDIA,), ["F24"]),
        ("both GPUs, for the CPU", "cpu", (NVIDIA, AMD), ["F33", "F99"]),
        ("no GPU", "cu126", (), []),
    ]
    found = []
    for name, build, gpus, _ in cases:
        torch = InstalledTorch(f"2.9.1+{build}", Backend.parse(build))
        there = machine(*gpus, driver=None)
        reading = LocalReading(there, Path("absent"), markers={}, torch=torch)
        found.append((name, build, gpus, [*idle(reading).causes]))
    assert found == cases


@pytest.mark.parametrize(
    ("place", "python"),
    [
        (
            "/home/u/it/.venv/lib/python3.12/site-packages/",
            "/home/u/it/.venv/bin/python",
        ),
        ("D:\\It\\.venv\\Lib\\site-packages\\", "D:\\It\\.venv\\Scripts\\python.exe"),
        ("C:\\envs\\it\\lib\\site-packages\\", "C:\\envs\\it\\python.exe"),
    ],
)
def test_fix_contains_environment_path_and_gpu_architecture(place, python):
    text = f'  File "{place}sageattention/core.py", line 640\n{NO_KERNEL}'
    words = {"python": "here", "into": " --venv here"}

    (cause,) = explain_text(text, read("RTX 3090"), words).causes

    assert f"gpuinstall install --into --python {python} --upgrade" in str(cause.fix[0])
    assert f"TORCH_CUDA_ARCH_LIST=8.6 uv pip install --python {python}" in str(
        cause.fix[1]
    )


def test_companion_markers_apply_to_the_environment(tmp_path):
    site = Site(tmp_path / ".venv", "3.14.2")
    site.add("torch", "2.14.1")
    site.add("torchaudio", "2.10.0", "torch==2.10.0; python_version >= '3.14'")
    site.add("torchvision", "0.29.1", "torch==2.10.0; python_full_version < '3.14.2'")

    causes = companions(read_environment(site.venv, machine(driver=None))).causes

    assert [*causes.values()] == [
        "torchaudio 2.10.0 requires torch==2.10.0, but 2.14.1 is installed"
    ]
