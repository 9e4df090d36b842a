"""A new maker's builds are locked, checked, covered and exported by its entry in the registry alone."""

from dataclasses import replace

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Rejection
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.request import Request
from gpuinstall.export.formats import requirements
from gpuinstall.export.pins import backend_of
from gpuinstall.lock.check import stale_offline
from gpuinstall.lock.cover import cover
from gpuinstall.lock.fit import Fit, best, fit
from gpuinstall.lock.request import LockRequest, machine_for_target
from gpuinstall.lock.target import Target
from gpuinstall.lock.write import LockOptions, write_locks
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel
from tests.unit.machine.acme import acme_catalog, acme_machine, register_acme

REQUEST = Request(python="3.12")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    register_acme(monkeypatch)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Locks for Acme's target and for the CPU, made by uv of an index that has both."""
    for tag in ("acme1", "cpu"):
        folder = tmp_path / "index" / "whl" / tag
        make_wheel(folder, "torch", f"2.10.0+{tag}", "cp312-cp312-manylinux_2_28_x86_64")
    (tmp_path / "index" / "simple").mkdir()
    with StandInIndex(tmp_path / "index") as index:
        variables = {"UV_CACHE_DIR": str(tmp_path / "uv"), "XDG_CACHE_HOME": str(tmp_path / "ours")}
        for name, value in {**index.environment(), **variables}.items():
            monkeypatch.setenv(name, value)
        catalog = replace(acme_catalog(), torch_index=index.torch_index)
        asked = tuple(
            LockRequest.for_target(Target.parse(text), REQUEST, catalog)
            for text in ("acme1", "cpu")
        )
        with open_session(
            read_sources(index.torch_index, index.environment(), tmp_path), SilentReporter()
        ) as session:
            return [written.lock for written in write_locks(LockOptions(tmp_path, asked), session)]


def test_its_lock_is_made_of_its_own_index_and_says_what_code_it_has(made):
    lock, cpu = made

    assert [one.name for one in made] == ["pylock.acme1.toml", "pylock.cpu.toml"]
    assert lock.versions["torch"] == "2.10.0+acme1"
    assert "/whl/acme1/" in lock.files[0].url
    assert lock.files[0].sha256
    assert lock.record.architectures == ("anvil3",)
    assert lock.record.floors == {"glibc": "2.28"} == cpu.record.floors


def test_each_machine_takes_the_lock_that_runs_there(made):
    catalog = acme_catalog()

    def taken(*architectures):
        here = acme_machine(*architectures)
        found = best([fit(lock, here, REQUEST, catalog) for lock in made], here, REQUEST, catalog)
        return found.lock.target if found else None

    assert (taken("anvil3"), taken()) == ("acme1", "cpu")
    assert isinstance(fit(made[0], acme_machine("anvil3", "anvil1"), REQUEST, catalog), Fit)
    assert isinstance(fit(made[0], acme_machine("anvil1"), REQUEST, catalog), Rejection)
    here = fit(made[0], machine_for_target(Target("cpu")), REQUEST, catalog)
    assert isinstance(here, Rejection)
    assert here.reason.message == "it is for Acme GPUs (acme1), but this machine has none"


def test_its_lock_is_fresh_and_exported_like_any_other(made):
    assert stale_offline(made[0], REQUEST, acme_catalog(), [acme_machine("anvil3")]) == []
    assert backend_of(made[0]).tag == "acme1"
    assert "torch @ http" in requirements([made[0]])


def test_its_machines_are_covered_by_its_target():
    found = cover([LockRequest(acme_machine("anvil3"), REQUEST, acme_catalog())] * 2)

    assert [target.filename for target in found] == ["pylock.acme1.toml"]


def test_its_target_is_none_where_it_is_not_registered(monkeypatch):
    assert Target.parse("acme1-linux-aarch64").backend == "acme1"
    monkeypatch.undo()

    with pytest.raises(UsageError, match="'acme1' is not a target"):
        Target.parse("acme1")
