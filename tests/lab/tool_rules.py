"""How each tool that rents or schedules machines decides, as models of its rule, each with its source.

A model reads the very text that ``gpuinstall export needs --for`` writes, and is told of a machine what the tool knows of
it: not whether its driver works.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from gpuinstall.catalog import load_catalog
from gpuinstall.export.tools import names_of
from gpuinstall.versions import CudaVersion, DriverVersion

if TYPE_CHECKING:
    from types import CodeType

    from gpuinstall.machine import Machine


class Offer(NamedTuple):
    """What tools know of a machine with one kind of GPU."""

    code: str
    """What the GPU executes."""
    arch: str
    maker: str = "nvidia"
    driver: DriverVersion | None = None
    cuda: CudaVersion | None = None


def offers_of(machine: Machine) -> list[Offer]:
    """Return a machine as it is offered for each kind of its GPUs.

    Nothing if it shows no driver or no GPU, or has not Linux, which is all that these tools are asked for.
    """
    if machine.os != "linux":
        return []
    driver = machine.driver
    version = driver.version if driver else None
    cuda = driver.cuda if driver else None
    row = load_catalog().drivers.branch(version) if version else None
    if cuda is None and row:
        cuda = row[1]
    offers = []
    for gpu in machine.gpus:
        if gpu.compute_capability and version:
            code = str(gpu.compute_capability)
            offers.append(Offer(code, machine.arch, driver=version, cuda=cuda))
        elif gpu.architecture and gpu.vendor:
            offers.append(Offer(gpu.architecture, machine.arch, gpu.vendor))
    return offers


def runpod(text: str, offer: Offer) -> bool:
    """A pod asks for one type; CUDA versions are compared as numbers, a list exactly.

    runpod/docs api-reference-v2/openapi.json, CreateGpuConfig.
    """
    for line in _said(text):
        gpu = json.loads(line)["gpu"]
        if names_of("runpod")[gpu["id"]] != offer.code:
            continue
        floor = gpu.get("minCudaVersion")
        allowed = gpu.get("allowedCudaVersions", [])
        is_above = not floor or (offer.cuda and offer.cuda >= CudaVersion.parse(floor))
        if is_above and (not allowed or str(offer.cuda) in allowed):
            return True
    return False


def vast(text: str, offer: Offer) -> bool:
    """All conditions of a search hold; a driver is one number, made of three parts of three digits.

    vastai 1.9.1 vastai/api/query.py, parse_query and numeric_version.
    """
    values = {
        "gpu_arch": offer.maker,
        "cpu_arch": {"x86_64": "amd64", "aarch64": "arm64"}[offer.arch],
        "compute_cap": str(_capability_number(offer.code)) if "." in offer.code else "",
        "driver_version": _driver_number(str(offer.driver)) if offer.driver else 0,
    }
    for line in _said(text):
        conditions = re.findall(r"(\w+)(>=|<|=| in )(\[[^]]*\]|[^ ']+)", line.partition("'")[2])
        if all(
            _vast_holds(values[field], operator, value) for field, operator, value in conditions
        ):
            return True
    return False


def _vast_holds(known: object, operator: str, value: str) -> bool:
    if operator == " in ":
        return known in value.strip("[]").split(",")
    if operator == "=":
        return known == value
    number = _driver_number(value)
    assert isinstance(known, int)
    return known >= number if operator == ">=" else known < number


def _driver_number(text: str) -> int:
    parts = (*text.split("."), "0", "0")[:3]
    return int("".join(part.zfill(3) for part in parts))


def _capability_number(code: str) -> int:
    major, minor = code.split(".")
    return int(major) * 100 + int(minor) * 10


def skypilot(text: str, offer: Offer) -> bool:
    """Any of the accelerators by its name. skypilot 0.14.1 sky/resources.py, accelerators as a dict."""
    names = _document(text)["resources"]["accelerators"]
    return offer.code in {names_of("skypilot")[name] for name in names}


def dstack(text: str, offer: Offer) -> bool:
    """Any of the names, and the processor. dstack 0.22.5 _internal/core/models/resources.py; gpuhunt constraints.py."""
    resources = _document(text)["resources"]
    codes = {names_of("dstack")[name] for name in resources["gpu"]["name"]}
    arch = {"x86_64": "x86", "aarch64": "arm"}[offer.arch]
    return (
        offer.code in codes
        and arch == resources["cpu"]["arch"]
        and offer.maker == resources["gpu"]["vendor"]
    )


def modal(text: str, offer: Offer) -> bool:
    """The first of a list that is free. https://modal.com/docs/guide/gpu, GPU fallbacks."""
    line = _said(text)[0].partition("  #")[0].removeprefix("GPU = ")
    return offer.code in {names_of("modal")[name] for name in json.loads(line)}


def kubernetes(text: str, offer: Offer) -> bool:
    """One term whose expressions all hold; Gt and Lt read one integer, and a label that is missing holds for none.

    kubernetes/api core/v1 NodeSelectorRequirement; labels: NVIDIA/k8s-device-plugin docs/gpu-feature-discovery,
    ROCm/k8s-device-plugin cmd/k8s-node-labeller, intel-device-plugins cmd/gpu_plugin/labels.md.
    """
    labels = labels_of(offer)
    affinity = _document(text)["affinity"]["nodeAffinity"]
    selector = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in selector["nodeSelectorTerms"]:
        if all(_label_holds(expression, labels) for expression in term["matchExpressions"]):
            return True
    return False


def labels_of(offer: Offer) -> dict[str, str]:
    """Return the labels of a node with the GPU of an offer."""
    labels = {"kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}[offer.arch]}
    if offer.maker == "nvidia":
        major, minor = offer.code.split(".")
        labels |= {"nvidia.com/gpu.compute.major": major, "nvidia.com/gpu.compute.minor": minor}
        names = ("major", "minor", "revision")
        for name, number in zip(names, str(offer.driver).split("."), strict=False):
            labels[f"nvidia.com/cuda.driver-version.{name}"] = number
    elif offer.maker == "amd":
        ids = [name for name, code in names_of("kubernetes").items() if code == offer.code]
        labels["amd.com/gpu.device-id"] = ids[0] if ids else "ffff"
    else:
        products = [name for name, code in names_of("kubernetes").items() if code == offer.code]
        if products:
            labels["gpu.intel.com/product"] = products[0]
    return labels


def _label_holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    label = labels.get(expression["key"])
    values = expression["values"]
    if label is None:
        return False
    if expression["operator"] == "In":
        return label in values
    number = int(values[0])
    return int(label) > number if expression["operator"] == "Gt" else int(label) < number


def slurm(text: str, offer: Offer) -> bool:
    """Any of the features. slurm.schedmd.com/sbatch.html, --constraint; here each kind of GPU is a feature."""
    features = re.findall(r"^#SBATCH --constraint='?([^'\n]+)", text, re.MULTILINE)[0]
    return feature_of(offer.code) in features.split("|")


def feature_of(code: str) -> str:
    """Return what a site calls the nodes with a kind of GPU."""
    return "gpu_" + re.sub(r"\W", "_", code)


def htcondor(text: str, offer: Offer) -> bool:
    """The bounds, which include their ends, and ``require_gpus``; capabilities are floats, CUDA an integer.

    htcondor docs condor_submit.rst; a runtime without a number above 1000 is made one.
    """
    lines = dict(re.findall(r"^(\w+) = (.*)$", text, re.MULTILINE))
    arch = {"x86_64": "X86_64", "aarch64": "aarch64"}[offer.arch]
    if f'Arch == "{arch}"' not in lines["requirements"] or offer.maker != "nvidia":
        return False
    assert offer.cuda
    capability = float(offer.code)
    runtime = offer.cuda.major * 1000 + offer.cuda.minor * 10
    major, minor = lines["gpus_minimum_runtime"].split(".")
    if runtime < int(major) * 1000 + int(minor) * 10:
        return False
    low, high = float(lines["gpus_minimum_capability"]), float(lines["gpus_maximum_capability"])
    if not low <= capability <= high:
        return False
    values = {"Capability": capability, "MaxSupportedVersion": runtime}
    return bool(eval(_compiled(lines["require_gpus"]), {"__builtins__": {}}, values))  # noqa: S307


@cache
def _compiled(expression: str) -> CodeType:
    return compile(expression.replace("&&", "and").replace("||", "or"), "require_gpus", "eval")


def oci(text: str, offer: Offer) -> bool:
    """An alternative between spaces, all of whose comma-separated conditions hold; without the variable anything does.

    NVIDIA/libnvidia-container src/cli/dsl.c, dsl_evaluate and dsl_compare_version; src/cli/configure.c.
    """
    found = re.search(r'^ENV NVIDIA_REQUIRE_GPUINSTALL="(.*)"$', text, re.MULTILINE)
    if found is None:
        return True
    values = {"driver": str(offer.driver), "cuda": str(offer.cuda), "arch": offer.code}
    for alternative in found[1].split(" "):
        conditions = re.findall(r"(\w+)(>=|<=|<|=)([\d.]+)", alternative)
        if all(_dsl_holds(values[name], operator, value) for name, operator, value in conditions):
            return True
    return False


def _dsl_holds(known: str, operator: str, value: str) -> bool:
    """Compare part by part as numbers; zeros at the end do not count."""
    left, right = _dsl_number(known), _dsl_number(value)
    return {
        ">=": left >= right,
        "<=": left <= right,
        "<": left < right,
        "=": left == right,
    }[operator]


def _dsl_number(text: str) -> list[int]:
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return numbers


@cache
def _document(text: str) -> Any:
    return yaml.safe_load(text)


def _said(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


RULES: dict[str, Callable[[str, Offer], bool]] = {
    "runpod": runpod,
    "vast": vast,
    "skypilot": skypilot,
    "dstack": dstack,
    "modal": modal,
    "kubernetes": kubernetes,
    "slurm": slurm,
    "htcondor": htcondor,
    "oci": oci,
}
