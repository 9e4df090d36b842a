import pytest
import tomli
import tomli_w

from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.lock.file.fetch import Hashes
from gpuinstall.lock.file.lock import Record, parse, unknown_hash
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.file.write import document, record_of
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.uv.resolution import Resolution
from gpuinstall.machine.words import machine_in_words
from tests.frozen import frozen_catalog

HASH = "1" * 64
NUMPY = "https://index.example/numpy-2.3.4-cp312-cp312-manylinux_2_28_x86_64.whl"
TORCH = "https://index.example/whl/cu126/torch-2.14.1%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl"
RECORD = Record(("torch",), torch="2.14.1", backend="cu126", catalogue="2026-11-20")


def resolved():
    text = f"""
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "numpy"
version = "2.3.4"
sdist = {{ url = "https://index.example/numpy-2.3.4.tar.gz", hashes = {{ sha256 = "{HASH}" }} }}
wheels = [{{ url = "{NUMPY}", upload-time = 2026-11-17T06:35:24Z, size = 5, hashes = {{ sha256 = "{HASH}" }} }}]
[[packages]]
name = "torch"
version = "2.14.1+cu126"
wheels = [{{ url = "{TORCH}", hashes = {{ sha256 = "{unknown_hash(TORCH)}" }} }}]
"""
    return tomli.loads(text)


def test_the_lock_says_in_the_standards_own_fields_what_it_is_for():
    built = document(
        resolved()["packages"],
        {NUMPY: HASH, TORCH: "2" * 64},
        Target("cu126"),
        "3.12",
        RECORD,
    )
    assert built["requires-python"] == "==3.12.*"
    assert built["environments"] == [Target("cu126").marker]
    assert built["created-by"] == "gpuinstall"
    lock = parse("pylock.cu126.toml", tomli_w.dumps(built))
    assert lock.python == "3.12"
    assert lock.versions == {"numpy": "2.3.4", "torch": "2.14.1+cu126"}
    assert replace(lock.record, contents_digest="") == RECORD


def test_a_lock_has_wheels_alone_with_hashes_and_no_time():
    text = tomli_w.dumps(
        document(
            resolved()["packages"],
            {NUMPY: HASH, TORCH: "2" * 64},
            Target("cu126"),
            "3.12",
            RECORD,
        )
    )
    assert "tar.gz" not in text
    assert "upload-time" not in text
    assert not text.startswith("#")
    assert text.count("hashes") == 2
    assert unknown_hash(TORCH) not in text


def test_a_source_distribution_stays_where_there_is_no_wheel():
    one = resolved()
    del one["packages"][0]["wheels"]
    built = document(
        one["packages"],
        {"https://index.example/numpy-2.3.4.tar.gz": HASH, TORCH: HASH},
        Target("cu126"),
        "3.12",
        RECORD,
    )
    assert built["packages"][0]["sdist"]["url"].endswith("numpy-2.3.4.tar.gz")


def test_the_same_inputs_are_the_same_bytes():
    hashes = {NUMPY: HASH, TORCH: HASH}
    one, other = (
        document(resolved()["packages"], hashes, Target("cu126"), "3.12", RECORD)
        for _ in range(2)
    )
    assert tomli_w.dumps(one) == tomli_w.dumps(other)


def test_a_file_without_a_hash_is_never_written():
    with pytest.raises(KeyError):
        document(resolved()["packages"], {NUMPY: HASH}, Target("cu126"), "3.12", RECORD)


def test_a_record_says_what_was_requested_and_the_floors():
    catalog, machine = (
        frozen_catalog(),
        machine_in_words(("RTX 4090",), "535.183.01", None, None),
    )

    def record(request):
        wanted = LockRequest(machine, request, catalog)
        made = Resolution(wanted, wanted.plan, Target("cu126"), [], Hashes({}, {}), {})
        return record_of(made)

    named = record(Request(("torch==2.14.1",), backend="cu126"))
    assert (named.asked, named.torch, named.inputs) == (
        "cu126",
        "2.14.1",
        ("torch==2.14.1",),
    )
    assert "sm_80" in named.architectures
    assert named.floors.keys() == {"driver"}
    assert "asked" not in record(Request()).to_table()
