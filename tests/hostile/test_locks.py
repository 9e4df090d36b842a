"""Tests that ``lock check`` and ``sync`` reject modified lock files."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import tomli
import tomli_w

from gpuinstall.base.errors import LockError
from gpuinstall.base.request import Request
from gpuinstall.lock.check import CheckedProject, check_locks
from gpuinstall.lock.file.folder import read_folder_locks
from gpuinstall.lock.file.lock import add_seal
from tests.frozen import frozen_catalog
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import SimulatedIndex
from tests.lab.shared import once
from tests.lab.workshop import Workshop

Document = dict[str, Any]

EVIL = "https://evil.example"
OTHER = "f" * 64


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


def file_of(name, version="1.0"):
    module = name.replace("-", "_")
    return {
        "url": f"{EVIL}/{module}-{version}-py3-none-any.whl",
        "hashes": {"sha256": OTHER},
    }


def without(document, name):
    document["packages"].remove(package(document, name))


def as_if_meant(document, name):
    """Change a locked package's source to a Git repository."""
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

REFUSED_BY_SYNC = {
    "another host for numpy, the same hash": lambda d: elsewhere(d, "numpy"),
    "another host by http": lambda d: elsewhere(d, "filelock", "http://evil.example"),
    "PyTorch's own host by http": lambda d: elsewhere(
        d, "torch", "http://download.pytorch.org/whl/cu126"
    ),
    "another hash": lambda d: wheel(d, "numpy")["hashes"].update(sha256=OTHER),
    "a package that no input leads to": lambda d: add(
        d, "evil", wheels=[file_of("evil")]
    ),
    "a package of a repository": lambda d: add(d, "evil", vcs=VCS),
    "one of PyTorch's as a wheel": lambda d: add(
        d, "torchtriton", wheels=[file_of("torchtriton")]
    ),
    "a downgrade to what is nowhere": lambda d: older(d, "numpy", "1.0"),
}
"""Changes that only a page or a file reveals if the digest is valid."""
REFUSED = {
    "credentials in an address": lambda d: wheel(d, "numpy").update(
        url=wheel(d, "numpy")["url"].replace("//", "//me:secret@")
    ),
    "a sha256 that is none": lambda d: wheel(d, "numpy").update(hashes={"sha256": "x"}),
    "torch of a repository, as if meant": lambda d: as_if_meant(d, "torch"),
    "a version that its wheel is not of": lambda d: package(d, "numpy").update(
        version="9.9"
    ),
    "no wheel": lambda d: package(d, "numpy").pop("wheels"),
    "a marker that is never true": lambda d: package(d, "numpy").update(marker=NEVER),
    "a version of the format to come": lambda d: d.update({"lock-version": "9.0"}),
}
"""Changes that are rejected even with a valid digest."""
TAKEN = {
    "a file of this machine": lambda d: elsewhere(d, "numpy", "file:///tmp"),
    "a package of a source archive": lambda d: add(d, "evil", sdist=SOURCE),
    "numpy of a repository, as if meant": lambda d: as_if_meant(d, "numpy"),
    "a second wheel": lambda d: package(d, "numpy")["wheels"].append(
        file_of("numpy", "2.3.4")
    ),
    "a package less": lambda d: without(d, "filelock"),
    "requires-python widened": lambda d: d.update({"requires-python": ">=3.8"}),
    "environments widened": lambda d: d.update(environments=["sys_platform != 'x'"]),
    "floors changed": lambda d: own(d).update(floors={"driver": "1.0"}),
    "backend changed": lambda d: own(d).update(backend="cu130"),
    "inputs and their digest changed": lambda d: own(d).update(
        {"inputs": ["torch"], "inputs-digest": "0" * 64}
    ),
    "architectures changed": lambda d: own(d).update(architectures=["sm_61"]),
    "the evidence removed": lambda d: d.pop("tool"),
    "the seal removed": lambda d: own(d).pop("contents-digest"),
}
"""Harmless changes to a lock file, and changes with another error."""
KINDS: dict[str, Callable[[Document], object]] = REFUSED_BY_SYNC | REFUSED | TAKEN


LOCK = "pylock.cu126.toml"


@pytest.fixture(scope="session")
def document(catalog_wheels, tmp_path_factory):
    def make(folder):
        with SimulatedIndex(catalog_wheels) as index:
            made = Workshop.made(folder, index.environment())
            made.document("lock", "torch==2.14.1", "numpy", "--target", "cu126")

    return tomli.loads(
        (once(tmp_path_factory, "tampered", make) / "project" / LOCK).read_text("utf-8")
    )


def reasons(folder, document):
    """Return the findings of an offline ``lock check``, or its error code."""
    (folder / LOCK).write_text(tomli_w.dumps(document), "utf-8")
    try:
        checked = check_locks(
            read_folder_locks(folder),
            CheckedProject(
                Request(("torch==2.14.1", "numpy")),
                frozen_catalog(),
                for_lock=lambda wanted: wanted.request,
            ),
            targets=(),
            session=None,
        )
    except LockError as error:
        return [error.code]
    return [reason.code for each in checked for reason in each.reasons]


def test_new_lock_is_up_to_date(document, tmp_path):
    assert reasons(tmp_path, document) == []


@pytest.mark.parametrize("name", KINDS)
def test_check_detects_a_modified_lock(document, tmp_path, name):
    changed = deepcopy(document)
    KINDS[name](changed)
    if name in REFUSED:
        changed = add_seal(changed)
    assert reasons(tmp_path, changed)


def test_renamed_torch_archive_in_lock_is_rejected(document, tmp_path):
    changed = deepcopy(document)
    hashes = {"sha256": OTHER}
    add(changed, "x", archive={"path": "torch-2.14.1.tar.gz", "hashes": hashes})
    assert "wrong-source" in reasons(tmp_path, add_seal(changed))


@pytest.mark.heavy
@pytest.mark.parametrize("name", REFUSED_BY_SYNC)
def test_sync_rejects_tampered_locks_with_valid_digest(workshop, play, name):
    play(FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0"),)))
    workshop.document("lock", "torch==2.14.1", "numpy", "--target", "cu126")
    changed = tomli.loads(workshop.lock(LOCK))
    REFUSED_BY_SYNC[name](changed)
    workshop.write(LOCK, tomli_w.dumps(add_seal(changed)))
    done = workshop.run("sync", "--target", "cu126")
    assert done.status in {4, 6}, done.err
    assert not (workshop.folder / ".venv").exists()
