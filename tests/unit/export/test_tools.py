"""What each tool is told, and that Kubernetes lets in no node that the plan refuses for a property with a label."""

import pytest
import yaml

from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.versions import DriverVersion
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpus import find_gpu, products
from gpuinstall.export.needs import MACHINE_TOOLS, load_tool, machine_needs, words_for
from gpuinstall.lock.file.fit import fit
from tests.unit.export.locks import cuda_lock, lock, wheel

OTHER_WORDS = {"H100NVL": "H100 NVL", "RTX6000": "Quadro RTX 6000"}
"""Names of dstack's that several GPUs have in the catalogue."""


def told(tool, locked):
    return words_for(tool, machine_needs(locked, load_catalog()))


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
    rocm = lock("rocm7-2", wheel("torch", "2.14.1+rocm7.2"))
    assert "vendor: amd, name: [MI100" in told("dstack", rocm)
    for tool in ("skypilot", "kubernetes"):
        with pytest.raises(UsageError, match=f"no GPU that {tool} has words for"):
            told(tool, rocm)


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
    catalog = load_catalog()
    affinity = yaml.safe_load(told("kubernetes", locked))["affinity"]["nodeAffinity"]
    required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    wrong = []
    capabilities = {
        one.capability for one in products() if one.capability and not one.arm
    }
    for capability in sorted(capabilities):
        gpu = Gpu(0, compute_capability=capability)
        for branch, _ in catalog.drivers.branches:
            driver = Driver(DriverVersion.parse(f"{branch}.99.99"))
            machine = Machine("linux", "x86_64", gpus=(gpu,), driver=driver)
            runs = not isinstance(fit(locked, machine, Request(()), catalog), Rejection)
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
