from typing import Any

import pytest
import tomli_w

from gpuinstall.base.errors import LockError
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.lock.file.lock import Record, parse

REQUEST = Request(
    ("torch >=2", "NumPy"), constraints=("rich<15",), preferred=("numpy==2.3.4",)
)


def read(table):
    """The record of a lock with a table of ours."""
    head = {"lock-version": "1.0", "created-by": "gpuinstall", "packages": []}
    text = tomli_w.dumps({**head, "tool": {"gpuinstall": table}})
    return parse("pylock.cpu.toml", text).record


def test_a_record_is_read_as_it_was_written():
    record = replace(
        Record.of(REQUEST),
        floors={"driver": "525.60.13"},
        requirements_files={"requirements.txt": ("torch>=2", "-c rich<15")},
        request_revision=2,
    )
    assert read(record.to_table()) == record
    assert record.inputs == ("torch>=2", "numpy")
    assert record.to_table().keys() == {
        "inputs",
        "constraints",
        "preferred-digest",
        "floors",
        "request-revision",
        "requirements-files",
    }


def test_what_changed_of_a_request_is_named():
    other_hashes = ("--hash of 2 files: 0",)
    other_versions = ["other versions in the project's own lock"]
    rows: tuple[Any, ...] = (
        ({"requirements": ("numpy", "Torch>=2")}, []),
        ({"requirements": ("torch>=2", "rich")}, ["+ rich", "- numpy"]),
        ({"constraints": ()}, ["- -c rich<15"]),
        ({"sources": ("--index-url https://a/",)}, ["+ --index-url https://a/"]),
        ({"sources": other_hashes}, ["other hashes of files"]),
        ({"preferred": ()}, other_versions),
        ({"preferred": (), "sources": other_hashes}, other_versions),
    )
    wrong = []
    for change, expected in rows:
        now = Record.of(replace(REQUEST, **change))
        changes = Record.of(REQUEST).changes(now)
        if changes != expected:
            wrong.append((change, changes))
    assert wrong == []


def test_a_lock_of_another_program_is_made_from_nothing_else():
    assert Record().changes(Record.of(REQUEST)) == []


@pytest.mark.parametrize(
    "table",
    [
        {"inputs": "torch"},
        {"inputs": ["torch=="]},
        {"relaxed": {"torch": 5}},
        {"requirements-files": {"a": "torch"}},
    ],
)
def test_a_lock_with_a_record_of_another_form_is_malformed(table):
    with pytest.raises(LockError) as raised:
        read(table)
    assert raised.value.code == "lock-malformed"
