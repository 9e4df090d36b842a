"""Code that runs while a package is built: what it sees of the user, and when it does not run at all."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuinstall.base import process
from tests.lab.host import NOT_FOUND, Answer, Host

SECRET = "hunter2-hunter3"
BACKEND = """
import base64, hashlib, os, pathlib, zipfile
def record():
    with open({seen!r}, "a") as file:
        file.write(f"{{dict(os.environ)}}\\n")
def get_requires_for_build_wheel(config_settings=None):
    record()
    return ["filelock"]
get_requires_for_build_editable = get_requires_for_build_wheel
def build_wheel(folder, config_settings=None, metadata_directory=None):
    import filelock
    record()
    name = "tool-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for file, text in {{
            "METADATA": "Metadata-Version: 2.1\\nName: tool\\nVersion: 1.0\\n",
            "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
            "RECORD": "",
        }}.items():
            wheel.writestr(f"tool-1.0.dist-info/{{file}}", text)
    return name
build_editable = build_wheel
"""
STATIC = (
    '[project]\nname = "tool"\nversion = "1.0"\ndependencies = []\n'
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
)


@pytest.fixture
def seen(tmp_path) -> Path:
    """What a build writes when it runs."""
    file: Path = tmp_path / "seen"
    return file


@pytest.mark.heavy
@pytest.mark.parametrize("line", ["./tool", "-e ./tool"])
def test_a_build_of_an_installation_sees_no_token_and_no_login(here, seen, line):
    (here.folder / "tool").mkdir()
    (here.folder / "tool" / "pyproject.toml").write_text(STATIC, "utf-8")
    backend = BACKEND.format(seen=str(seen))
    (here.folder / "tool" / "backend.py").write_text(backend, "utf-8")
    (here.folder / "requirements.txt").write_text(f"torch\n{line}\n", "utf-8")
    index = here.environment["UV_DEFAULT_INDEX"].replace("://", f"://me:{SECRET}@")
    secretive = here.having(
        HF_TOKEN=SECRET,
        AWS_SECRET_ACCESS_KEY=SECRET,
        MY_PASSWORD=SECRET,
        DATABASE=f"postgres://me:{SECRET}@db.example/x",
        UV_DEFAULT_INDEX=index,
        KEPT="for a compiler",
    )

    done = secretive.run("install")

    assert done.status == 0, done.err
    text = seen.read_text("utf-8")
    assert "'KEPT': 'for a compiler'" in text
    assert SECRET not in text


def setup_of(seen: Path) -> str:
    return (
        f"open({str(seen)!r}, 'w')\n"
        "from setuptools import setup\nsetup(name='filelock', version='9.9')\n"
    )


@pytest.fixture
def archive(tmp_path, seen) -> Iterator[str]:
    """The address of a source archive of filelock, on a host of the stranger's."""
    file = tmp_path / "filelock-9.9.tar.gz"
    setup = setup_of(seen).encode()
    with tarfile.open(file, "w:gz") as files:
        entry = tarfile.TarInfo("filelock-9.9/setup.py")
        entry.size = len(setup)
        files.addfile(entry, io.BytesIO(setup))

    def respond(path, _headers):
        is_archive = path == f"/{file.name}"
        return Answer(body=file.read_bytes()) if is_archive else NOT_FOUND

    host = Host("stranger", respond)
    yield f"{host.url}/{file.name}"
    host.close()


@pytest.fixture
def repository(tmp_path, seen) -> str:
    """The address of a repository of filelock."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "setup.py").write_text(setup_of(seen), "utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (
        ("init", "-q"),
        ("add", "."),
        (*author, "commit", "-q", "-m", "x"),
    ):
        assert process.run(["git", *words], cwd=folder).ok
    return f"git+{folder.as_uri()}"


WORDS = {
    "a requirement": "torch\nfilelock @ {}\n",
    "without a name": "torch\n{}\n",
    "a constraint": "torch\n-c limits.txt\n",
}


@pytest.mark.parametrize("kind", WORDS)
@pytest.mark.parametrize("source", ["archive", "repository"])
def test_nothing_of_a_file_is_built_if_only_wheels_are_allowed(
    here, seen, request, kind, source
):
    address = request.getfixturevalue(source)
    text = WORDS[kind].format(address)
    (here.folder / "requirements.txt").write_text(text, "utf-8")
    (here.folder / "limits.txt").write_text(f"filelock @ {address}\n", "utf-8")

    done = here.having(GPUINSTALL_ONLY_BINARY="1").run("lock", "--target", "cpu")

    assert done.status in {3, 4}, done.err
    assert "only-binary" in done.err
    assert not seen.exists()
