from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuinstall.base.reporter import SilentReporter
from gpuinstall.sources import Sources
from gpuinstall.sources.sources import FolderSetting


class Listener(SilentReporter):
    """Keeps the notices, as a person's terminal or as a log."""

    def __init__(self, *, is_brief: bool):
        self.is_brief = is_brief
        self.notices: list[str] = []

    def notice(self, label: str, text: str):  # noqa: ARG002
        self.notices.append(text)


def setting(name: str, file: str = "pyproject.toml") -> FolderSetting:
    return FolderSetting("index", Path.cwd() / file, f"https://{name}.example/simple")


TWO = (setting("first"), setting("second", "requirements.txt"))
IN_FULL = [str(each) for each in TWO]
IN_SHORT = ["2 sources named by pyproject.toml and requirements.txt (-v lists them)"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "gpuinstall" / "sources.json"


def notices(*settings: FolderSetting, is_brief: bool = True) -> list[str]:
    listener = Listener(is_brief=is_brief)
    Sources().admit(settings, listener)
    return listener.notices


def test_sources_are_named_in_full_once_a_day(monkeypatch):
    assert [notices(*TWO), notices(*TWO)] == [IN_FULL, IN_SHORT]
    monkeypatch.setattr(time, "strftime", lambda _form: "2100-01-01")
    assert [notices(*TWO), notices(*TWO)] == [IN_FULL, IN_SHORT]


def test_what_is_new_or_has_changed_is_named_in_full():
    notices(*TWO)
    changed = {
        "a source more": (*TWO, setting("third")),
        "another file": (TWO[0], setting("second", "other.txt")),
        "another role": (TWO[0], TWO[1]._replace(role="a source of torch")),
    }
    for case, settings in changed.items():
        assert notices(*settings) == [str(each) for each in settings], case
    assert notices(*TWO) == IN_SHORT


def test_one_source_is_a_line_in_any_case():
    assert [notices(TWO[0]), notices(TWO[0])] == [IN_FULL[:1], IN_FULL[:1]]


def test_what_no_person_has_read_is_not_remembered(state):
    assert notices(*TWO, is_brief=False) == IN_FULL
    assert not state.exists()
    assert notices(*TWO) == IN_FULL
    assert notices(*TWO, is_brief=False) == IN_FULL


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"date": 1, "shown": 2}', '{"date": null, "shown": {}}']
)
def test_a_damaged_record_is_none(state, text):
    state.parent.mkdir()
    state.write_text(text.replace("null", f'"{time.strftime("%Y-%m-%d")}"'), encoding="utf-8")
    assert [notices(*TWO), notices(*TWO)] == [IN_FULL, IN_SHORT]


def test_sources_are_named_where_the_state_cannot_be_written(state):
    state.parent.write_text("a file", encoding="utf-8")
    assert [notices(*TWO), notices(*TWO)] == [IN_FULL, IN_FULL]
