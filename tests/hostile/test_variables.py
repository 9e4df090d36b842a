"""Tests that no URL of a folder or a lock sends a variable of the user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import tomli
import tomli_w

from gpuinstall.lock.file.lock import add_seal
from tests.hostile.test_addresses import NAMES, serve_wheels
from tests.hostile.test_forms import packed
from tests.lab.cases import mostly_heavy
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.workshop import Workshop

VALUE = "s3cret"
VARIABLES = "-".join(f"${{{name}}}" for name in NAMES)
WHEEL = f"HOST/{VARIABLES}/filelock-9.0-py3-none-any.whl"
SDIST = f"HOST/{VARIABLES}/filelock-9.0.tar.gz"
BY_URL = f"filelock @ {WHEEL}"
PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'
WITH_LIB = PROJECT.replace('"torch"', '"torch", "lib"')
HASHES = f'hashes = {{ sha256 = "{"1" * 64}" }}'
COMMIT = "a" * 40
LOCK = "pylock.cpu.toml"
HEAD = 'lock-version = "9.0"\ncreated-by = "gpuinstall"\nrequires-python = "==3.*"\n'

LOCKED = {
    "wheel": f'wheels = [{{ url = "{WHEEL}", {HASHES} }}]',
    "wheel by path": f'wheels = [{{ path = "{VARIABLES}/filelock-9.0-py3-none-any.whl", {HASHES} }}]',
    "archive": f'archive = {{ url = "{SDIST}", {HASHES} }}',
    "archive with a query": f'archive = {{ url = "HOST/filelock-9.0-py3-none-any.whl?a={VARIABLES}", {HASHES} }}',
    "sdist": f'sdist = {{ name = "filelock-9.0.tar.gz", url = "{SDIST}", {HASHES} }}',
    "repository": f'vcs = {{ type = "git", url = "HOST/{VARIABLES}/x", commit-id = "{COMMIT}" }}',
    "directory": f'directory = {{ path = "{VARIABLES}" }}',
    "subdirectory": f'archive = {{ url = "HOST/filelock-9.0.zip", subdirectory = "{VARIABLES}", {HASHES} }}',
    "login": f'archive = {{ url = "{SDIST.replace("://", "://${HF_TOKEN}@")}", {HASHES} }}',
}
FILES = {
    "requirement": {"requirements.txt": f"torch\n{BY_URL}\n"},
    "recorded input": {
        LOCK: f"{HEAD}packages = []\n[tool.gpuinstall]\ninputs = ['torch', '{BY_URL}']\n"
    },
    "override without a name": {
        "pyproject.toml": f"{PROJECT}[tool.uv]\noverride-dependencies = ['{WHEEL}']\n"
    },
}
"""Folders with a URL (test_forms.py reads every format)."""


def write(folder: Path, files: dict[str, str], url: str) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("HOST", url), "utf-8")


@pytest.fixture
def tracker(tmp_path):
    tracker = serve_wheels(tmp_path, "tracker")
    yield tracker
    tracker.close()


def check(here: Workshop, tracker: Host, commands: Sequence[str]) -> None:
    """Check that commands send no variable, and nothing if trust is off."""
    secretive = here.having(**dict.fromkeys(NAMES, VALUE))
    for command in commands:
        done = secretive.run(*command.split(), "-q", "--target", "cpu")
        assert VALUE not in done.out + done.err
    assert [one.path for one in tracker.log if VALUE in one.path] == []
    tracker.log.clear()
    wary = secretive.having(GPUINSTALL_TRUST_FOLDER="0")
    for command in commands:
        wary.run(*command.split(), "-q", "--target", "cpu")
    assert [one.path for one in tracker.log] == []


@pytest.mark.parametrize("form", FILES)
def test_urls_of_folders_send_no_variable(here, tracker, form):
    write(here.folder, FILES[form], tracker.url)

    check(here, tracker, ["lock", "lock --upgrade"])


def lock_filelock(here: Workshop, entry: str) -> None:
    """Write a lock in which filelock has another source."""
    here.succeed("lock", "-q", "--target", "cpu")
    document = tomli.loads(here.lock(LOCK))
    others = [one for one in document["packages"] if one["name"] != "filelock"]
    locked = {"name": "filelock", "version": "9.0", **tomli.loads(entry)}
    changed = add_seal({**document, "packages": [*others, locked]})
    here.write(LOCK, tomli_w.dumps(changed))


@pytest.mark.parametrize("form", mostly_heavy(LOCKED, {"wheel"}))
def test_urls_of_locks_send_no_variable(here, tracker, form):
    lock_filelock(here, LOCKED[form].replace("HOST", tracker.url))

    check(here, tracker, ["sync", "lock check"])


@pytest.mark.parametrize(
    ("key", "end"), [("archive", "?x=/y.whl"), ("sdist", "?x=.whl#y.whl")]
)
def test_archive_with_wheel_query_is_built(here, tracker, key, end):
    name = ' name = "filelock-9.0.tar.gz",' if key == "sdist" else ""
    url = f"{tracker.url}/filelock-9.0.tar.gz{end}"
    lock_filelock(here, f'{key} = {{{name} url = "{url}", {HASHES} }}')
    sync = ("sync", "-q", "--target", "cpu")

    wary = here.having(GPUINSTALL_TRUST_FOLDER="0").run(*sync)
    binary = here.having(GPUINSTALL_ONLY_BINARY="1").run(*sync)

    assert "is not trusted" in wary.err
    assert "only-binary forbids building it" in binary.err
    assert tracker.log == []
    assert "filelock 9.0 is built from" in here.run(*sync, "--dry-run").err


SENT = "${SSH_AUTH_SOCK}"
"""A variable that uv receives, because Git needs it."""
METADATA = "Metadata-Version: 2.2\nName: lib\nVersion: 1\nRequires-Dist: filelock @ HOST/{}/filelock-9.0-py3-none-any.whl\n"
REMOTE_FILES: dict[str, tuple[str, dict[str, str]]] = {
    "wheel": (
        "lib-1-py3-none-any.whl",
        {
            "lib-1.dist-info/METADATA": METADATA,
            "lib-1.dist-info/WHEEL": "Wheel-Version: 1.0\n",
        },
    ),
    "sdist": ("lib-1.tar.gz", {"lib-1/PKG-INFO": METADATA}),
    "zip": ("lib-1.zip", {"lib-1/./PKG-INFO": METADATA}),
    "project in an archive": (
        "lib-1.tar.gz",
        {
            "lib-1/pyproject.toml": '[project]\nname = "lib"\nversion = "1"\n'
            "dependencies = ['filelock @ HOST/{}/filelock-9.0-py3-none-any.whl']\n"
        },
    ),
}
PLACES: dict[str, dict[str, str]] = {
    "requirement": {"requirements.txt": "torch\nlib @ HOST/files/FILE\n"},
    "URL without a name": {"requirements.txt": "torch\nHOST/files/FILE\n"},
    "constraint": {
        "requirements.txt": "torch\nlib\n-c in.txt\n",
        "in.txt": "lib @ HOST/files/FILE\n",
    },
    "override": {
        "pyproject.toml": f"{WITH_LIB}[tool.uv]\n"
        "override-dependencies = ['lib @ HOST/files/FILE']\n"
    },
    "source": {
        "pyproject.toml": f"{WITH_LIB}[tool.uv.sources]\n"
        "lib = { url = 'HOST/files/FILE' }\n"
    },
    "METADATA of another file": {
        "requirements.txt": "torch\nouter @ HOST/files/outer-1-py3-none-any.whl\n"
    },
}


def serve_files(files: dict[str, bytes], ranges: str) -> Host:
    """Serve files, with or without range requests."""

    def respond(path: str, _headers: dict[str, str]) -> Answer:
        body = files.get(path.removeprefix("/files/"))
        if body is None:
            return NOT_FOUND
        return Answer(body=body, headers={"Accept-Ranges": ranges})

    return Host("files", respond)


@pytest.mark.parametrize(
    ("form", "place", "ranges"),
    [*((form, "requirement", "bytes") for form in REMOTE_FILES)]
    + [("wheel", place, "none") for place in PLACES],
)
def test_metadata_of_urls_sends_no_variable(here, form, place, ranges):
    name, members = REMOTE_FILES[form]
    files: dict[str, bytes] = {}
    host = serve_files(files, ranges)
    members = {
        member: text.format(SENT).replace("HOST", host.url)
        for member, text in members.items()
    }
    files[name] = packed(name, members)
    outer = f"Name: outer\nVersion: 1\nRequires-Dist: lib @ {host.url}/files/{name}\n"
    files["outer-1-py3-none-any.whl"] = packed(
        "outer.whl", {"outer-1.dist-info/METADATA": outer}
    )
    requested = {
        path: text.replace("FILE", name) for path, text in PLACES[place].items()
    }
    write(here.folder, requested, host.url)

    done = here.having(SSH_AUTH_SOCK=VALUE).run("lock", "--target", "cpu")
    host.close()

    assert [one.path for one in host.log if VALUE in one.path] == []
    assert (done.status, "uv would expand" in done.err) == (2, True)
