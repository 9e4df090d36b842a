"""A program of its own, of the standard library alone, that asks Level Zero, prints a line of JSON, and may die of it.

    {"library": "libze_loader.so.1", "status": 0, "drivers": 1, "api": "1.13", "devices": [
        {"name": "Intel(R) Arc(TM) B580 Graphics", "vendor": 32902, "device": 57867, "ip": 83902464,
         "integrated": false, "memory_bytes": 12168933376}]}

``library`` is null where there is none; ``status`` is the ze_result_t of the last call that failed, named in ``call``.
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
DRIVER_TYPES, PROPERTIES, MEMORY_PROPERTIES, IP_VERSION = 0x00020021, 0x3, 0x7, 0x1000F


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


class Refused(Exception):  # noqa: N818  an answer, not an error
    """Level Zero refused a call: its name, and the ze_result_t."""


def checked(library: Any, call: str, *arguments: Any) -> None:
    """Call; raise Refused for anything but success."""
    status = getattr(library, call)(*arguments) & 0xFFFFFFFF
    if status:
        raise Refused(call, status)


def handles(library: Any, call: str, *before: Any, after: tuple[Any, ...] = ()) -> list[c_void_p]:
    """Ask for a number of handles, then for the handles."""
    count = c_uint32(0)
    checked(library, call, *before, byref(count), None, *after)
    array = (c_void_p * count.value)()
    checked(library, call, *before, byref(count), array, *after)
    return [c_void_p(handle) for handle in array[: count.value]]


def drivers(library: Any) -> list[c_void_p]:
    """Initialize for GPUs alone: the driver of a neural processor is none of ours. Older loaders know zeInit only."""
    if hasattr(library, "zeInitDrivers"):
        kinds = DriverTypes(DRIVER_TYPES, None, GPUS_ONLY)
        return handles(library, "zeInitDrivers", after=(byref(kinds),))
    checked(library, "zeInit", GPUS_ONLY)
    return handles(library, "zeDriverGet")


def described(library: Any, device: c_void_p) -> dict[str, Any]:
    """Describe one device; its IP version is 0 where the driver is too old to say."""
    ip = IpVersion(IP_VERSION, None, 0)
    properties = Properties(stype=PROPERTIES, next=addressof(ip))
    checked(library, "zeDeviceGetProperties", device, byref(properties))
    return {
        "name": properties.name.decode(errors="replace"),
        "kind": properties.kind,
        "vendor": properties.vendor,
        "device": properties.device,
        "ip": ip.version,
        "integrated": bool(properties.flags & INTEGRATED),
        "memory_bytes": memory(library, device),
    }


def memory(library: Any, device: c_void_p) -> int:
    """Add what the device has of memory."""
    count = c_uint32(0)
    checked(library, "zeDeviceGetMemoryProperties", device, byref(count), None)
    banks = (MemoryProperties * count.value)(
        *(MemoryProperties(stype=MEMORY_PROPERTIES) for _ in range(count.value))
    )
    checked(library, "zeDeviceGetMemoryProperties", device, byref(count), banks)
    return sum(bank.bytes for bank in banks)


def api(library: Any, driver: c_void_p) -> str:
    """The version of the interface that a driver has."""
    version = c_uint32(0)
    checked(library, "zeDriverGetApiVersion", driver, byref(version))
    return f"{version.value >> 16}.{version.value & 0xFFFF}"


def answer() -> dict[str, Any]:
    """Ask for every GPU."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        return {"library": None, "error": str(error)}
    document: dict[str, Any] = {
        "library": LIBRARY,
        "status": 0,
        "drivers": 0,
        "api": None,
        "devices": [],
    }
    library.zeDeviceGet.argtypes = (c_void_p, POINTER(c_uint32), c_void_p)
    try:
        driver_handles = drivers(library)
        document["drivers"] = len(driver_handles)
        for driver in driver_handles:
            document["api"] = api(library, driver)
            devices = (
                described(library, device) for device in handles(library, "zeDeviceGet", driver)
            )
            document["devices"] += [device for device in devices if device.pop("kind") == GPU]
    except Refused as refusal:
        document["call"], document["status"] = refusal.args
    return document


if __name__ == "__main__":
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    stream.write(json.dumps(answer()) + "\n")
    stream.flush()
    os._exit(0)
