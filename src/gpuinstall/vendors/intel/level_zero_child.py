"""A program of its own, of the standard library alone, that asks Level Zero, prints a line of JSON, and may die of it.

    {"library": "libze_loader.so.1", "api": "1.13", "devices": [
        {"name": "Intel(R) Arc(TM) B580 Graphics", "vendor": 32902, "device": 57867, "ip": 83902464,
         "integrated": false, "memory_bytes": 12168933376}]}

``library`` is null if there is none; ``status`` is the ze_result_t of the ``call`` that failed, both missing if none did.
What the library prints for itself goes to stderr. Structures and numbers: the Level Zero specification, ze_api.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from ctypes import (
    POINTER,
    Structure,
    addressof,
    byref,
    c_char,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

LIBRARY = "ze_loader.dll" if sys.platform == "win32" else "libze_loader.so.1"

GPUS_ONLY = 1
GPU = 1
INTEGRATED = 1

# What each structure is called in its first field.
DRIVER_TYPES = 0x00020021
PROPERTIES = 0x3
MEMORY_PROPERTIES = 0x7
IP_VERSION = 0x1000F


Answer = dict[str, Any]


class DriverTypes(Structure):
    """ze_init_driver_type_desc_t."""

    _fields_ = (("stype", c_uint32), ("next", c_void_p), ("flags", c_uint32))


class Properties(Structure):
    """ze_device_properties_t."""

    _fields_ = (
        ("stype", c_uint32),
        ("next", c_void_p),
        ("kind", c_uint32),
        ("vendor", c_uint32),
        ("device", c_uint32),
        ("flags", c_uint32),
        ("subdevice", c_uint32),
        ("clock", c_uint32),
        ("largest_allocation", c_uint64),
        ("shape", c_uint32 * 7),
        ("timer", c_uint64),
        ("timestamp_bits", c_uint32 * 2),
        ("uuid", c_uint8 * 16),
        ("name", c_char * 256),
    )


class MemoryProperties(Structure):
    """ze_device_memory_properties_t."""

    _fields_ = (
        ("stype", c_uint32),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("clock", c_uint32),
        ("width", c_uint32),
        ("bytes", c_uint64),
        ("name", c_char * 256),
    )


class IpVersion(Structure):
    """ze_device_ip_version_ext_t."""

    _fields_ = (("stype", c_uint32), ("next", c_void_p), ("version", c_uint32))


class RefusedError(Exception):
    """Level Zero refused a call: its name, and the ze_result_t."""


def main() -> None:
    """Answer on what was stdout; nothing else reaches it."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(answer(), stream)
    stream.write("\n")
    stream.flush()
    os._exit(0)


def answer() -> Answer:
    """Ask for every GPU; the loader's refusal is an answer too."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {"library": None, "error": str(error)}
    library.zeDeviceGet.argtypes = (c_void_p, POINTER(c_uint32), c_void_p)
    facts: Answer = {
        "library": LIBRARY,
        "api": None,
        "devices": [],
    }
    try:
        for driver in drivers(library):
            facts["api"] = api(library, driver)
            # A driver whose device refuses a call adds none of its devices.
            facts["devices"] += gpus(library, driver)
    except RefusedError as refusal:
        facts["call"], facts["status"] = refusal.args
    return facts


def drivers(library: Any) -> list[c_void_p]:
    """Initialize for GPUs alone: the driver of a neural processor is none of ours. Older loaders know zeInit only."""
    if hasattr(library, "zeInitDrivers"):
        kinds = DriverTypes(DRIVER_TYPES, None, GPUS_ONLY)
        return handles(library, "zeInitDrivers", after=(byref(kinds),))
    call(library, "zeInit", GPUS_ONLY)
    return handles(library, "zeDriverGet")


def api(library: Any, driver: c_void_p) -> str:
    """Return the version of the interface that a driver has."""
    version = c_uint32(0)
    call(library, "zeDriverGetApiVersion", driver, byref(version))
    return f"{version.value >> 16}.{version.value & 0xFFFF}"


def gpus(library: Any, driver: c_void_p) -> list[Answer]:
    """Describe a driver's GPUs; an IP version is 0 if the driver is too old to tell it."""
    described = []
    for device in handles(library, "zeDeviceGet", driver):
        ip = IpVersion(IP_VERSION, None, 0)
        properties = Properties(stype=PROPERTIES, next=addressof(ip))
        call(library, "zeDeviceGetProperties", device, byref(properties))
        if properties.kind != GPU:
            continue
        facts = {
            "name": properties.name.decode(errors="replace"),
            "vendor": properties.vendor,
            "device": properties.device,
            "ip": ip.version,
            "integrated": bool(properties.flags & INTEGRATED),
            "memory_bytes": memory(library, device),
        }
        described.append(facts)
    return described


def memory(library: Any, device: c_void_p) -> int:
    """Return the bytes of all of a device's memory."""
    count = c_uint32(0)
    call(library, "zeDeviceGetMemoryProperties", device, byref(count), None)
    banks = (MemoryProperties * count.value)()
    for bank in banks:
        bank.stype = MEMORY_PROPERTIES
    call(library, "zeDeviceGetMemoryProperties", device, byref(count), banks)
    return sum(bank.bytes for bank in banks)


def handles(
    library: Any,
    name: str,
    *before: Any,
    after: tuple[Any, ...] = (),
) -> list[c_void_p]:
    """Ask for a number of handles, then for the handles."""
    count = c_uint32(0)
    call(
        library,
        name,
        *before,
        byref(count),
        None,
        *after,
    )
    array = (c_void_p * count.value)()
    call(
        library,
        name,
        *before,
        byref(count),
        array,
        *after,
    )
    return [c_void_p(handle) for handle in array[: count.value]]


def call(library: Any, name: str, *arguments: Any) -> None:
    """Call a function; raise RefusedError for anything but success."""
    status = getattr(library, name)(*arguments) & 0xFFFFFFFF
    if status:
        raise RefusedError(name, status)


if __name__ == "__main__":
    main()
