import pytest
import tomli
import tomli_w

from gpuinstall.base.codec import MalformedError
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.lock.file.lock import Record, parse, sealed

REQUEST = Request(
    ("torch >=2", "NumPy"), constraints=("rich<15",), preferred=("numpy==2.3.4",)
)


def test_a_record_is_read_as_it_was_written():
    record = replace(
        Record.of(REQUEST),
        floors={"driver": "525.60.13"},
        requirements_files={"requirements.txt": ("torch>=2", "-c rich<15")},
        request_revision=2,
    )
    written = tomli.loads(tomli_w.dumps(record.to_table()))
    assert Record.read(written) == record
    assert record.inputs == ("torch>=2", "numpy")
    assert record.to_table().keys() == {
        "inputs",
        "constraints",
        "preferred-digest",
        "floors",
        "request-revision",
        "requirements-files",
    }


@pytest.mark.parametrize(
    ("request_now", "changes"),
    [
        (replace(REQUEST, requirements=("numpy", "Torch>=2")), []),
        (replace(REQUEST, requirements=("torch>=2", "rich")), ["+ rich", "- numpy"]),
        (replace(REQUEST, constraints=()), ["- -c rich<15"]),
        (
            replace(REQUEST, sources=("--index-url https://index.example/",)),
            ["+ --index-url https://index.example/"],
        ),
        (
            replace(REQUEST, sources=("--hash of 2 files: 0",)),
            ["other hashes of files"],
        ),
        (replace(REQUEST, preferred=()), ["other versions in the project's own lock"]),
        (
            replace(REQUEST, preferred=(), sources=("--hash of 2 files: 0",)),
            ["other versions in the project's own lock"],
        ),
    ],
)
def test_what_changed_of_a_request_is_named(request_now, changes):
    assert Record.of(REQUEST).changes(Record.of(request_now)) == changes


def test_a_lock_of_another_program_is_made_from_nothing_else():
    assert Record().changes(Record.of(REQUEST)) == []


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"inputs": "torch"}, MalformedError),
        ({"inputs": ["torch=="]}, UsageError),
        ({"relaxed": {"torch": 5}}, MalformedError),
        ({"requirements-files": {"a": "torch"}}, MalformedError),
    ],
)
def test_a_record_of_another_form_is_none(table, error):
    with pytest.raises(error):
        Record.read(table)
    document = sealed(
        {"lock-version": "1.0", "packages": [], "tool": {"gpuinstall": table}}
    )
    with pytest.raises(LockError) as raised:
        parse(
            "pylock.cpu.toml", tomli_w.dumps({"created-by": "gpuinstall", **document})
        )
    assert raised.value.code == "lock-malformed"
