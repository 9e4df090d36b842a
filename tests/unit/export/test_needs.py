"""What a lock needs of a machine, and what each tool is told of it.

Kubernetes lets in no node that the plan refuses for a property with a label.
"""

import json

import pytest
import yaml

from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.versions import DriverVersion
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpus import find_gpu, products
from gpuinstall.cli.main import run_command_line
from gpuinstall.export.needs import MACHINE_TOOLS, load_tool, machine_needs, words_for
from gpuinstall.lock.file.fit import fit
from tests.unit.export.locks import cpu_lock, cuda_lock, lock, wheel

CATALOG = load_catalog()
ROCM = lock("rocm7-2", wheel("torch", "2.14.1+rocm7.2"))
OTHER_WORDS = {"H100NVL": "H100 NVL", "RTX6000": "Quadro RTX 6000"}
"""Names of dstack's that several GPUs have in the catalogue."""


def needs_of(locked):
    [needs] = machine_needs(locked, CATALOG)
    return needs


def test_windows_has_drivers_of_its_own():
    torch = wheel("torch", "2.14.1+cu126", "cp312-cp312-win_amd64")
    needs = needs_of(lock("cu126-windows-x86_64", torch))
    assert {str(gpus.driver) for gpus in needs.gpus} == {"528.33"}


def test_gpus_of_another_maker_need_no_driver():
    needs = needs_of(ROCM)
    assert needs.maker == "amd"
    assert "gfx942" in needs.codes
    assert {gpus.driver for gpus in needs.gpus} == {None}


def test_the_newest_glibc_of_any_package_is_needed():
    old_or_new = wheel(
        "pandas", "2.3.4", "cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64"
    )
    new = wheel("scipy", "1.16", "cp312-cp312-manylinux_2_35_x86_64")
    assert needs_of(cuda_lock("cu126", old_or_new, new)).glibc == "2.35"


def test_a_lock_of_an_unknown_torch_is_refused():
    with pytest.raises(UsageError, match=r"runs on no known machine: .* no torch 9\.9"):
        needs_of(cuda_lock("cu126", torch="9.9"))


def test_a_document_has_the_needs_of_each_lock(tmp_path, monkeypatch, capsys):
    for locked in (cuda_lock("cu126"), cpu_lock()):
        (tmp_path / locked.name).write_text(locked.text, "utf-8")
    monkeypatch.chdir(tmp_path)

    run_command_line(["export", "needs", "--json"])

    needs = json.loads(capsys.readouterr().out)["data"]["needs"]
    assert [(one["lock"], one["maker"]) for one in needs] == [
        ("pylock.cpu.toml", None),
        ("pylock.cu126.toml", "nvidia"),
    ]


def told(tool, locked):
    return words_for(tool, machine_needs(locked, CATALOG))


def test_every_name_of_a_gpu_is_known():
    wrong = {}
    for tool in MACHINE_TOOLS:
        for name, code in load_tool(tool).gpus.items():
            gpu = find_gpu(OTHER_WORDS.get(name, name))
            if code != str(gpu.capability or gpu.architecture):
                wrong[tool, name] = code
    assert wrong == {}


def test_dstack_gets_the_names_of_gpus_beside_this_processor():
    resources = yaml.safe_load(told("dstack", cuda_lock()))["resources"]
    assert resources["cpu"] == {"arch": "x86"}
    assert resources["gpu"]["vendor"] == "nvidia"
    assert "GB200" not in resources["gpu"]["name"]


def test_slurm_is_told_the_gpus_of_older_drivers_first():
    gpus = "# GPUs of a node: 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0, 10.3, 10.7; a site has features for them"
    assert gpus in told("slurm", cuda_lock("cu130")).splitlines()


def test_amd_is_asked_for_where_a_tool_has_names_for_it():
    assert "vendor: amd, name: [MI100" in told("dstack", ROCM)
    for tool in ("skypilot", "kubernetes"):
        with pytest.raises(UsageError, match=f"no GPU that {tool} has words for"):
            told(tool, ROCM)


@pytest.mark.heavy
@pytest.mark.parametrize("target", ["cu126", "cu130"])
def test_kubernetes_schemas_accept_the_affinity(target):
    from kubernetes_validate import validate

    container = {"name": "torch", "image": "registry.example/torch"}
    affinity = yaml.safe_load(told("kubernetes", cuda_lock(target)))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "torch"},
        "spec": {"containers": [container], **affinity},
    }
    validate(pod, "1.37", strict=True)


def test_kubernetes_decides_as_the_plan_by_gpu_and_driver_branch():
    locked = cuda_lock("cu130")
    affinity = yaml.safe_load(told("kubernetes", locked))["affinity"]["nodeAffinity"]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    wrong = []
    capabilities = {
        one.capability for one in products() if one.capability and not one.arm
    }
    for capability in sorted(capabilities):
        gpu = Gpu(0, compute_capability=capability)
        for branch, _ in CATALOG.drivers.branches:
            driver = Driver(DriverVersion.parse(f"{branch}.99.99"))
            machine = Machine("linux", "x86_64", gpus=(gpu,), driver=driver)
            runs = not isinstance(fit(locked, machine, Request(()), CATALOG), Rejection)
            major, minor = str(capability).split(".")
            labels = {
                "kubernetes.io/arch": "amd64",
                "nvidia.com/gpu.compute.major": major,
                "nvidia.com/gpu.compute.minor": minor,
                "nvidia.com/cuda.driver-version.major": str(branch),
            }
            if runs != is_let_in(labels, required["nodeSelectorTerms"]):
                wrong.append((str(capability), branch, runs))
    assert wrong == []


def is_let_in(labels, terms):
    """Whether all expressions of a term hold for a node: ``Gt`` takes one integer and excludes it."""
    for term in terms:
        held = []
        for expression in term["matchExpressions"]:
            label, values = labels[expression["key"]], expression["values"]
            if expression["operator"] == "In":
                held.append(label in values)
            else:
                held.append(int(label) > int(values[0]))
        if all(held):
            return True
    return False
