"""Tests of Git repositories that need a login, on a host on loopback."""

import shutil

import pytest

from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.git_host import GitHost, commit
from tests.lab.programs import write_program

LOGIN = "me:s3cr3t"
PROJECT = '[project]\nname = "tool"\nversion = "1.0"\n'
BUILD = (
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
)
HEADER = "Authorization: Basic bWU6czNjcjN0"
BACKEND = """
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "tool-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for file, text in {
            "METADATA": "Metadata-Version: 2.1\\nName: tool\\nVersion: 1.0\\n",
            "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
            "RECORD": "",
        }.items():
            wheel.writestr("tool-1.0.dist-info/" + file, text)
    return name
"""


@pytest.fixture
def private(tmp_path):
    """Serve a repository that only the login can read."""
    files = {"pyproject.toml": PROJECT + BUILD, "backend.py": BACKEND}
    commit(tmp_path / "served" / "tool", files)
    host = GitHost(tmp_path / "served", LOGIN)
    yield host
    host.close()


def use_netrc(home, _server):
    (home / ".netrc").write_text("machine 127.0.0.1 login me password s3cr3t\n")
    (home / ".netrc").chmod(0o600)
    return {}


def use_store(home, server):
    (home / ".gitconfig").write_text("[credential]\n\thelper = store\n")
    address = server.replace("://", f"://{LOGIN}@")
    (home / ".git-credentials").write_text(f"{address}\n")
    return {}


def use_helper(home, _server):
    (home / ".gitconfig").write_text("[credential]\n\thelper = lab\n")
    answer = "echo username=me; echo password=s3cr3t"
    write_program(home / "bin" / "git-credential-lab", answer)
    return {"PATH": str(home / "bin")}


def use_helper_with_variable(home, _server):
    (home / ".gitconfig").write_text("[credential]\n\thelper = lab\n")
    answer = 'echo username=me; echo "password=$GH_TOKEN"'
    write_program(home / "bin" / "git-credential-lab", answer)
    return {"PATH": str(home / "bin"), "GH_TOKEN": "s3cr3t"}


def use_askpass(home, _server):
    answer = 'case $1 in User*) echo me;; *) echo "$CI_PASSWORD";; esac'
    write_program(home / "bin" / "askpass", answer)
    return {"GIT_ASKPASS": str(home / "bin" / "askpass"), "CI_PASSWORD": "s3cr3t"}


def use_configuration_variables(_home, server):
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{server}/.extraHeader",
        "GIT_CONFIG_VALUE_0": HEADER,
    }


def use_configuration_parameters(_home, server):
    return {"GIT_CONFIG_PARAMETERS": f"'http.{server}/.extraHeader'='{HEADER}'"}


def use_global_file(home, server):
    (home / "other").write_text(f'[http "{server}"]\n\textraHeader = "{HEADER}"\n')
    return {"GIT_CONFIG_GLOBAL": str(home / "other")}


def use_url(_home, _server):
    return {}


WAYS = {
    "netrc": use_netrc,
    "credential.helper=store": use_store,
    "a helper on PATH": use_helper,
    "a helper with a variable": use_helper_with_variable,
    "an askpass with a variable": use_askpass,
    "GIT_CONFIG_COUNT": use_configuration_variables,
    "GIT_CONFIG_PARAMETERS": use_configuration_parameters,
    "GIT_CONFIG_GLOBAL": use_global_file,
    "a login in the URL": use_url,
    "a user in the URL and a helper": use_helper,
    "a user in the URL and netrc": use_netrc,
}


@pytest.fixture
def here(workshop, play):
    """Return a workshop on a machine without a GPU."""
    play(NO_GPU)
    return workshop


@pytest.mark.parametrize(
    "way",
    mostly_heavy(
        WAYS,
        ["netrc", "a helper with a variable", "a user in the URL and a helper"],
    ),
)
def test_private_repository_is_readable(here, private, tmp_path, way):
    home = tmp_path / "person"
    home.mkdir()
    variables = WAYS[way](home, private.url)
    if "PATH" in variables:
        variables["PATH"] += f":{here.environment['PATH']}"
    login = way == "a login in the URL"
    address = f"git+{private.url}/tool/.git"
    if login:
        address = address.replace("://", f"://{LOGIN}@")
    elif "user" in way:
        address = address.replace("://", "://me@")
    requirements = here.folder / "requirements.txt"
    requirements.write_text(f"torch\ntool @ {address}\n", "utf-8")

    own = here.having(HOME=str(home), **variables)
    done = own.run("install")
    assert done.ok, done.err
    assert "s3cr3t" not in done.out + done.err
    assert "s3cr3t" not in here.lock("pylock.cpu.toml")
    shutil.rmtree(here.folder / ".venv")
    again = own.having(UV_CACHE_DIR=str(tmp_path / "empty")).run("sync")
    # A lock does not contain the login of a URL.
    assert again.ok is not login, again.err
