"""Arguments of the API are parsed, or refused in a sentence."""

from typing import Any

import pytest

from gpuinstall.api import Request, install, lock
from gpuinstall.base.errors import UsageError


def test_one_text_is_one_requirement():
    assert Request("torch") == Request(["torch"]) == Request()
    assert Request("numpy<2", constraints="six").constraints[0].line == "-c six"


WRONG: dict[str, dict[str, Any]] = {
    "requirements must be a string or a list of strings, not int": {"requirements": 3},
    "python must be a string, not float": {"python": 3.12},
    "backend must be a string, not list": {"backend": ["cpu"]},
    "gpus must be a string or a list of strings, not float": {"gpus": 0.5},
    "constraints must be a string or a list of strings, not dict": {"constraints": {}},
}


@pytest.mark.parametrize("message", WRONG)
def test_other_types_are_refused_in_a_sentence(message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        Request(**WRONG[message])


@pytest.mark.parametrize("call", [lock, install])
def test_a_python_by_path_must_exist(call, tmp_path):
    with pytest.raises(UsageError, match=r"^no such interpreter: \./none/python$"):
        call(tmp_path, Request(python="./none/python"))


def test_lock_creates_no_folder(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        lock(tmp_path / "gone", targets="cpu")
    with pytest.raises(TypeError, match=r"^targets must be a string or a list"):
        lock(tmp_path, targets=3)  # type: ignore[arg-type]
    assert [*tmp_path.iterdir()] == []
