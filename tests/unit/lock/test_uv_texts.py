"""Tests that the pinned uv prints each message that gpuinstall parses."""

import hashlib
import shutil
import sys
from pathlib import Path

import pytest
import tomli_w

from gpuinstall.base import process, uv
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.timeouts import Timeouts
from gpuinstall.lock.file.lock import placeholder_hash
from gpuinstall.lock.uv import errors
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.edges import parse_log, remove_log
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.setuptools import make_setuptools
from tests.lab.wheels import make_wheel, pack_sdist

SETUP = 'from setuptools import setup\nsetup(name="built", version="1.0")\n'
WHEEL = "thing-1.0-py3-none-any.whl"
NOWHERE = "http://127.0.0.1:9/"


class Uv:
    """The pinned uv with its own cache, a folder of packages, and a server."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.links = folder / "links"
        self.links.mkdir()
        make_setuptools(self.links)
        make_wheel(self.links, "wheel", "1.0")
        make_wheel(self.links, "thing", "1.0", extras=["real"])
        pack_sdist(self.links, "built-1.0", {"setup.py": SETUP})
        imports_torch = f"import torch\n{SETUP}".replace("built", "torchy")
        pack_sdist(self.links, "torchy-1.0", {"setup.py": imports_torch})
        self.answers: dict[str, Answer] = {}
        self.host = Host("index", self.answer)
        self.variables = {
            "UV_CACHE_DIR": str(folder / "cache"),
            "UV_HTTP_RETRIES": "0",
            "UV_NO_CONFIG": "1",
            "UV_PREVIEW_FEATURES": "pylock",
        }

    def answer(self, path, _headers):
        return self.answers.get(path, NOT_FOUND)

    def resolve(self, request, *options, **variables):
        """Return the errors of uv about a request."""
        index = () if "--index-url" in options else ("--no-index",)
        words = ("--find-links", str(self.links), "--format", "pylock.toml", "-")
        command = uv.pip_command(
            "compile", Path(sys.executable), *index, *words, *options
        )
        return self.run(command, variables, request)

    def install(self, url, sha256, **variables):
        """Return the errors of uv about the installation of a locked wheel."""
        wheel = {"url": url, "hashes": {"sha256": sha256}}
        package = {"name": "thing", "version": "1.0", "wheels": [wheel]}
        lock = {"lock-version": "1.0", "created-by": "test", "packages": [package]}
        path = self.folder / "pylock.toml"
        path.write_text(tomli_w.dumps(lock), "utf-8")
        target = ("--target", str(self.folder / "target"), str(path))
        command = uv.pip_command("sync", Path(sys.executable), *target)
        return self.run(command, variables, "")

    def run(self, command, variables, text):
        environment = {**self.variables, **variables}
        done = process.run(
            command, env=environment, cwd=self.folder, timeouts=Timeouts(), text=text
        )
        return done.err


@pytest.fixture
def pinned(tmp_path):
    made = Uv(tmp_path)
    yield made
    made.host.close()


def test_uv_needs_all_sources_to_find_members(pinned):
    project = '[project]\nname = "{}"\nversion = "1"\n'
    texts = {
        "a": project.format("a") + 'dependencies = ["b"]\n',
        "b": project.format("b"),
        "": '[tool.uv.workspace]\nmembers = ["a", "b"]\n'
        "[tool.uv.sources]\nb = { workspace = true }\n",
    }
    for name, text in texts.items():
        folder = pinned.folder / "whole" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyproject.toml").write_text(text, "utf-8")
    request = f"a @ file://{pinned.folder}/whole/a"
    assert pinned.resolve(request).startswith("Resolved 2 packages")
    message = pinned.resolve(request, UV_NO_SOURCES_PACKAGE="torch")
    assert errors.lacks_members(message), message


@pytest.mark.parametrize(
    ("request_", "options", "variables", "code"),
    [
        ("nosuch", (), {}, "package-not-found"),
        ("nosuch", ("--index-url", "{url}/simple"), {}, "package-not-found"),
        ("thing<1", (), {}, "requirements-conflict"),
        ("built", ("--only-binary=:all:",), {}, "only-binary"),
        ("torchy", (), {}, "build-needs-torch"),
        ("x @ git+file:///nowhere", (), {}, "repository"),
        ("x", ("--index-url", NOWHERE), {}, "network"),
        ("x", ("--index-url", "{url}/simple"), {"UV_OFFLINE": "1"}, "offline"),
        ("x @ {url}/x-1-py3-none-any.whl", (), {"UV_OFFLINE": "1"}, "offline"),
        ("x @ {url}/x-1-py3-none-any.whl", (), {}, "http-status"),
        ("x", ("--index-url", "{url}/closed"), {}, "http-status"),
        ("x", ("--index-url", "{url}/denied"), {}, "http-status"),
        ("thing", (), {"UV_CACHE_DIR": "/dev/null/x"}, "not-writable"),
        ("thing", ("--find-links", "/nowhere"), {}, "find-links-unreadable"),
        ("a b", (), {}, "resolution-failed"),
    ],
)
def test_uv_request_error_is_recognized(pinned, request_, options, variables, code):
    pinned.answers["/closed/x/"] = Answer(401)
    pinned.answers["/denied/x/"] = Answer(403)
    words = [option.format(url=pinned.host.url) for option in options]
    message = pinned.resolve(request_.format(url=pinned.host.url), *words, **variables)
    failure = errors.explain_failure(message, unlisted=())
    error = failure.error if isinstance(failure, Conflict) else failure
    assert error.code == code, message


def test_unreachable_url_is_reported_without_index(pinned):
    url = f"{NOWHERE}x-1-py3-none-any.whl"
    error = errors.explain_failure(pinned.resolve(f"x @ {url}"), unlisted=())
    assert isinstance(error, InstallationError)
    assert error.message == f"{url} cannot be reached"
    assert error.hint == "Check the URL, and set HTTPS_PROXY if you use a proxy"


def test_uv_file_error_is_recognized(pinned):
    wheel = next(pinned.links.glob("thing-*")).read_bytes()
    sha256 = hashlib.sha256(wheel).hexdigest()
    placeholder = placeholder_hash("thing")
    bodies = {"/whole": wheel, "/torn": wheel[:-99]}
    for folder, body in bodies.items():
        pinned.answers[f"{folder}/{WHEEL}"] = Answer(200, body)
    pinned.answers[f"/broken/{WHEEL}"] = Answer(503)
    for folder, expected, code in (
        ("whole", placeholder, "hash-mismatch"),
        ("gone", sha256, "file-gone"),
        ("broken", sha256, "http-status"),
        ("torn", hashlib.sha256(wheel[:-99]).hexdigest(), "file-damaged"),
    ):
        message = pinned.install(f"{pinned.host.url}/{folder}/{WHEEL}", expected)
        assert errors.explain_installation(message).code == code, message
        # The resolver looks for placeholders in such a message.
        assert (placeholder in message) == (expected == placeholder)


def test_uv_cache_error_is_recognized(pinned):
    wheel = next(pinned.links.glob("thing-*"))
    pinned.answers[f"/{WHEEL}"] = Answer(200, wheel.read_bytes())
    locked = (
        f"{pinned.host.url}/{WHEEL}",
        hashlib.sha256(wheel.read_bytes()).hexdigest(),
    )
    assert "error" not in pinned.install(*locked)
    [cached] = pinned.folder.glob("cache/archive-v0/*/*/WHEEL")
    cached.write_text("", "utf-8")
    shutil.rmtree(pinned.folder / "target")
    message = pinned.install(*locked)
    assert errors.explain_installation(message).code == "cache-damaged", message


@pytest.mark.parametrize(
    ("logged", "requirement"),
    [
        ("sympy>=1.13.3", "sympy>=1.13.3"),
        ("filelock*", "filelock"),
        ("torch>=2.14.0, <2.14.0+", "torch==2.14.0"),
        ("numpy<2 | >=2+", "numpy!=2"),
        ("tokenizers>=0.22.0, <=0.23.0+", "tokenizers<=0.23.0,>=0.22.0"),
        ("httpx>=0.27.0, <0.28.dev0", "httpx<0.28,>=0.27.0"),
        ("starlette<8.3.dev0 | >=8.4.dev0", "starlette"),
        ("uvicorn[standard]>=0.32", "uvicorn[standard]>=0.32"),
        ("nvidia-nccl-cu13{sys_platform == 'linux'}==2.30", "nvidia-nccl-cu13==2.30"),
    ],
)
def test_dependencies_are_read_from_uv_log(logged, requirement):
    edge = "DEBUG Adding transitive dependency for vllm==0.33.0:"
    log = f"{edge} {logged}\nwarning: a warning\nWARN Retrying\n{edge} gpuinstall-build!=3\n"

    [found] = parse_log(log).edges["vllm", "0.33.0"]

    assert (found.text, remove_log(log)) == (requirement, "warning: a warning\n")


def test_uv_log_has_dependencies_of_cuda_extras():
    searched = "DEBUG Searching for a compatible version of thing"
    edge = "DEBUG Adding transitive dependency for thing==1:"
    log = f"{searched} (*)\n{edge} numpy\n{searched}[cuda12] (==1)\n{edge} kernels>1\n"

    assert parse_log(
        f"{log}{searched}[docs] (==1)\n{edge} sphinx\n"
    ).of_cuda_extras == {"kernels"}
