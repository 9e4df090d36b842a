"""Tests of installations with uv, HTTP, and a compiled fake driver."""

import json
import os
import signal
import socket
import sys
import time
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.driver import RTX_4090
from tests.lab.host import Answer, Host
from tests.lab.pace import within


def leftovers(workshop):
    """Return the files left by a finished run."""
    work = workshop.folder / ".venv.gpuinstall"
    expected = {"last", "lock", ".gitignore"}
    return (
        {entry.name for entry in work.iterdir()} - expected if work.exists() else set()
    )


@pytest.mark.heavy
def test_orphaned_uv_process_does_not_affect_next_install(workshop, play):
    play(RTX_4090)
    running = workshop.start("install", "torch==2.13.0")
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while not (
        filling := [
            child
            for child in map(int, children.read_text().split())
            if fills_an_environment(child)
        ]
    ):
        assert running.poll() is None, running.communicate()
    os.kill(filling[0], signal.SIGSTOP)
    running.kill()
    running.communicate()
    workshop.document("install", "torch==2.14.1")
    os.kill(filling[0], signal.SIGCONT)
    while Path(f"/proc/{filling[0]}/exe").exists():
        time.sleep(0.01)
    found = sorted(
        path.name
        for path in (workshop.folder / ".venv").glob("lib/*/site-packages/torch-*")
    )
    assert found == ["torch-2.14.1+cu126.dist-info"]


def fills_an_environment(child):
    """Return whether a process is uv installing into a staged environment."""
    try:
        words = Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False
    return b"\0pip\0" in words and b".venv.gpuinstall/staging-" in words


@pytest.mark.skipif(sys.platform == "win32", reason="Windows lacks these signals")
@pytest.mark.parametrize(
    "name", mostly_heavy(["SIGINT", "SIGTERM", "SIGHUP"], ["SIGINT"])
)
def test_interrupted_install_leaves_no_files(workshop, stand_in, play, name):
    play(RTX_4090)
    stand_in.r2.pace = 2.0
    running = workshop.start("install")
    while not any(
        asked.path.endswith(".whl") and asked.method == "GET" for asked in stand_in.log
    ):
        time.sleep(0.05)
    running.send_signal(signal.Signals[name])
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130, said
    assert workshop.entries() == set()


@pytest.fixture
def dropping():
    """Serve a host on which every connection hangs."""
    with (
        closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as full,
        ExitStack() as waiting,
    ):
        for _ in range(4):
            one = waiting.enter_context(closing(socket.socket()))
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"


@pytest.mark.heavy
def test_interrupt_does_not_wait_for_a_hanging_host(workshop, play, dropping):
    play(RTX_4090)
    deaf = workshop.having(GPUINSTALL_TORCH_INDEX=f"{dropping}/whl")
    running = deaf.start("install", "--json")
    assert running.stderr is not None
    while "Preflight" not in running.stderr.readline():
        pass
    time.sleep(0.3)
    with within(2):
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=300)
    assert running.returncode == json.loads(out)["exit_code"] == 130
    assert workshop.entries() == set()


@pytest.mark.parametrize(
    ("host", "silent"),
    [
        ("http://127.0.0.1:9", ("UV_DEFAULT_INDEX", "GPUINSTALL_TORCH_INDEX")),
        pytest.param(
            "http://nowhere.invalid", ("UV_DEFAULT_INDEX",), marks=pytest.mark.heavy
        ),
        pytest.param("dropping", ("UV_DEFAULT_INDEX",), marks=pytest.mark.heavy),
    ],
)
def test_unreachable_default_index_is_reported_once(
    workshop, play, dropping, host, silent
):
    play(RTX_4090)
    address = dropping if host == "dropping" else host
    deaf = workshop.having(**dict.fromkeys(silent, f"{address}/simple"))
    # A host that drops packets gets the patience that uv has.
    with within(60 if host == "dropping" else 8):
        done = deaf.run("install")
    assert done.status == 4, done.err
    assert done.err.count(address.removeprefix("http://")) == 1
    assert "HTTPS_PROXY" in done.err
    assert workshop.entries() == set()


def asked_wheels(stand_in):
    """Return the packages whose wheels the index has sent."""
    return {name.partition("-")[0] for name in stand_in.sent()}


def in_pieces(host, sign, pieces):
    """Make a host send matching wheels slowly, in pieces."""
    respond = host.respond

    def answer(path, headers):
        found = respond(path, headers)
        return (
            replace(found, pieces=pieces)
            if sign in path and path.endswith(".whl")
            else found
        )

    host.respond = answer


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_download_continues_with_missing_files(
    workshop, stand_in, play, number
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    # uv downloads only files with a hash itself.
    workshop.document("lock", "torch==2.14.1")
    workshop = replace(workshop, caches=workshop.folder.parent / "other")
    stand_in.forget()
    resumed = Event()

    def held_up(body):
        yield body[:100]
        resumed.wait(30)
        yield body[100:]

    in_pieces(stand_in.r2, "/torch-", held_up)
    running = workshop.start("sync")
    while "triton" not in asked_wheels(stand_in):
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    time.sleep(1)
    running.send_signal(number)
    _, said = running.communicate(timeout=20)
    if number == signal.SIGINT:
        assert (
            "complete files are in uv's cache and will not be downloaded again" in said
        )
        assert "do    Run it again\n" in said
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    resumed.set()
    stand_in.forget()
    document = workshop.document("sync")
    assert document["data"]["environment"]["torch"] == "2.14.1+cu126"
    # The uv of a killed command may still complete its download.
    assert asked_wheels(stand_in) <= {"torch"}
    assert leftovers(workshop) == set()


@pytest.fixture
def proxy():
    """Start an HTTP proxy that logs requests."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def forward(address, headers):
        kept = {
            name: text
            for name, text in headers.items()
            if name in {"accept", "range", "if-range", "user-agent"}
        }
        try:
            with direct.open(
                urllib.request.Request(address, headers=kept), timeout=10
            ) as answer:
                said = {
                    name: text
                    for name, text in answer.headers.items()
                    if name in {"ETag", "Accept-Ranges"}
                }
                return Answer(
                    answer.status, answer.read(), answer.headers["Content-Type"], said
                )
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())

    host = Host("proxy", forward)
    yield host
    host.close()


@pytest.mark.heavy
def test_index_files_are_downloaded_through_proxy(workshop, stand_in, proxy, play):
    play(RTX_4090)
    named = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), proxy.url)
    nowhere = dict.fromkeys(("NO_PROXY", "no_proxy"), "intranet.example")
    workshop = workshop.having(**named, **nowhere)
    workshop.succeed("lock")
    # uv bypasses the proxy for this machine if gpuinstall must hash a file.
    workshop.succeed("sync")
    through = {urlsplit(asked.path).port for asked in proxy.log}
    assert through <= {urlsplit(host.url).port for host in stand_in.hosts}
    fetched = {
        asked.path.rpartition("/")[2].partition("-")[0]
        for asked in proxy.log
        if asked.path.endswith(".whl")
    }
    assert {"torch", "triton", "filelock"} <= fetched


@pytest.mark.heavy
def test_index_files_are_downloaded_with_custom_certificate(
    workshop, stand_in, play, certificate
):
    play(RTX_4090)
    plain, stand_in.r2 = (
        stand_in.r2,
        Host("r2", stand_in.r2.respond, certificate=certificate),
    )
    plain.close()
    workshop = workshop.having(SSL_CERT_FILE=str(certificate))
    workshop.succeed("install")
    assert 'url = "https://' in workshop.lock("pylock.cu126.toml")
    assert {"torch", "triton"} <= asked_wheels(stand_in)
