"""Tests of the index pages that ``lock`` requests."""

import json
import threading
from contextlib import suppress

import pytest

from tests.lab.driver import A100, NO_GPU, FakeDriver
from tests.lab.index import SimulatedIndex
from tests.lab.projects import make_sdist
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop


def test_lock_requests_only_index_pages_it_needs(tmp_path):
    served = tmp_path / "served"
    catalog_index(served, ["2.14.1"], platforms=[LINUX], pythons=["3.12"])
    machine = ("--gpu", "RTX 5090", "--driver", "580.95.05", "--python", "3.12")
    with SimulatedIndex(served) as index:
        workshop = Workshop.made(tmp_path, index.environment())
        workshop.succeed("lock", "torch", *machine)
        pages = [request.path for request in index.torch.log]
    packages = [path.split("/")[2:4] for path in pages if path.count("/") == 4]
    assert {name for _, name in packages} == {"torch", "triton"}
    # These backends have no code for the GPU.
    assert {backend for backend, _ in packages}.isdisjoint({"cu124", "cu126"})


def test_lock_requests_first_pages_at_once(tmp_path):
    served = tmp_path / "served"
    catalog_index(served, ["2.14.1"], platforms=[LINUX], pythons=["3.12"])
    make_wheel(served / "simple", "painter", "1.0", requires=["torch"])
    first = {"/whl/cu126/", "/whl/cu126/torch/", "/simple/torch/", "/simple/painter/"}
    # Each of these responses waits until all pages have been requested.
    together = threading.Barrier(len(first))
    with SimulatedIndex(served) as index:
        for host in index.hosts:
            wait_for_others(host, first, together)
        workshop = Workshop.made(tmp_path, index.environment())
        workshop.succeed("lock", "painter", "--target", "cu126", "--python", "3.12")
    assert not together.broken


def wait_for_others(host, paths, together):
    respond = host.respond

    def wait(path, headers):
        if path in paths and headers["user-agent"].startswith("gpuinstall"):
            with suppress(threading.BrokenBarrierError):
                together.wait(5)
        return respond(path, headers)

    host.respond = wait


def test_upgrade_package_revalidates_only_its_pages(tmp_path):
    served = tmp_path / "served"
    catalog_index(served, ["2.14.1"], platforms=[LINUX], pythons=["3.12"])
    for name in ("painter", "brush"):
        make_wheel(served / "simple", name, "1.0")
    request = ("torch", "painter", "brush", "--target", "cu126", "--python", "3.12")
    with SimulatedIndex(served) as index:
        workshop = Workshop.made(tmp_path, index.environment())
        workshop.succeed("lock", *request)
        make_wheel(served / "simple", "painter", "2.0")
        index.forget()
        workshop.succeed("lock", *request, "--upgrade-package", "painter")
        log = [one for host in index.hosts for one in host.log]
    own = [one for one in log if one.headers["user-agent"].startswith("gpuinstall")]
    pages = {one.path for one in own if one.path.startswith("/simple")}
    assert pages == {"/simple/painter/"}
    lock = (workshop.folder / "pylock.cu126.toml").read_text()
    assert 'name = "painter"\nversion = "2.0"' in lock


def test_small_changes_request_no_torch_pages(workshop, stand_in, play):
    play(FakeDriver((A100,)))
    workshop.succeed("install", "torch", "--backend", "cu130")
    upgrade = "install --upgrade numpy"
    for command in ("install numpy", upgrade, "remove numpy", "install"):
        stand_in.forget()
        workshop.succeed(*command.split())
        log = (*stand_in.torch.log, *stand_in.r2.log)
        assert [request.path for request in log] == [], command


def test_new_package_is_on_index_of_kept_torch(workshop, stand_in, play):
    play(FakeDriver((A100,)))
    make_wheel(stand_in.folder / "whl" / "cu130", "painter", "1.0+cu130")
    make_wheel(stand_in.folder / "simple", "painter", "9.0")
    workshop.succeed("lock", "torch", "--backend", "cu130")
    workshop.succeed("lock", "torch", "painter", "--backend", "cu130")
    lock = workshop.lock("pylock.cu130.toml")
    assert "/whl/cu130/painter-1.0" in lock
    assert "painter-9.0" not in lock


@pytest.mark.parametrize("required", [[], ["torchao"], ["torchao>=0.2"]])
def test_build_reads_only_required_pages(workshop, stand_in, required):
    for name in ("torchao", "torchcodec", "xformers"):
        make_wheel(stand_in.folder / "whl" / "cpu", name, "0.2+cpu")
    simple = stand_in.folder / "simple"
    make_sdist(simple, "strange", "1.0", built_with=required, is_silent=True)
    workshop.succeed("lock", "strange", "--target", "cpu")
    pages = {request.path.split("/")[3] for request in stand_in.torch.log}
    assert pages - {"torch", "triton", ""} == {one.split(">")[0] for one in required}


def test_uv_downloads_files_with_a_hash(workshop, stand_in, play):
    play(NO_GPU)
    done = workshop.run("install", "torch", "--json-events")
    assert done.ok
    files = [one for one in stand_in.log if one.path.endswith(".whl")]
    whole = [one for one in files if one.method == "GET" and not one.range]
    agents = {one.path: one.headers["user-agent"].split("/")[0] for one in whole}
    assert len(agents) == len(whole) > 1
    # Only PyTorch's index lists files without a hash.
    for path, agent in agents.items():
        assert agent == ("gpuinstall" if path.startswith("/whl/") else "uv")
    events = map(json.loads, done.out.splitlines())
    ends = [one for one in events if one.get("label") == "Download"]
    assert all(one["done"] == one["size"] for one in ends[-1:])
    # A file by path would be in the output of pip freeze.
    assert not list(workshop.folder.glob(".venv/lib/*/*/torch-*/direct_url.json"))


LARGE = {"requests", "urllib3", "ssl", "tqdm"}
"""The largest packages for requests and progress."""


def test_changes_without_requests_import_no_large_packages(workshop, play):
    play(NO_GPU)
    workshop.succeed("install", "torch", "cowsay", "--backend", "cpu")
    tracing = workshop.having(PYTHONPROFILEIMPORTTIME="1")
    for words in (("install", "cowsay"), ("remove", "cowsay")):
        done = tracing.started(*words)
        assert done.ok, done.err
        lines = done.err.splitlines()
        names = {line.rpartition("|")[2].strip() for line in lines if "|" in line}
        assert {"click", "msgspec"} <= names
        assert names & LARGE == set(), words
