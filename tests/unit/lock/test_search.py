"""The search for versions, as far as no uv runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.lock import search
from gpuinstall.lock.code_check import Exclusion
from gpuinstall.lock.search import SearchState, search_locks
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.sources.session import Session

CONFLICT = Conflict(NoBuildError("requirements-conflict", "they conflict"))
NO_CODE = Exclusion(
    "kernels", "other-build-for-code", "kernels 2.0 has no code for V100", "kernels>=2.0"
)


def test_a_search_beyond_its_budget_ends_with_what_it_knows(
    monkeypatch,
):
    session = cast("Session", SimpleNamespace(uv_runs=["pip compile"], reporter=SilentReporter()))
    states = {
        "they conflict": SearchState((), rejection=CONFLICT),
        "kernels 2.0 has no code for V100": SearchState(
            (), exclusions=(NO_CODE,), rejection=CONFLICT
        ),
        "no versions that go together were found in 64 runs of uv for each target": SearchState(()),
    }
    wrong = {}
    for message, state in states.items():
        monkeypatch.setattr(
            search, "_start", lambda _requests, session, state=state: _spending(session, state)
        )
        ended = search_locks((), session)
        if not isinstance(ended, Conflict) or ended.error.message != message:
            wrong[message] = ended
    assert wrong == {}


def test_a_search_beyond_its_time_says_what_it_found(monkeypatch):
    session = cast("Session", SimpleNamespace(uv_runs=[], reporter=SilentReporter()))
    state = SearchState((), exclusions=(NO_CODE,), rejection=CONFLICT)
    monkeypatch.setattr(search, "_start", lambda _requests, _session: state)
    monkeypatch.setattr(search, "SEARCH_S", -1)
    ended = search_locks((), session)
    assert isinstance(ended, Conflict)
    assert ended.error.message == "kernels 2.0 has no code for V100"
    assert ended.why == (
        "no older version that was tried is known to run here either, and the search ended after -1 s"
    )


def _spending(session: Session, state: SearchState) -> SearchState:
    session.uv_runs.append("pip compile")
    return state
