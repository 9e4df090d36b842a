"""Tests of the index pages that ``lock`` requests."""

import json
import threading
from contextlib import suppress

from tests.lab.driver import NO_GPU
from tests.lab.index import SimulatedIndex
from tests.lab.releases import LINUX, catalog_index
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop


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
