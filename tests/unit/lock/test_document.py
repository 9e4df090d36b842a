from datetime import datetime, timezone
from pathlib import Path

import pytest
import tomli

from gpuinstall.base.request import Request
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.uv.fetch import Hashes
from gpuinstall.lock.uv.resolution import Resolution
from gpuinstall.lock.write import build_lock
from gpuinstall.machine.options import machine_from_options
from tests.frozen import frozen_catalog
from tests.unit.lock.wheels_here import packages

SDIST = {
    "url": "https://index.example/numpy-2.3.4.tar.gz",
    "hashes": {"sha256": "0" * 64},
}
WHEEL = {
    "url": "https://index.example/numpy-2.3.4-cp312-cp312-manylinux_2_28_x86_64.whl",
    "upload-time": datetime(2026, 11, 17, tzinfo=timezone.utc),
    "size": 5,
    "hashes": {"sha256": "0" * 64},
}
NUMPY = {"name": "numpy", "version": "2.3.4", "sdist": SDIST}
HASHES = {SDIST["url"]: "1" * 64, WHEEL["url"]: "2" * 64}
TARGET = Target("cu126")
PINNED = Request(("torch==2.14.1",), backend="cu126", python="3.12")


def locked(package, hashes=HASHES, request=PINNED):
    machine = machine_from_options(("RTX 4090",), "535.183.01", None, None)
    wanted = LockRequest(machine, request, frozen_catalog())
    made = Resolution(
        wanted, wanted.plan, TARGET, packages(package), Hashes({}, {}), {}
    )
    return build_lock(wanted, made, hashes, Path())


def test_lock_has_standard_fields():
    lock = locked({**NUMPY, "wheels": [WHEEL]})
    assert (lock.name, lock.is_sealed) == (TARGET.filename, True)
    document = tomli.loads(lock.text)
    del document["tool"]
    file = {"url": WHEEL["url"], "hashes": {"sha256": "2" * 64}}
    assert document == {
        "lock-version": "1.0",
        "environments": [TARGET.marker],
        "requires-python": "==3.12.*",
        "created-by": "gpuinstall",
        "packages": [{"name": "numpy", "version": "2.3.4", "wheels": [file]}],
    }


def test_sdist_without_wheels_is_locked():
    [package] = tomli.loads(locked(NUMPY).text)["packages"]
    assert package["sdist"] == {**SDIST, "hashes": {"sha256": "1" * 64}}


def test_lock_never_contains_file_without_hash():
    with pytest.raises(KeyError):
        locked(NUMPY, {})


def test_lock_record_has_request_and_minimum_versions():
    record = locked(NUMPY).record
    assert (record.asked, record.torch) == ("cu126", "2.14.1")
    assert record.inputs == ("torch==2.14.1",)
    assert "sm_80" in record.architectures
    assert record.floors.keys() == {"driver"}
    assert record.glibc == "2.28"
    assert "asked" not in locked(NUMPY, request=Request()).record.to_table()
