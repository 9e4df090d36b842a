"""The Machine document, read and written: every malformed key is named with its place in the document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from gpuinstall.errors import UsageError
from gpuinstall.machine import SCHEMA, Driver, Environment, Gpu, Machine, MigDevice, Problem
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

SYSTEMS = ("linux", "windows", "macos")
ARCHITECTURES = ("x86_64", "aarch64", "arm64")
LIBRARIES = ("glibc", "musl")
CONTAINERS = ("docker", "podman", "kubernetes", "apptainer", "lxc")
MOST_GPUS = 1024


def read(document: Mapping[str, Any]) -> Machine:
    """Read a Machine document, with or without the envelope around it."""
    body = _body(document)
    if body.get("schema") != SCHEMA:
        raise _malformed("schema", f"is {body.get('schema')!r}; this release reads {SCHEMA!r}")
    return Machine(
        os=_choice(body, "os", SYSTEMS),
        arch=_choice(body, "arch", ARCHITECTURES),
        libc=_known(body, "libc", LIBRARIES),
        glibc=_glibc(body),
        environment=_environment(_optional(body, "environment", dict) or {}),
        pythons=_pythons(body),
        driver=_driver(_optional(body, "driver", dict)),
        gpus=_gpus(body),
        problems=tuple(_problem(item, f"problems[{i}]") for i, item in enumerate(_list(body, "problems"))),
        distribution=_optional(body, "distribution", str),
        signs=tuple(str(sign) for sign in _list(body, "signs")),
    )


def write(machine: Machine) -> dict[str, Any]:
    """Write the Machine document, every key of the contract present."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "os": machine.os,
        "arch": machine.arch,
        "libc": machine.libc,
        "glibc": machine.glibc,
        "environment": {
            "wsl": machine.environment.wsl,
            "container": machine.environment.container,
            "jetson": {"l4t": machine.environment.l4t} if machine.environment.l4t else None,
        },
        "pythons": None if machine.pythons is None else list(machine.pythons),
        "driver": _written_driver(machine.driver),
        "gpus": [_written_gpu(gpu) for gpu in machine.gpus],
        "problems": [written_problem(problem) for problem in machine.problems],
    }
    document |= {"distribution": machine.distribution} if machine.distribution else {}
    document |= {"signs": list(machine.signs)} if machine.signs else {}
    return document


def _body(document: object) -> Mapping[str, Any]:
    if isinstance(document, dict) and "schema" not in document and isinstance(document.get("data"), dict):
        document = document["data"]
    if not isinstance(document, dict):
        raise _malformed("the document", "is not a JSON object")
    return document


def _glibc(body: Mapping[str, Any]) -> str | None:
    glibc = _optional(body, "glibc", str)
    if glibc is not None and not re.match(r"[0-9]+\.[0-9]+", glibc):
        raise _malformed("glibc", f"is {glibc!r}, not a version such as 2.36")
    return glibc


def _environment(body: Mapping[str, Any]) -> Environment:
    jetson = _optional(body, "jetson", dict, "environment.")
    return Environment(
        wsl=bool(_optional(body, "wsl", bool, "environment.")),
        container=_known(body, "container", CONTAINERS, "environment."),
        l4t=None if jetson is None else _optional(jetson, "l4t", str, "environment.jetson.") or "unknown",
    )


def _pythons(body: Mapping[str, Any]) -> tuple[str, ...] | None:
    if body.get("pythons") is None:
        return None
    pythons = _list(body, "pythons")
    for place, python in enumerate(pythons):
        if not isinstance(python, str) or not re.match(r"[0-9]+\.[0-9]+t?(?![0-9a-z])", python):
            raise _malformed(f"pythons[{place}]", f"is {python!r}, not a version such as 3.12.1")
    return tuple(pythons)


def _driver(body: Mapping[str, Any] | None) -> Driver | None:
    if body is None:
        return None
    return Driver(
        version=_parsed(body, "version", DriverVersion.parse, "driver."),
        cuda=_parsed(body, "cuda", CudaVersion.parse, "driver."),
        found_via=_optional(body, "found_via", str, "driver."),
    )


def _gpus(body: Mapping[str, Any]) -> tuple[Gpu, ...]:
    if "gpus" not in body or not isinstance(body["gpus"], list):
        raise _malformed("gpus", "is missing or not a list")
    items = body["gpus"]
    if len(items) > MOST_GPUS:
        raise _malformed("gpus", f"has {len(items)} entries; at most {MOST_GPUS} are read")
    gpus = tuple(_gpu(item, position) for position, item in enumerate(items))
    if len({gpu.index for gpu in gpus}) < len(gpus):
        raise _malformed("gpus", "has two entries with the same index")
    return gpus


def _gpu(body: object, position: int) -> Gpu:
    place = f"gpus[{position}]."
    if not isinstance(body, dict):
        raise _malformed(place[:-1], "is not an object")
    if "compute_capability" not in body:
        raise _malformed(f"{place}compute_capability", "is missing (null when unknown)")
    index = _optional(body, "index", int, place)
    return Gpu(
        index=position if index is None else _natural(index, f"{place}index"),
        name=_optional(body, "name", str, place),
        uuid=_optional(body, "uuid", str, place),
        pci_id=_optional(body, "pci_id", str, place),
        compute_capability=_parsed(body, "compute_capability", ComputeCapability.parse, place),
        memory_mib=_memory(body, place),
        mig=bool(_optional(body, "mig", bool, place)),
        mig_devices=tuple(
            _mig(item, f"{place}mig_devices[{i}].") for i, item in enumerate(_list(body, "mig_devices", place))
        ),
        found_via=_optional(body, "found_via", str, place),
    )


def _mig(body: object, place: str) -> MigDevice:
    if not isinstance(body, dict) or not isinstance(body.get("uuid"), str):
        raise _malformed(place[:-1], "needs a uuid")
    return MigDevice(body["uuid"], _optional(body, "profile", str, place), _memory(body, place))


def _problem(body: object, place: str) -> Problem:
    if not isinstance(body, dict):
        raise _malformed(place, "is not an object")
    blocking = _optional(body, "blocking", bool, f"{place}.")
    return Problem(
        code=_optional(body, "code", str, f"{place}.") or "unknown-problem",
        message=_optional(body, "message", str, f"{place}.") or "a problem without a message",
        fix=_optional(body, "fix", str, f"{place}."),
        id=_optional(body, "id", str, f"{place}."),
        blocking=blocking is not False,
        gpus=tuple(_natural(index, f"{place}.gpus") for index in _list(body, "gpus", f"{place}.")),
        why=_optional(body, "why", str, f"{place}."),
        seen=_optional(body, "seen", str, f"{place}."),
        needs=tuple(str(need) for need in _list(body, "needs", f"{place}.")),
    )


def _written_driver(driver: Driver | None) -> dict[str, Any] | None:
    if driver is None:
        return None
    return {
        "version": _text(driver.version),
        "cuda": _text(driver.cuda),
        "found_via": driver.found_via,
    }


def _written_gpu(gpu: Gpu) -> dict[str, Any]:
    slices = [{"uuid": mig.uuid, "profile": mig.profile, "memory_mib": mig.memory_mib} for mig in gpu.mig_devices]
    return {
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "pci_id": gpu.pci_id,
        "compute_capability": _text(gpu.compute_capability),
        "memory_mib": gpu.memory_mib,
        "mig": gpu.mig,
        **({"mig_devices": slices} if slices else {}),
        "found_via": gpu.found_via,
    }


def written_problem(problem: Problem) -> dict[str, Any]:
    """Write one problem as the documents have it; what it does not say is left out."""
    document: dict[str, Any] = {
        "code": problem.code,
        "id": problem.id,
        "message": problem.message,
        "fix": problem.fix,
        "blocking": problem.blocking,
    }
    optional = {
        "gpus": list(problem.gpus),
        "why": problem.why,
        "seen": problem.seen,
        "needs": list(problem.needs),
    }
    return document | {key: value for key, value in optional.items() if value}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _choice(body: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    if body.get(key) not in choices:
        raise _malformed(key, f"is {body.get(key)!r}, not one of {', '.join(choices)}")
    return str(body[key])


def _known(body: Mapping[str, Any], key: str, choices: tuple[str, ...], place: str = "") -> str | None:
    value = _optional(body, key, str, place)
    if value is not None and value not in choices:
        raise _malformed(f"{place}{key}", f"is {value!r}, not one of {', '.join(choices)}")
    return value


def _optional(body: Mapping[str, Any], key: str, kind: type[T], place: str = "") -> T | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _malformed(f"{place}{key}", f"is {value!r}, not {_NAMES[kind]}")
    return value


_NAMES: dict[type, str] = {str: "a string", int: "an integer", bool: "true or false", dict: "an object"}


def _list(body: Mapping[str, Any], key: str, place: str = "") -> list[Any]:
    value = body.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _malformed(f"{place}{key}", "is not a list")
    return value


def _parsed(body: Mapping[str, Any], key: str, parse: Callable[[str], T], place: str) -> T | None:
    text = _optional(body, key, str, place)
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise _malformed(f"{place}{key}", str(error)) from None


def _memory(body: Mapping[str, Any], place: str) -> int | None:
    memory = _optional(body, "memory_mib", int, place)
    return None if memory is None else _natural(memory, f"{place}memory_mib")


def _natural(value: object, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _malformed(place, f"is {value!r}, not a number from 0 up")
    return value


def _malformed(place: str, fault: str) -> UsageError:
    return UsageError(
        "machine-malformed",
        f"the machine description is malformed: {place} {fault} (gpuinstall probe --json writes a right one)",
    )
