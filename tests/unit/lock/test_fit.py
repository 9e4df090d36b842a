from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.lock.file.fit import check_lock, find_best_lock
from gpuinstall.lock.file.lock import parse
from gpuinstall.plan.values import PlanInput
from tests.frozen import frozen_catalog
from tests.unit.export.locks import lock, wheel

CATALOG = frozen_catalog()


def torch(target, version, platform="manylinux_2_28_x86_64"):
    return lock(target, wheel("torch", version, f"cp312-cp312-{platform}"))


def machine(driver, capability):
    gpu = Gpu(0, "GPU", compute_capability=ComputeCapability.parse(capability))
    return replace(WITHOUT_GPU, gpus=(gpu,), driver=Driver(DriverVersion.parse(driver)))


CU126 = torch("cu126", "2.14.1+cu126")
CU130 = torch("cu130", "2.14.1+cu130")
WINDOWS = torch("cu130-windows-x86_64", "2.14.1+cu130", "win_amd64")
CPU = torch("cpu", "2.14.1+cpu")
OF_DEFAULT_INDEX = torch("cu130", "2.14.1")

WITHOUT_GPU = Machine("linux", "x86_64", "glibc", "2.36", pythons=("3.11.7", "3.12.1"))
A100 = machine("580.95.05", "8.0")
ON_535 = machine("535.183.01", "8.9")


def test_each_machine_selects_its_compatible_lock():
    rows = (
        (machine("580.95.05", "6.1"), "2.14.1+cu126"),
        (A100, "2.14.1+cu130"),
        (ON_535, "2.14.1+cu126"),
        (machine("580.95.05", "12.0"), "2.14.1+cu130"),
        (WITHOUT_GPU, "2.14.1+cpu"),
    )
    wrong = []
    for here, chosen in rows:
        verdicts = [
            check_lock(one, PlanInput(here, Request(), CATALOG))
            for one in (CU126, CU130, WINDOWS, CPU)
        ]
        found = find_best_lock(verdicts, PlanInput(here, Request(), CATALOG))
        if found is None or found.lock.versions["torch"] != chosen:
            wrong.append((chosen, found))
    assert wrong == []


def test_cpu_lock_outranks_idle_builds():
    of_cpu_target = torch("cpu", "2.14.1")
    rows = (
        (WITHOUT_GPU, Request(), [OF_DEFAULT_INDEX, CPU], CPU),
        (WITHOUT_GPU, Request(), [OF_DEFAULT_INDEX, of_cpu_target], of_cpu_target),
        (WITHOUT_GPU, Request(), [OF_DEFAULT_INDEX], OF_DEFAULT_INDEX),
        (WITHOUT_GPU, Request(), [OF_DEFAULT_INDEX, WINDOWS], OF_DEFAULT_INDEX),
        (WITHOUT_GPU, Request(("torchvision",)), [OF_DEFAULT_INDEX, CPU], None),
        (
            WITHOUT_GPU,
            Request(backend="cu130"),
            [OF_DEFAULT_INDEX, CPU],
            OF_DEFAULT_INDEX,
        ),
        (A100, Request(), [OF_DEFAULT_INDEX, CPU], OF_DEFAULT_INDEX),
    )
    wrong = []
    for here, request, locks, chosen in rows:
        for ordered in (locks, locks[::-1]):
            wanted = PlanInput(here, request, CATALOG)
            verdicts = [check_lock(one, wanted) for one in ordered]
            found = find_best_lock(verdicts, wanted)
            if (found and found.lock) != chosen:
                wrong.append((here, request, chosen, found))
    assert wrong == []


def test_incompatible_lock_returns_a_reason():
    old = replace(A100, glibc="2.17")
    of_patch = 'cowsay; python_full_version {} "3.12.4"'
    on_windows = Request(("Torch>=2.14", 'winonly; sys_platform == "win32"'))
    # The lock file's tool table has no effect.
    claiming = parse(CU126.name, f'{CU130.text}backend = "cu126"\n')
    rows = (
        (CU126, A100, Request(python="3.12.1"), "cu126"),
        (WINDOWS, A100, Request(), "other-platform"),
        (CU126, old, Request(), "other-platform"),
        # A GPU build on a machine without GPU must be requested, unless the default index has no other.
        (CU126, WITHOUT_GPU, Request(), "gpu-build"),
        (CU130, WITHOUT_GPU, Request(), "gpu-build"),
        (CU126, WITHOUT_GPU, Request(backend="cu126"), "cu126"),
        (OF_DEFAULT_INDEX, WITHOUT_GPU, Request(), "cu130 without an index"),
        (OF_DEFAULT_INDEX, A100, Request(), "cu130 without an index"),
        (CPU, A100, Request(), "cpu-build"),
        (CPU, A100, Request(backend="cpu"), "cpu"),
        (CU126, A100, Request(backend="cpu"), "other-backend"),
        (CPU, WITHOUT_GPU, Request(backend="cu126"), "other-backend"),
        (CPU, WITHOUT_GPU, Request(("torch", "torchvision")), "inputs-changed"),
        (CPU, WITHOUT_GPU, Request(("torch<2.14",)), "inputs-changed"),
        (CPU, WITHOUT_GPU, on_windows, "cpu"),
        (CPU, WITHOUT_GPU, Request((of_patch.format(">="),)), "cpu"),
        (CPU, WITHOUT_GPU, Request((of_patch.format("<"),)), "inputs-changed"),
        # A target has no interpreter.
        (
            CPU,
            replace(WITHOUT_GPU, pythons=None),
            Request((of_patch.format(">="),)),
            "cpu",
        ),
        (
            CPU,
            replace(WITHOUT_GPU, pythons=None),
            Request((of_patch.format("<"),)),
            "cpu",
        ),
        (CPU, WITHOUT_GPU, Request(python="3.11"), "python-unsupported"),
        (claiming, ON_535, Request(), "driver-too-old"),
        (torch("cu126", "9.9.9+cu126"), A100, Request(), "unknown-build"),
    )
    wrong = []
    for row, (locked, here, request, expected) in enumerate(rows):
        verdict = check_lock(locked, PlanInput(here, request, CATALOG))
        if isinstance(verdict, Rejection):
            answer = verdict.reason.code
            assert verdict.reason.message
        else:
            answer = verdict.choice.build.backend.tag
            if verdict.choice.index is None:
                answer += " without an index"
        if answer != expected:
            wrong.append((row, answer))
    assert wrong == []
