"""Locks that were tampered with: ``--check`` sees each kind, and ``sync`` takes none that harms."""

import pytest
import tomli
import tomli_w

from gpuinstall.base.errors import LockError
from gpuinstall.base.request import Request
from gpuinstall.lock.check import DeclaredUse, check_locks
from tests.frozen import frozen_catalog
from tests.hostile.locks import KINDS, tampered
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.shared import once
from tests.lab.workshop import Workshop

LOCK = "pylock.cu126.toml"
A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0"),))
QUICK = {"another host for numpy, the same hash", "one of PyTorch's as a wheel"}


@pytest.fixture
def here(workshop):
    workshop.document("lock", "torch==2.14.1", "numpy", "--target", "cu126")
    return workshop


@pytest.fixture(scope="session")
def document(catalog_wheels, tmp_path_factory):
    def make(folder):
        (folder / "project").mkdir(parents=True)
        with StandInIndex(catalog_wheels) as index:
            made = Workshop(folder / "project", folder / "caches", index.environment())
            made.document("lock", "torch==2.14.1", "numpy", "--target", "cu126")

    return tomli.loads(
        (once(tmp_path_factory, "tampered", make) / "project" / LOCK).read_text("utf-8")
    )


def reasons(folder, document):
    """What ``--check`` says of a lock without a network; the code of the error where it cannot even be read."""
    (folder / LOCK).write_text(tomli_w.dumps(document), encoding="utf-8")
    try:
        checked = check_locks(
            folder, Request(("torch==2.14.1", "numpy")), frozen_catalog(), DeclaredUse(), None
        )
    except LockError as error:
        return [error.code]
    return [reason.code for each in checked for reason in each.reasons]


def test_a_lock_as_it_was_made_is_fresh(document, tmp_path):
    assert reasons(tmp_path, document) == []


@pytest.mark.parametrize("name", KINDS)
def test_check_sees_a_lock_that_was_tampered_with(document, tmp_path, name):
    assert reasons(tmp_path, tampered(document, name))


@pytest.mark.parametrize("name", mostly_heavy(KINDS, QUICK))
def test_a_lock_sealed_anew_is_seen_by_what_the_sources_hold_and_sync_takes_nothing_that_harms(
    here, play, name
):
    play(A100)
    kind, path = KINDS[name], here.folder / LOCK
    original = tomli.loads(here.lock(LOCK))
    here.document("lock", "check")
    if kind.sealed_too:
        path.write_text(tomli_w.dumps(tampered(original, name, seal=True)), encoding="utf-8")
        here.document("lock", "check", exit_code=6)
    path.write_text(tomli_w.dumps(tampered(original, name, seal=True)), encoding="utf-8")
    done = here.run("sync", "--target", "cu126")
    assert "Traceback" not in done.err
    assert done.status in ({4, 6} if kind.refused else {0, 2, 3, 4, 6}), done.err
    assert (here.folder / ".venv").exists() == (done.status == 0)


@pytest.mark.heavy
def test_sync_judges_the_source_of_a_file_that_its_cache_holds_too(here, play):
    play(A100)
    here.document("sync", "--target", "cu126")
    path, original = here.folder / LOCK, tomli.loads(here.lock(LOCK))
    path.write_text(
        tomli_w.dumps(tampered(original, "another host by http", seal=True)), encoding="utf-8"
    )
    done = here.document("sync", "--target", "cu126", "--venv", ".other", exit_code=6)
    assert done["errors"][0]["code"] == "lock-source"
    assert "evil.example" in done["errors"][0]["message"]
    assert not (here.folder / ".other").exists()
