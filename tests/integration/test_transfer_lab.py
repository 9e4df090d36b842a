"""uv's transfers through the relay in odd surroundings: proxies, certificates, keyrings, caches, signals in between."""

import hashlib
import io
import os
import signal
import sys
import tarfile
import time
import urllib.request
from dataclasses import replace
from threading import Event
from urllib.parse import urlsplit

import pytest

from gpuinstall.base import process, uv
from tests.integration.test_install_lab import leftovers
from tests.lab.driver import RTX_4090
from tests.lab.host import Answer, Host
from tests.lab.index import Habits, StandInIndex
from tests.lab.workshop import Workshop

SOURCE = {
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "made"\nbackend-path = ["."]\n',
    "PKG-INFO": "Metadata-Version: 2.2\nName: tool\nVersion: 1.0\n",
    "made.py": """
import zipfile
def build_wheel(folder, *_):
    info = "tool-1.0.dist-info"
    files = {"tool.py": "", f"{info}/METADATA": "Metadata-Version: 2.2\\nName: tool\\nVersion: 1.0\\n"}
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in files)
    with zipfile.ZipFile(f"{folder}/tool-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "tool-1.0-py3-none-any.whl"
""",
}
"""A package whose own backend builds it without anything else."""


def asked_wheels(stand_in):
    """The packages of whose wheels something was sent."""
    return {name.partition("-")[0] for name in stand_in.sent()}


def make_environment(workshop):
    """An environment of others, empty."""
    venv = workshop.folder / "app"
    made = process.run(
        [uv.uv(), "venv", "--no-project", "--python", sys.executable, venv],
        env=workshop.environment,
    )
    assert made.ok, made.err
    return venv


def in_pieces(host, sign, pieces):
    """Let a host send the wheels whose addresses hold ``sign`` in their own time."""
    respond = host.respond

    def answer(path, headers):
        found = respond(path, headers)
        return replace(found, pieces=pieces) if sign in path and path.endswith(".whl") else found

    host.respond = answer


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_transfer_that_is_ended_leaves_the_old_environment_and_the_next_fetches_only_what_is_missing(
    workshop, stand_in, play, number
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    workshop = replace(workshop, caches=workshop.folder.parent / "other")
    stand_in.forget()
    resumed = Event()

    def held_up(body):
        yield body[:100]
        resumed.wait(30)
        yield body[100:]

    in_pieces(stand_in.r2, "/torch-", held_up)
    running = workshop.start("install", "torch==2.14.1")
    others = {"triton", "filelock", "nvidia_cudnn_cu12"}
    while not others <= asked_wheels(stand_in):
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    time.sleep(1)
    running.send_signal(number)
    _, said = running.communicate(timeout=20)
    if number == signal.SIGINT:
        assert "complete files are in uv's cache and will not be downloaded again" in said
        assert "do    Run it again\n" in said
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    resumed.set()
    stand_in.forget()
    assert (
        workshop.document("install", "torch==2.14.1")["data"]["environment"]["torch"]
        == "2.14.1+cu126"
    )
    assert asked_wheels(stand_in) == {"torch"}
    assert leftovers(workshop) == set()


@pytest.fixture
def proxy():
    """A proxy that fetches for others, and logs what."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def forward(address, headers):
        kept = {
            name: text
            for name, text in headers.items()
            if name in {"accept", "range", "if-range", "user-agent"}
        }
        try:
            with direct.open(urllib.request.Request(address, headers=kept), timeout=10) as answer:
                said = {
                    name: text
                    for name, text in answer.headers.items()
                    if name in {"ETag", "Accept-Ranges"}
                }
                return Answer(answer.status, answer.read(), answer.headers["Content-Type"], said)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())

    host = Host("proxy", forward)
    yield host
    host.close()


@pytest.mark.heavy
def test_behind_a_proxy_files_come_through_it_and_the_relay_does_not(
    workshop, stand_in, proxy, play
):
    play(RTX_4090)
    named = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), proxy.url)
    nowhere = dict.fromkeys(("NO_PROXY", "no_proxy"), "intranet.example")
    done = workshop.having(**named, **nowhere).run("install")
    assert done.status == 0, done.err
    through = {urlsplit(asked.path).port for asked in proxy.log}
    assert through <= {urlsplit(host.url).port for host in stand_in.hosts}
    fetched = {
        asked.path.rpartition("/")[2].partition("-")[0]
        for asked in proxy.log
        if asked.path.endswith(".whl")
    }
    assert {"torch", "triton", "filelock"} <= fetched


@pytest.mark.heavy
def test_a_password_that_only_the_keyring_has_opens_the_index(stand_in_folder, play, tmp_path):
    play(RTX_4090)
    keyring = tmp_path / "bin" / "keyring"
    keyring.parent.mkdir()
    keyring.write_text('#!/bin/sh\n[ "$1 $3" = "get user" ] && echo s3cret\n', "utf-8")
    keyring.chmod(0o755)
    with StandInIndex(stand_in_folder, Habits(credentials="user:s3cret")) as index:
        (tmp_path / "project").mkdir()
        variables = index.environment() | {
            "UV_DEFAULT_INDEX": index.environment()["UV_DEFAULT_INDEX"].replace(
                "user:s3cret@", "user@"
            ),
            "PATH": f"{keyring.parent}:{os.environ['PATH']}",
        }
        workshop = Workshop(tmp_path / "project", tmp_path / "caches", variables)
        refused = workshop.run("install")
        assert refused.status == 4, refused.err
        opened = replace(workshop, variables=variables | {"UV_KEYRING_PROVIDER": "subprocess"}).run(
            "install"
        )
    assert opened.status == 0, opened.err
    assert "s3cret" not in opened.out + opened.err + workshop.lock("pylock.cu126.toml")


@pytest.mark.heavy
def test_over_tls_with_a_certificate_of_ones_own_files_come_to_the_relay_alone(
    workshop, stand_in, play, tmp_path
):
    play(RTX_4090)
    certificate = tmp_path / "loopback.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=loopback -addext subjectAltName=IP:127.0.0.1"
    leaf = ["-addext", "basicConstraints=critical,CA:FALSE"]  # uv takes no authority for a server
    process.run([*command.split(), *leaf, "-keyout", certificate, "-out", tmp_path / "made.crt"])
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "made.crt").read_bytes())
    plain, stand_in.r2 = stand_in.r2, Host("r2", stand_in.r2.respond, certificate=certificate)
    plain.close()
    workshop = workshop.having(SSL_CERT_FILE=str(certificate))
    done = workshop.run("install")
    assert done.status == 0, done.err
    assert 'url = "https://' in workshop.lock("pylock.cu126.toml")
    assert {"torch", "triton"} <= asked_wheels(stand_in)


@pytest.mark.heavy
@pytest.mark.parametrize("words", [("install",), ("lock",)])
def test_a_source_archive_without_a_hash_is_hashed_and_built(workshop, play, words):
    play(RTX_4090)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in SOURCE.items():
            entry = tarfile.TarInfo(f"tool-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    host = Host("archive", lambda *_: Answer(200, content.getvalue(), "application/gzip"))
    done = workshop.run(*words, "torch", f"tool @ {host.url}/tool-1.0.tar.gz")
    host.close()
    assert done.status == 0, done.err
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    assert digest in workshop.lock("pylock.cu126.toml")
