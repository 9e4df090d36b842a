from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Machine
from gpuinstall.base.versions import ComputeCapability

CARD: dict[str, Any] = {"compute_capability": "8.0"}
LEAST: dict[str, Any] = {
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "gpus": [],
}
FULL: dict[str, Any] = {
    **LEAST,
    "libc": "glibc",
    "glibc": "2.36",
    "environment": {"wsl": False, "container": "docker", "jetson": {"l4t": "36.4.0"}},
    "pythons": ["3.11.7", "3.12.1"],
    "driver": {"version": "535.183.01", "cuda": "12.2", "found_via": "nvml"},
    "gpus": [
        {
            "index": 3,
            "name": "NVIDIA A100-SXM4-80GB",
            "uuid": "GPU-1",
            "pci_id": "10de:20b2",
            "compute_capability": "8.0",
            "memory_mib": 81920,
            "mig": True,
            "mig_devices": [
                {"uuid": "MIG-1", "profile": "1g.10gb", "memory_mib": 9728}
            ],
            "found_via": "nvml",
        }
    ],
    "problems": [
        {
            "code": "gpu-lost",
            "id": "F14",
            "message": "m",
            "fix": "f",
            "blocking": True,
            "gpus": [3],
        }
    ],
}


def test_full_machine_document_survives_a_round_trip():
    assert Machine.from_dict(FULL).to_dict() == FULL


def test_amd_machine_document_survives_a_round_trip():
    gpu = {
        **FULL["gpus"][0],
        "compute_capability": None,
        "vendor": "amd",
        "architecture": "gfx1201",
    }
    facts = {"kernel": "6.8.0", "amdgpu": "6.12.12", "rocm": None}
    document = {**FULL, "driver": None, "gpus": [gpu], "amd": facts}

    machine = Machine.from_dict(document)

    assert machine.to_dict() == document
    assert hash(machine) == hash(Machine.from_dict(document))


def test_machine_is_read_from_command_output():
    documents = (
        {"gpuinstall": 1, "command": "probe", "data": FULL},
        {"gpuinstall": 1, "command": "doctor", "data": {"machine": FULL}},
        {"node": "n1", "command": "probe", "machine": FULL, "document": {}},
    )
    assert {Machine.from_dict(one) for one in documents} == {Machine.from_dict(FULL)}


def read(**facts):
    return Machine.from_dict({**LEAST, **facts})


def test_missing_python_list_differs_from_empty_list():
    assert (read().pythons, read(pythons=[]).pythons) == (None, ())


def test_machine_problems_block_by_default():
    passing = {"code": "b", "blocking": False}
    machine = read(problems=[{"code": "a"}, passing, {"code": "c", "gpus": [0]}])
    assert [problem.code for problem in machine.blocking] == ["a"]


def test_unknown_compute_capability_is_read_as_none():
    gpus = read(gpus=[{"compute_capability": None}, CARD]).gpus
    assert [gpu.compute_capability for gpu in gpus] == [None, ComputeCapability(8, 0)]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"schema": "gpuinstall.machine/2"}, "schema"),
        ({"os": "beos"}, "os"),
        ({"gpus": None}, "gpus"),
        ({"gpus": [CARD] * 10_000}, "10000 entries"),
        ({"gpus": [{}]}, "gpus[0].compute_capability is missing"),
        ({"gpus": [{"compute_capability": "-8.0"}]}, "gpus[0].compute_capability"),
        ({"gpus": [CARD | {"memory_mib": -1}]}, "gpus[0].memory_mib"),
        ({"gpus": [CARD | {"index": 0}, CARD | {"index": 0}]}, "same index"),
        ({"gpus": ["A100"]}, "gpus[0] is 'A100', not an object"),
        ({"driver": {"version": "banana"}}, "driver.version"),
        (
            {"gpus": [CARD | {"mig_devices": [{}]}]},
            "gpus[0].mig_devices[0].uuid is missing",
        ),
        ({"pythons": ["three"]}, "pythons[0]"),
        ({"libc": "uclibc"}, "libc"),
        ({"environment": {"container": "jail"}}, "environment.container"),
        ({"problems": [{"code": "x", "gpus": [-1]}]}, "problems[0].gpus"),
    ],
)
def test_malformed_document_is_reported_by_path(wrong, named):
    with pytest.raises(UsageError) as caught:
        read(**wrong)
    assert named in caught.value.message
    assert "\n" not in caught.value.message


def test_message_about_malformed_document_is_short():
    document: Any = [{"name": "x" * 10_000}] * 100
    with pytest.raises(UsageError) as caught:
        Machine.from_dict(document)
    assert "the document is [" in caught.value.message
    assert len(caught.value.message) < 1_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FULL, "index", "uuid"]), inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(list(FULL)), JSON))
def test_arbitrary_document_raises_only_usage_error(wrong):
    with suppress(UsageError):
        assert isinstance(read(**wrong), Machine)
