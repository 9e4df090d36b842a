"""The whole pipeline as a user runs it: real uv, real HTTP to a stand-in index, a compiled driver, real bindings."""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import sys
import tarfile
import time
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest

from gpuinstall.base import process, uv
from tests.lab.cases import mostly_heavy
from tests.lab.driver import RTX_4090
from tests.lab.host import Answer, Host
from tests.lab.index import Habits, StandInIndex
from tests.lab.pace import within
from tests.lab.projects import make_project
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop


def leftovers(workshop):
    """What lies beside an environment although nobody works on it."""
    work = workshop.folder / ".venv.gpuinstall"
    expected = {"previous", "lock", ".gitignore"}
    return (
        {entry.name for entry in work.iterdir()} - expected if work.exists() else set()
    )


@pytest.mark.heavy
@pytest.mark.parametrize("stops", [14])
def test_kill_9_at_any_line_of_a_swap_leaves_an_environment_and_the_next_run_cleans_up(
    workshop, play, stops
):
    """``tests.lab.dying`` counts the lines of the room that builds and swaps, and dies at one of them."""
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    for _ in range(2):
        # The first one also keeps the sizes of files: the last lines that it counts come in no other run.
        counted = workshop.dying(10**9, "install", "torch==2.14.1")
        workshop.document("install", "torch==2.13.0")
    total = int(counted.err.rpartition("lines: ")[2])
    for line in range(1, total - 10, total // stops):
        assert (
            workshop.dying(line, "install", "torch==2.14.1").status == -signal.SIGKILL
        )
        held = workshop.python("import torch; print(torch.__version__)")
        assert held in {"2.13.0+cu126", "2.14.1+cu126"}
        workshop.document("install", f"torch=={held.partition('+')[0]}")
        assert f'version = "{held}"' in workshop.lock("pylock.cu126.toml")
        assert leftovers(workshop) == set()
        workshop.document("install", "torch==2.13.0")


@pytest.mark.heavy
@pytest.mark.parametrize("stops", [16])
def test_an_interrupt_at_any_line_of_a_swap_leaves_environment_and_lock_in_step_and_nothing_else(
    workshop, play, stops
):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    counted = workshop.dying(10**9, "install", "torch==2.14.1")
    total = int(counted.err.rpartition("lines: ")[2])
    held = "2.14.1"
    for line in range(total // 2, total - 10, total // stops):
        wanted = "2.13.0" if held == "2.14.1" else "2.14.1"
        done = workshop.dying(line, "install", f"torch=={wanted}", number=signal.SIGINT)
        assert done.status == 130, done.err
        build = workshop.python("import torch; print(torch.__version__)")
        assert f'version = "{build}"' in workshop.lock("pylock.cu126.toml")
        assert leftovers(workshop) == set()
        held = build.partition("+")[0]


@pytest.mark.heavy
def test_a_uv_that_outlives_its_killed_run_writes_nothing_into_the_next_one(
    workshop, play
):
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
    """Whether this process is uv at work on the packages of an environment that is being made."""
    try:
        words = Path(f"/proc/{child}/cmdline").read_bytes()
    except OSError:
        return False
    return b"\0pip\0" in words and b".venv.gpuinstall/staging-" in words


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux has a file system that not even root may write",
)
def test_a_folder_that_may_not_be_written_is_one_clear_line(workshop, stand_in, play):
    play(RTX_4090)
    done = workshop.run("install", "--venv", "/sys/here/.venv")
    assert done.status == 4
    assert "cannot be written" in done.err
    assert stand_in.sent() == {}


@pytest.mark.heavy
def test_a_full_disk_leaves_the_old_environment(workshop, play):
    play(RTX_4090)
    workshop.document("install", "torch==2.13.0")
    words = [
        "prlimit",
        "--fsize=2000",
        sys.executable,
        "-m",
        "gpuinstall",
        "install",
        "torch==2.14.1",
        "--json",
    ]
    if shutil.which("prlimit") is None:
        pytest.skip("no prlimit to make every file that is larger than 2000 bytes fail")
    done = process.run(words, env=workshop.environment, cwd=workshop.folder)
    assert done.status == 4, done.out + done.err
    assert workshop.python("import torch; print(torch.__version__)") == "2.13.0+cu126"
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(
    "name", mostly_heavy(["SIGINT", "SIGTERM", "SIGHUP"], ["SIGINT"])
)
def test_an_interrupted_run_leaves_nothing_behind(workshop, stand_in, play, name):
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
    """A host that lets every connection hang, as a firewall does."""
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
def test_an_interrupt_does_not_wait_for_a_host_that_does_not_answer(
    workshop, play, dropping
):
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
def test_a_silent_default_index_is_found_out_before_uv_asks_it_and_said_once(
    workshop, play, dropping, host, silent
):
    play(RTX_4090)
    address = dropping if host == "dropping" else host
    deaf = workshop.having(**dict.fromkeys(silent, f"{address}/simple"))
    with within(8):  # uv alone would be patient for 45 s
        done = deaf.run("install")
    assert done.status == 4, done.err
    assert done.err.count(address.removeprefix("http://")) == 1
    assert "HTTPS_PROXY" in done.err
    assert workshop.entries() == set()


@pytest.mark.heavy
def test_two_runs_at_once_lose_nothing_of_what_either_adds(workshop, stand_in, play):
    play(RTX_4090)
    workshop.document("install")
    stand_in.default.pace = 0.2
    first = workshop.start("install", "cowsay", "--json")
    while not (workshop.folder / ".venv.gpuinstall" / "owner").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    second = workshop.start("install", "numpy", "--json")
    outputs = [run.communicate(timeout=300) for run in (first, second)]
    assert [run.returncode for run in (first, second)] == [0, 0], outputs
    assert workshop.python("import cowsay, numpy, torch; print('all')") == "all"
    assert {"cowsay", "numpy"} <= set(
        re.findall(r'"(\w+)"', workshop.lock("pylock.cu126.toml"))
    )


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
        return (
            replace(found, pieces=pieces)
            if sign in path and path.endswith(".whl")
            else found
        )

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
        assert (
            "complete files are in uv's cache and will not be downloaded again" in said
        )
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
def test_a_password_that_only_the_keyring_has_opens_the_index(
    stand_in_folder, play, tmp_path
):
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
        opened = replace(
            workshop, variables=variables | {"UV_KEYRING_PROVIDER": "subprocess"}
        ).run("install")
    assert opened.status == 0, opened.err
    assert "s3cret" not in opened.out + opened.err + workshop.lock("pylock.cu126.toml")


@pytest.mark.heavy
def test_over_tls_with_a_certificate_of_ones_own_files_come_to_the_relay_alone(
    workshop, stand_in, play, tmp_path
):
    play(RTX_4090)
    certificate = tmp_path / "loopback.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=loopback -addext subjectAltName=IP:127.0.0.1"
    leaf = [
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]  # uv takes no authority for a server
    process.run(
        [*command.split(), *leaf, "-keyout", certificate, "-out", tmp_path / "made.crt"]
    )
    certificate.write_bytes(
        certificate.read_bytes() + (tmp_path / "made.crt").read_bytes()
    )
    plain, stand_in.r2 = (
        stand_in.r2,
        Host("r2", stand_in.r2.respond, certificate=certificate),
    )
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
    host = Host(
        "archive", lambda *_: Answer(200, content.getvalue(), "application/gzip")
    )
    done = workshop.run(*words, "torch", f"tool @ {host.url}/tool-1.0.tar.gz")
    host.close()
    assert done.status == 0, done.err
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    assert digest in workshop.lock("pylock.cu126.toml")


KEPT = "Proof       kept: nothing that it covers changed"


@pytest.fixture
def proven(stand_in, stand_in_folder, tmp_path, play):
    """A folder whose environment was proven on an RTX 4090."""
    make_wheel(stand_in_folder / "simple", "ipykernel", "7.1.0")
    play(RTX_4090)
    folder = tmp_path / "project"
    folder.mkdir()
    workshop = Workshop(folder, tmp_path / "caches", stand_in.environment())
    workshop.document("install", "torch==2.13.0", "numpy")
    return workshop


def fail(monkeypatch, folder, kernel, message):
    """Let a kernel of torch fail from now on."""
    verdict = {"*": {"failed": {kernel: message}}}
    (folder / "verdict.json").write_text(json.dumps(verdict), "utf-8")
    monkeypatch.setenv("LAB_VERDICT", str(folder / "verdict.json"))


@pytest.mark.heavy
def test_a_package_comes_and_goes_beside_the_proven_torch(
    proven, tmp_path, monkeypatch
):
    site = next((proven.folder / ".venv").glob("lib/python3*/site-packages"))
    inode = (site / "torch" / "__init__.py").stat().st_ino
    (proven.folder / ".venv" / "notes.txt").write_text("mine")
    fail(monkeypatch, tmp_path, "matmul-float32", "it went wrong")

    rehearsed = proven.run("install", "cowsay", "--dry-run").out
    assert re.search(r"Download +\d+ kB, \d+ kB in .*/uv ", rehearsed), (
        "torch is linked, and takes no space"
    )
    added = proven.run("install", "cowsay", "ipykernel")
    assert (added.status, KEPT in added.out) == (0, True), added.err
    assert "Preflight" not in added.err
    assert (
        proven.python("import cowsay, torch; print(torch.__version__)")
        == "2.13.0+cu126"
    )
    assert (site / "torch" / "__init__.py").stat().st_ino == inode, (
        "a link, not another file"
    )
    for folder in (".venv", ".venv.gpuinstall/previous"):
        assert (proven.folder / folder / "notes.txt").read_text() == "mine"
    nothing = proven.run("install", "--upgrade-package", "cowsay")
    assert "already up to date" in nothing.out, nothing.err
    module = site / "ipykernel" / "__init__.py"
    module.unlink()
    module.write_text("edited = True")
    removed = proven.run("remove", "cowsay")
    assert (removed.status, KEPT in removed.out) == (0, True), removed.err
    assert not (site / "cowsay").exists()
    assert module.read_text() == "edited = True", "what the user edits stays"
    again = proven.run("install", "cowsay")
    assert (again.status, KEPT in again.out) == (0, True), again.err
    assert (
        proven.python("import cowsay, torch; print(torch.__version__)")
        == "2.13.0+cu126"
    )
    back = proven.run("env", "rollback")
    assert back.status == 0, back.err
    assert "already up to date" in proven.run("install").out
    assert leftovers(proven) == set()


@pytest.mark.heavy
def test_a_new_program_is_tested_by_itself(proven, tmp_path, monkeypatch):
    fail(
        monkeypatch,
        tmp_path,
        "torchvision-nms",
        "operator torchvision::nms does not exist",
    )
    monkeypatch.setenv("GPUINSTALL_FALLBACK", "0")
    failed = proven.document("install", "torchvision", exit_code=5)
    assert "torchvision-nms" in failed["errors"][0]["message"]

    fail(monkeypatch, tmp_path, "matmul-float32", "it went wrong")
    checks = proven.document("install", "torchvision")["data"]["verdict"]["devices"][0][
        "checks"
    ]

    names = [check["name"] for check in checks]
    assert names.count("torchvision-nms") == 1
    assert "matmul-float32" in names


def test_an_editable_project_keeps_the_proof_until_its_build_files_change(
    proven, tmp_path, monkeypatch
):
    project = make_project(proven.folder / "mine", "mine", requires=["numpy"])
    proven.document("install", "-e", "./mine")
    fail(monkeypatch, tmp_path, "matmul-float32", "it went wrong")
    added = proven.run("install", "cowsay")
    assert (added.status, KEPT in added.out, "Building" in added.err) == (
        0,
        True,
        False,
    ), added.err
    assert proven.python("import mine; print(mine.__file__)") == str(
        project / "mine.py"
    )
    (project / "pyproject.toml").touch()
    removed = proven.run("remove", "cowsay")
    assert (removed.status, "Building" in removed.err) == (5, True), removed.err


def test_packages_that_share_files_are_as_pip_installs_them(proven, stand_in_folder):
    names = ["cv-a", "cv-b", "cv-c"]
    for position, name in enumerate(names):
        modules = {
            "cv2/__init__.py": f"OF = {name!r}{' ' * position}",
            f"cv2/only_{position}.py": "",
        }
        modules |= {f"cv2/of_all_{number}.py": f"OF = {name!r}" for number in range(8)}
        make_wheel(stand_in_folder / "simple", name, "1.0", modules=modules)
    whose = "import cv2; print(cv2.OF)"

    shared = proven.run("install", "--verbose", *reversed(names))
    assert shared.status == 0, shared.err
    assert "cv-a 1.0, cv-b 1.0 and cv-c 1.0 write " in shared.err
    assert proven.python(whose) == "cv-c", "the last in the lock"
    assert shared.err.count("Fetched ") == 1, "nothing is downloaded twice"
    beside = proven.run("install", "--verbose", "cowsay")
    assert (beside.status, "Fetched" in beside.err) == (0, True), beside.err
    assert proven.python(whose) == "cv-c"
    without = proven.run("remove", "cv-c")
    assert without.status == 0, without.err
    assert proven.python(whose) == "cv-b"


@pytest.fixture
def installed(workshop, stand_in_folder, play):
    play(RTX_4090)
    make_wheel(
        stand_in_folder / "simple", "torch", "2.15.0", requires=["nvidia-cublas"]
    )
    make_wheel(stand_in_folder / "simple", "nvidia-cublas", "13.1")
    made = workshop
    made.document("install", "torch==2.13.0", "numpy")
    return made


def by_uv(installed, *words):
    python = installed.folder / ".venv" / "bin" / "python"
    done = process.run(
        [uv.uv(), "pip", *words, "--python", python],
        env=installed.environment,
        cwd=installed.folder,
    )
    assert done.ok, done.err


def by_pip(installed, *words):
    """As somebody does who lifted the constraints."""
    python, index = (
        installed.folder / ".venv" / "bin" / "python",
        installed.environment["UV_DEFAULT_INDEX"],
    )
    done = process.run(
        [python, "-m", "pip", *words, "--index-url", index],
        env={**installed.environment, "PIP_CONFIG_FILE": "/dev/null"},
        cwd=installed.folder,
    )
    assert done.ok, done.err


def packages(installed):
    return {
        path.name
        for path in (installed.folder / ".venv").glob("lib/*/site-packages/*.dist-info")
    }


@pytest.mark.parametrize(
    "by", mostly_heavy([by_uv, by_pip], [by_uv]), ids=["uv", "pip"]
)
def test_a_torch_that_was_replaced_is_seen_by_every_command_and_brought_back_by_one(
    installed, by
):
    before, lock = packages(installed), installed.lock("pylock.cu126.toml")
    assert callable(by)
    by(installed, "install", "torch==2.15.0", "cowsay")
    change = "torch is 2.15.0 instead of 2.13.0+cu126"

    refused = installed.run("run", "python", "-c", "print('it ran')")
    assert (refused.status, refused.out) == (6, "")
    assert f"error: {change}" in " ".join(refused.err.split())
    assert "do gpuinstall sync" in " ".join(refused.err.split())
    stopped = installed.refusal("install", exit_code=2)
    assert (stopped["code"], stopped["message"]) == ("users-packages", change)
    assert stopped["hint"].startswith("gpuinstall sync   #")
    findings = json.loads(installed.run("doctor", "--json").out)["data"]["findings"]
    found = {one["code"]: one for one in findings}["changed-by-hand"]
    assert (found["title"], "gpuinstall sync" in found["fix"]) == (change, True)

    restored = installed.run("sync")
    assert restored.status == 0, restored.err
    assert change in " ".join(restored.err.split())
    assert packages(installed) == before
    assert installed.lock("pylock.cu126.toml") == lock
    assert (
        installed.run(
            "run", "python", "-c", "import torch; print(torch.__version__)"
        ).out
        == "2.13.0+cu126\n"
    )
    kept = installed.folder / ".venv.gpuinstall" / "previous"
    assert list(kept.glob("lib/*/site-packages/cowsay"))


@pytest.mark.heavy
def test_a_torch_that_an_installer_damaged_is_never_called_proven(installed):
    site = next((installed.folder / ".venv").glob("lib/*/site-packages"))
    module = site / "torch" / "__init__.py"
    record = next(site.glob("torch-*.dist-info/RECORD"))
    module.unlink()
    os.utime(record)
    refused = installed.run("run", "true")
    assert refused.status == 6
    assert (
        "torch 2.13.0+cu126 is damaged: torch/__init__.py is missing or truncated"
        in " ".join(refused.err.split())
    )
    done = installed.run("install")
    assert done.status == 0, done.err
    assert "Changed torch 2.13.0+cu126 is damaged" in " ".join(done.err.split())
    assert installed.run("run", "true").status == 0
    module.write_bytes(module.read_bytes()[:-1])  # which is the same file in uv's cache
    os.utime(record)
    broken = installed.refusal("install", exit_code=4)
    assert (broken["code"], "uv cache clean torch" in broken["hint"]) == (
        "cache-damaged",
        True,
    )


RESTORING = [("sync",), ("sync", "--replace"), ("install",)]


@pytest.mark.parametrize("words", mostly_heavy(RESTORING, RESTORING[:1]), ids=" ".join)
def test_a_lost_module_of_a_proven_torch_is_named_and_brought_back(installed, words):
    [module] = (installed.folder / ".venv").glob("lib/*/site-packages/torch/version.py")
    module.unlink()
    lost = "torch 2.13.0+cu126 is damaged: torch/version.py is missing or truncated"

    refused = installed.run("run", "true")
    told = " ".join(refused.err.split())
    assert (
        refused.status,
        f"error: {lost}" in told,
        "do gpuinstall sync #" in told,
    ) == (
        6,
        True,
        True,
    )
    dry = installed.run(*words, "--dry-run")
    assert (
        dry.status,
        "already up to date" in dry.out,
        lost in " ".join(dry.err.split()),
    ) == (
        0,
        False,
        True,
    )
    restored = installed.run(*words)
    assert (restored.status, f"Changed {lost}" in " ".join(restored.err.split())) == (
        0,
        True,
    )
    assert "Verified" in restored.err
    assert module.is_file()
    assert "already up to date" in installed.run(*words).out
    assert installed.run("run", "python", "-c", "import torch.version").status == 0
