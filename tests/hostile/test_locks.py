"""Locks that were tampered with: ``--check`` sees each kind, and ``sync`` takes none that harms."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
import tomli
import tomli_w

from gpuinstall.base.errors import LockError
from gpuinstall.base.request import Request
from gpuinstall.lock.file.check import check_locks
from gpuinstall.lock.file.lock import sealed
from tests.frozen import frozen_catalog
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.shared import once
from tests.lab.workshop import Workshop

Document = dict[str, Any]

EVIL = "https://evil.example"
OTHER = "f" * 64


class Tampering(NamedTuple):
    """A change; ``refused`` says that sync refuses it although the seal is made anew."""

    change: Callable[[Document], object]
    refused: bool = False


def tampered(document, name, *, seal=False):
    """A copy of a lock, changed; with ``seal`` by somebody who knows how ours are sealed, where it is one still."""
    changed = deepcopy(document)
    KINDS[name].change(changed)
    return sealed(changed) if seal and "tool" in changed else changed


def package(document, name):
    return next(each for each in document["packages"] if each["name"] == name)


def wheel(document, name):
    found: Document = package(document, name)["wheels"][0]
    return found


def own(document):
    found: Document = document["tool"]["gpuinstall"]
    return found


def elsewhere(document, name, host=EVIL):
    entry = wheel(document, name)
    entry["url"] = f"{host}/{entry['url'].rpartition('/')[2]}"


def add(document, name, **entry):
    document["packages"].append({"name": name, "version": "1.0", **entry})


def file_of(name, version="1.0", host=EVIL):
    module = name.replace("-", "_")
    return {
        "url": f"{host}/{module}-{version}-py3-none-any.whl",
        "hashes": {"sha256": OTHER},
    }


def without(document, name):
    document["packages"].remove(package(document, name))


def as_if_meant(document, name):
    """Take a package from a repository, and say that somebody asked for that."""
    found = package(document, name)
    del found["wheels"]
    found["vcs"] = VCS
    own(document).update(unhashed=[name])


def older(document, name, version):
    found = package(document, name)
    entry = wheel(document, name)
    entry["url"] = entry["url"].replace(f"-{found['version']}-", f"-{version}-")
    entry["hashes"]["sha256"] = OTHER
    found["version"] = version


SOURCE = {"url": f"{EVIL}/torchtriton-1.0.tar.gz", "hashes": {"sha256": OTHER}}
VCS = {"type": "git", "url": f"{EVIL}/x.git", "commit-id": "a" * 40}
NEVER = "python_full_version < '3'"

KINDS = {
    "another host for numpy, the same hash": Tampering(
        lambda d: elsewhere(d, "numpy"), refused=True
    ),
    "another host by http": Tampering(
        lambda d: elsewhere(d, "filelock", "http://evil.example"), refused=True
    ),
    "PyTorch's own host by http": Tampering(
        lambda d: elsewhere(d, "torch", "http://download.pytorch.org/whl/cu126"),
        refused=True,
    ),
    "a file of this machine": Tampering(lambda d: elsewhere(d, "numpy", "file:///tmp")),
    "credentials in an address": Tampering(
        lambda d: wheel(d, "numpy").update(
            url=wheel(d, "numpy")["url"].replace("//", "//me:secret@")
        ),
        refused=True,
    ),
    "another hash": Tampering(
        lambda d: wheel(d, "numpy")["hashes"].update(sha256=OTHER), refused=True
    ),
    "a sha256 that is none": Tampering(
        lambda d: wheel(d, "numpy").update(hashes={"sha256": "x"}), refused=True
    ),
    "a package that no input leads to": Tampering(
        lambda d: add(d, "evil", wheels=[file_of("evil")]), refused=True
    ),
    "a package of a source archive": Tampering(lambda d: add(d, "evil", sdist=SOURCE)),
    "a package of a repository": Tampering(
        lambda d: add(d, "evil", vcs=VCS), refused=True
    ),
    "one of PyTorch's as a wheel": Tampering(
        lambda d: add(d, "torchtriton", wheels=[file_of("torchtriton")]), refused=True
    ),
    "torch of a repository, as if meant": Tampering(
        lambda d: as_if_meant(d, "torch"), refused=True
    ),
    "numpy of a repository, as if meant": Tampering(lambda d: as_if_meant(d, "numpy")),
    "a downgrade to what is nowhere": Tampering(
        lambda d: older(d, "numpy", "1.0"), refused=True
    ),
    "a version that its wheel is not of": Tampering(
        lambda d: package(d, "numpy").update(version="9.9"), refused=True
    ),
    "a second wheel": Tampering(
        lambda d: package(d, "numpy")["wheels"].append(file_of("numpy", "2.3.4"))
    ),
    "no wheel": Tampering(lambda d: package(d, "numpy").pop("wheels"), refused=True),
    "a package less": Tampering(lambda d: without(d, "filelock")),
    "a marker that is never true": Tampering(
        lambda d: package(d, "numpy").update(marker=NEVER), refused=True
    ),
    "requires-python widened": Tampering(
        lambda d: d.update({"requires-python": ">=3.8"})
    ),
    "environments widened": Tampering(
        lambda d: d.update(environments=["sys_platform != 'x'"])
    ),
    "floors changed": Tampering(lambda d: own(d).update(floors={"driver": "1.0"})),
    "backend changed": Tampering(lambda d: own(d).update(backend="cu130")),
    "inputs and their digest changed": Tampering(
        lambda d: own(d).update({"inputs": ["torch"], "inputs-digest": "0" * 64})
    ),
    "architectures changed": Tampering(
        lambda d: own(d).update(architectures=["sm_61"])
    ),
    "the evidence removed": Tampering(lambda d: d.pop("tool")),
    "the seal removed": Tampering(lambda d: own(d).pop("contents-digest")),
    "a version of the format to come": Tampering(
        lambda d: d.update({"lock-version": "9.0"}), refused=True
    ),
}


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
        with StandInIndex(catalog_wheels) as index:
            made = Workshop.made(folder, index.environment())
            made.document("lock", "torch==2.14.1", "numpy", "--target", "cu126")

    return tomli.loads(
        (once(tmp_path_factory, "tampered", make) / "project" / LOCK).read_text("utf-8")
    )


def reasons(folder, document):
    """What ``--check`` says of a lock without a network; the code of the error where it cannot even be read."""
    (folder / LOCK).write_text(tomli_w.dumps(document), "utf-8")
    try:
        checked = check_locks(
            folder,
            Request(("torch==2.14.1", "numpy")),
            frozen_catalog(),
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
def test_sync_takes_nothing_that_harms_of_a_lock_sealed_anew(here, play, name):
    play(A100)
    kind, path = KINDS[name], here.folder / LOCK
    original = tomli.loads(here.lock(LOCK))
    path.write_text(tomli_w.dumps(tampered(original, name, seal=True)), "utf-8")
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
        tomli_w.dumps(tampered(original, "another host by http", seal=True)), "utf-8"
    )
    done = here.document("sync", "--target", "cu126", "--venv", ".other", exit_code=6)
    assert done["errors"][0]["code"] == "lock-source"
    assert "evil.example" in done["errors"][0]["message"]
    assert not (here.folder / ".other").exists()
