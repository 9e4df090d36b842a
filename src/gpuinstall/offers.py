"""A machine as those who rent or schedule it describe it: an offer in words, or the labels of a Kubernetes node. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpuinstall.errors import UsageError
from gpuinstall.machine import MOST_GPUS, Driver, Gpu, Machine
from gpuinstall.regex import regex
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

SELLERS = ("runpod", "vast", "lambda", "skypilot", "dstack", "modal", "slurm", "htcondor")
"""Whose offers are read: as their pages, their commands and their names of GPUs have them."""

_OFFER = regex(rf"(?is)(?:{'|'.join(SELLERS)}):\s*(?P<text>.+)")
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
_CUDA = regex(
    rf"(?i)(?:(?:max|min)[\s_]*)?cuda(?:[\s_]*(?:max[\s_]*good|vers(?:ion)?))?{_KEY}{_VERSION}\+?"
)
_RUNTIME = regex(rf"(?i)MaxSupportedVersion{_KEY}(?P<number>\d{{5}})")
"""HTCondor's: 13000 is CUDA 13.0."""
_DRIVER = regex(rf"(?i)driver(?:[\s_]*version)?{_KEY}{_VERSION}\+?")
_GPU_KEY = regex(r"(?i)(?:gpu|accelerators?|devicename|gpu[\s_]*(?:name|type|id))\s*[:=]\s*")
_TRAILING_COUNT = regex(r"(?P<name>.*[^\s:]):(?P<count>\d{1,2})")
"""SkyPilot and Modal: ``A100-80GB:8``."""
_COUNT = regex(r"(?i)num_gpus\s*[:=]\s*(?P<count>\d{1,2})")
_ARCH = regex(rf"(?i)(?:(?:cpu_)?arch(?:itecture)?\s*[:=]\s*)?(?P<arch>{'|'.join(_ARCHES)})")
_ASIDE = regex(r"(?i)\$.*|\w+\s*=.*|\w+:\s.*|[\d.,]+\s*(?:[kmgt]i?b|v?cpus?|cores?|hours?)\b.*")
"""What no build depends on: a price, memory, processors, any other field."""
_SHORTHAND = (
    (r"^gpu_(\d+)x_", r"\1x "),  # Lambda's types: gpu_8x_h100_sxm5
    (r"(PRO[ _]\d{4})[ _](?:WS|WK|S)$", r"\1"),  # editions that run the same code
    (r"(?<=\d{4})[ _]?S\b", " SUPER"),
    (r"^Q(?=[ _])", "Quadro"),
    (r"^Instinct(?=MI)", ""),
)
"""How sellers shorten the name of a GPU, and what stands for it in the catalogue."""

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
    names: list[str] = []
    copies = 1
    driver = Driver(found_via="words")
    arch = "x86_64"
    for part in _parts(offer["text"]):
        told_driver = _with_words_of(part, driver)
        count = _COUNT.fullmatch(part)
        processor = _ARCH.fullmatch(part)
        if told_driver:
            driver = told_driver
        elif count:
            copies = int(count["count"])
        elif processor:
            arch = _ARCHES[processor["arch"].lower()]
        elif _GPU_KEY.match(part) or not _ASIDE.fullmatch(part):
            name = _GPU_KEY.sub("", part, count=1)
            names += _counted(name)
    gpus = [_gpu(name, index) for index, name in enumerate(names * copies)]
    if not gpus:
        raise UsageError(
            "gpu-missing",
            f"the offer names no GPU: {text}",
            hint="the same with --machine 'runpod:NVIDIA L4, CUDA 12.8'",
        )
    machine = Machine("linux", arch, gpus=tuple(gpus))
    return _with_driver(machine, driver)


def _parts(text: str) -> list[str]:
    """Return what stands between commas, or the fields of an object of JSON."""
    parts = re.split(r"[,;|\n·]", text)
    if text.startswith("{"):
        with suppress(ValueError):
            fields = json.loads(text)
            parts = [f"{name}: {value}" for name, value in fields.items()]
    stripped = [part.strip().strip("\"'") for part in parts]
    return list(filter(None, stripped))


def _with_words_of(part: str, driver: Driver) -> Driver | None:
    """Return a driver with its CUDA or its release as a part tells it; None if the part is of something else."""
    # Imported here: the document of a machine is read without the names of GPUs.
    from gpuinstall.words import driver_in_words

    cuda = _CUDA.fullmatch(part)
    if cuda:
        return replace(driver, cuda=_cuda(cuda["version"]))
    runtime = _RUNTIME.fullmatch(part)
    if runtime:
        number = int(runtime["number"])
        return replace(driver, cuda=CudaVersion.from_driver_api(number))
    release = _DRIVER.fullmatch(part)
    if release:
        return replace(driver, version=driver_in_words(release["version"]))
    return None


def _gpu(name: str, index: int) -> Gpu:
    from gpuinstall.words import gpu_in_words

    try:
        return gpu_in_words(name, index)
    except UsageError as error:
        hint = str(error.hint).replace("--gpu ", "")
        if hint.startswith("nvidia-smi"):
            # A machine that is not rented yet cannot run it.
            hint = "Write what it executes instead: sm_89 for an RTX 4090"
        raise UsageError(error.code, error.message, hint=hint) from None


def _counted(name: str) -> list[str]:
    """Return the name of each GPU of ``4x A100``, ``A100:4``, ``gpu_4x_a100`` or ``RTX_4090``."""
    from gpuinstall.catalog.gpu_names import counted_names

    for shorthand, words in _SHORTHAND:
        name = re.sub(shorthand, words, name)
    trailing = _TRAILING_COUNT.fullmatch(name)
    if trailing:
        return [trailing["name"]] * int(trailing["count"])
    return counted_names(name.replace("_", " "))


def _cuda(text: str) -> CudaVersion:
    major, minor, *_ = [*map(int, text.split(".")), 0]
    return CudaVersion(major, minor)


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
    """Return the machine of a node by the labels of GPU feature discovery, or of AMD's and Intel's labellers.

    Raises:
        UsageError: The labels tell of no GPU or no driver, or are malformed.
    """
    from gpuinstall.words import gpu_in_words

    arch = labels["kubernetes.io/arch"]
    os = labels.get("kubernetes.io/os", "linux")
    machine = Machine(os, _ARCHES.get(arch, arch))
    product = labels.get("amd.com/gpu.product-name") or labels.get("gpu.intel.com/product")
    if product:
        gpu = gpu_in_words(product.replace("_", " "))
        return replace(machine, gpus=(gpu,))
    try:
        return _machine_of_nvidia_labels(machine, labels)
    except KeyError as missing:
        message = f"the node has no label {missing.args[0]}"
    except ValueError as error:
        message = f"a label of the node is malformed: {error}"
    raise UsageError(
        "machine-malformed",
        message,
        why="NVIDIA's GPU feature discovery writes it; AMD's and Intel's labellers name the product",
        hint="kubectl get node NODE -o json   # on a node with that labeller",
    )


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
    indices = range(min(count, MOST_GPUS))
    gpus = [replace(gpu, index=index) for index in indices]
    # Written under both names today; the older ones end one day.
    release = _numbers(labels, "cuda.driver-version", ("major", "minor", "revision"))
    release = release or _numbers(labels, "cuda.driver", ("major", "minor", "rev"))
    cuda = _numbers(labels, "cuda.runtime-version", ("major", "minor"))
    cuda = cuda or _numbers(labels, "cuda.runtime", ("major", "minor"))
    if not (release or cuda):
        raise KeyError(f"{_LABEL}cuda.driver-version.major")
    driver = Driver(found_via="labels")
    if release:
        version = DriverVersion.parse(".".join(release))
        driver = replace(driver, version=version)
    if cuda:
        runtime = CudaVersion.parse(".".join(cuda))
        driver = replace(driver, cuda=runtime)
    return replace(machine, gpus=tuple(gpus), driver=driver)


def _numbers(labels: Mapping[str, str], name: str, parts: tuple[str, ...]) -> list[str]:
    """Return the numbers of a version that has a label for each, up to the first that is missing or empty."""
    numbers = []
    for part in parts:
        number = labels.get(f"{_LABEL}{name}.{part}")
        if not number:
            break
        numbers.append(number)
    return numbers
