"""A machine as those who rent or schedule it describe it: an offer in words, or the labels of a Kubernetes node. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuinstall.errors import UsageError
from gpuinstall.machine import MOST_GPUS, Driver, Gpu, Machine
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

SELLERS = ("runpod", "vast", "skypilot", "dstack", "modal", "slurm", "htcondor")
"""Whose offers are read: as their pages, their commands and their names of GPUs have them."""

_OFFER = re.compile(rf"(?:{'|'.join(SELLERS)}):\s*(?P<text>.+)", re.DOTALL | re.IGNORECASE)
_ARCHES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "x86": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
    "arm": "aarch64",
}
_VERSION = r"(?P<version>\d+(?:\.\d+)+|\d+)"
_KEY = r"[\s:=><]*"
_CUDA = re.compile(
    rf"(?:(?:max|min)[\s_]*)?cuda(?:[\s_]*(?:max[\s_]*good|vers(?:ion)?))?{_KEY}{_VERSION}\+?",
    re.IGNORECASE,
)
_RUNTIME = re.compile(rf"MaxSupportedVersion{_KEY}(?P<number>\d{{5}})", re.IGNORECASE)
"""HTCondor's: 13000 is CUDA 13.0."""
_DRIVER = re.compile(rf"driver(?:[\s_]*version)?{_KEY}{_VERSION}\+?", re.IGNORECASE)
_GPU_KEY = re.compile(
    r"(?:gpu|accelerators?|devicename|gpu[\s_]*(?:name|type|id))\s*[:=]\s*", re.IGNORECASE
)
_TRAILING_COUNT = re.compile(r"(?P<name>.*[^\s:]):(?P<count>\d{1,2})")
"""SkyPilot and Modal: ``A100-80GB:8``."""

_LABEL = "nvidia.com/"


def machine_of_offer(text: str) -> Machine | None:
    """Return the machine of ``runpod:"NVIDIA L4, CUDA 12.8"``; None if a text does not begin with a seller's name.

    Of its parts one is a GPU, and one the driver or the CUDA that it reports; one may be the processor.

    Raises:
        UsageError: A part is none of these, no GPU has the name, or the driver is missing.
    """
    offer = _OFFER.fullmatch(text)
    if offer is None:
        return None
    # Imported here: the document of a machine is read without the names of GPUs.
    from gpuinstall.words import driver_in_words, gpu_in_words

    names: list[str] = []
    driver = Driver(found_via="words")
    arch = "x86_64"
    parts = [part.strip().strip("\"'") for part in re.split(r"[,;\n]", offer["text"])]
    for part in filter(None, parts):
        cuda = _CUDA.fullmatch(part)
        runtime = _RUNTIME.fullmatch(part)
        release = _DRIVER.fullmatch(part)
        if cuda:
            driver = replace(driver, cuda=_cuda(cuda["version"]))
        elif runtime:
            driver = replace(driver, cuda=CudaVersion.from_driver_api(int(runtime["number"])))
        elif release:
            driver = replace(driver, version=driver_in_words(release["version"]))
        elif part.lower() in _ARCHES:
            arch = _ARCHES[part.lower()]
        else:
            names += _counted(_GPU_KEY.sub("", part, count=1))
    gpus = tuple(gpu_in_words(name, index) for index, name in enumerate(names))
    if not gpus:
        raise UsageError(
            "gpu-missing",
            f"the offer names no GPU: {text}",
            hint="the same with --machine 'runpod:NVIDIA L4, CUDA 12.8'",
        )
    return _with_driver(Machine("linux", arch, gpus=gpus), driver)


def _counted(name: str) -> list[str]:
    """Return the name of each GPU of ``4x A100``, ``A100:4`` or ``RTX_4090``."""
    from gpuinstall.catalog.gpu_names import counted_names

    trailing = _TRAILING_COUNT.fullmatch(name)
    if trailing:
        return [trailing["name"]] * int(trailing["count"])
    return counted_names(name.replace("_", " "))


def _cuda(text: str) -> CudaVersion:
    major, _, minor = text.partition(".")
    return CudaVersion(int(major), int(minor.partition(".")[0] or 0))


def _with_driver(machine: Machine, driver: Driver) -> Machine:
    if all(gpu.architecture for gpu in machine.gpus):
        return machine
    if driver.version is None and driver.cuda is None:
        labels = ", ".join(gpu.label for gpu in machine.gpus)
        raise UsageError(
            "driver-missing",
            f"what runs on {labels} depends on the driver, of which the offer says nothing",
            hint="Add the CUDA that the host reports, or its driver: ', CUDA 12.8' or ', driver 570.86'",
        )
    return replace(machine, driver=driver)


def labels_in(document: Any) -> Mapping[str, str] | None:
    """Return the labels of a Kubernetes node: of ``kubectl get node NAME -o json``, or by themselves; None if none."""
    if not isinstance(document, dict):
        return None
    metadata = document.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else document
    if not isinstance(labels, dict) or "kubernetes.io/arch" not in labels:
        return None
    return {name: value for name, value in labels.items() if isinstance(value, str)}


def machine_of_labels(labels: Mapping[str, str]) -> Machine:
    """Return the machine of a node by the labels of GPU feature discovery, or of AMD's labeller.

    Raises:
        UsageError: The labels tell of no GPU, or not enough of it.
    """
    from gpuinstall.words import gpu_in_words

    arch = _ARCHES.get(labels["kubernetes.io/arch"], labels["kubernetes.io/arch"])
    machine = Machine(labels.get("kubernetes.io/os", "linux"), arch)
    product = labels.get("amd.com/gpu.product-name")
    if product:
        return replace(machine, gpus=(gpu_in_words(product.replace("_", " ")),))
    try:
        return _machine_of_nvidia_labels(machine, labels)
    except (KeyError, ValueError):
        raise UsageError(
            "machine-malformed",
            "the labels of the node tell of no GPU, or no driver",
            why="NVIDIA's GPU feature discovery writes nvidia.com/gpu.compute.major and others",
            hint="kubectl get node NODE -o json   # on a node with that labeller",
        ) from None


def _machine_of_nvidia_labels(machine: Machine, labels: Mapping[str, str]) -> Machine:
    """Return the machine; raise KeyError for a missing label, ValueError for a malformed one."""
    capability = ComputeCapability(
        int(labels[f"{_LABEL}gpu.compute.major"]),
        int(labels[f"{_LABEL}gpu.compute.minor"]),
    )
    memory = labels.get(f"{_LABEL}gpu.memory")
    gpu = Gpu(
        0,
        labels.get(f"{_LABEL}gpu.product", "NVIDIA GPU").replace("-", " "),
        compute_capability=capability,
        memory_mib=int(memory) if memory else None,
        found_via="labels",
    )
    count = int(labels.get(f"{_LABEL}gpu.count", "1"))
    gpus = tuple(replace(gpu, index=index) for index in range(min(count, MOST_GPUS)))
    # Written under both names today; the older ones end one day.
    release = _numbers(labels, "cuda.driver-version", ("major", "minor", "revision"))
    release = release or _numbers(labels, "cuda.driver", ("major", "minor", "rev"))
    cuda = _numbers(labels, "cuda.runtime-version", ("major", "minor"))
    cuda = cuda or _numbers(labels, "cuda.runtime", ("major", "minor"))
    driver = Driver(
        DriverVersion.parse(".".join(release)) if release else None,
        CudaVersion.parse(".".join(cuda)) if cuda else None,
        found_via="labels",
    )
    if not (release or cuda):
        raise KeyError("driver")
    return replace(machine, gpus=gpus, driver=driver)


def _numbers(labels: Mapping[str, str], name: str, parts: tuple[str, ...]) -> list[str]:
    """Return the numbers of a version that has a label for each, up to the first that is missing or empty."""
    numbers = []
    for part in parts:
        number = labels.get(f"{_LABEL}{name}.{part}")
        if not number:
            break
        numbers.append(number)
    return numbers
