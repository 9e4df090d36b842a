"""Tests of the servers that a repository in ``trusted-sources`` leads to."""

import pytest

from tests.integration.test_private_repositories import BACKEND, BUILD, PROJECT
from tests.lab.cases import mostly_heavy
from tests.lab.git_host import GitHost, commit
from tests.lab.host import Answer, Host
from tests.lab.wheels import make_wheel

FILES = {"pyproject.toml": PROJECT + BUILD, "backend.py": BACKEND}
CHECK = 'open(os.path.join(os.path.dirname(__file__), "sub", "data.txt"))\n'


@pytest.fixture
def trusted(tmp_path):
    """Return a host for the user's list, which serves ``trusted``."""
    host = GitHost(tmp_path / "trusted")
    yield host
    host.close()


@pytest.fixture
def other(tmp_path):
    """Return another host, which serves a repository with one file."""
    commit(tmp_path / "other" / "sub", {"data.txt": "x"})
    host = GitHost(tmp_path / "other")
    yield host
    host.close()


@pytest.fixture
def wary(here):
    """Return a function that adds URLs to the list of an untrusted folder."""

    def trust(*addresses):
        config = here.folder.parent / "config" / "gpuinstall" / "config.toml"
        config.parent.mkdir(parents=True)
        lines = f"trust-folder = false\ntrusted-sources = {list(addresses)}\n"
        config.write_text(lines, "utf-8")
        return here.having(XDG_CONFIG_HOME=str(config.parent.parent))

    return trust


def require(here, address):
    """Write a requirement, and return the command that locks it."""
    lines = f"torch\ntool @ git+{address}\n"
    here.write("requirements.txt", lines)


def submodule(address, path="sub"):
    """Return the Git command that adds a submodule."""
    return ("-c", "protocol.file.allow=always", "submodule", "add", "-q", address, path)


REQUIRES = "a repository in trusted-sources requires OTHER/sub/.git"
FILE = "x @ OTHER/x-1.0-py3-none-any.whl"
LEADING = {
    # pyproject.toml and submodule of a trusted repository, and the error
    "submodule": (BUILD, "OTHER/sub/.git", f"{REQUIRES}, which is not in the list"),
    "submodule of a submodule": (BUILD, "TRUSTED/inner/.git", REQUIRES),
    "repository": (
        f'dependencies = ["deep @ git+OTHER/sub/.git"]\n{BUILD}',
        "",
        REQUIRES,
    ),
    "file": (
        f'dependencies = ["{FILE}"]\n{BUILD}',
        "",
        f"{FILE.replace('@', 'from')} is not trusted",
    ),
    "file for the build": (BUILD.replace("[]", f'["{FILE}"]', 1), "", ""),
}
"""Trusted repositories that lead to a host outside the list."""
CONTACTED = {"file": 2, "file for the build": 0}
"""Requests that uv cannot refuse (docs/trust.md), with exit statuses."""


@pytest.mark.parametrize(
    "form", mostly_heavy(LEADING, {"submodule", "repository", "file"})
)
def test_trusted_repository_leads_to_no_other_host(
    wary, trusted, other, tmp_path, form
):
    def at(text):
        return text.replace("OTHER", other.url).replace("TRUSTED", trusted.url)

    pyproject, path, error = LEADING[form]
    make_wheel(tmp_path / "other", "x", "1.0")
    inner = submodule(at("OTHER/sub/.git"))
    commit(tmp_path / "trusted" / "inner", {"a.txt": "x"}, inner)
    files = FILES | {"pyproject.toml": PROJECT + at(pyproject)}
    commands = [submodule(at(path))] if path else []
    commit(tmp_path / "trusted" / "tool", files, *commands)
    other.log.clear()
    one = wary(f"{trusted.url}/")
    require(one, f"{trusted.url}/tool/.git")

    done = one.run("install")

    assert done.status == CONTACTED.get(form, 4), done.err
    assert at(error) in done.err
    assert bool(other.log) == (form in CONTACTED)


@pytest.mark.heavy
def test_submodule_is_fetched_after_its_host_is_listed(wary, trusted, other, tmp_path):
    files = FILES | {"backend.py": CHECK.join(("import os\n", BACKEND))}
    commit(tmp_path / "trusted" / "tool", files, submodule(f"{other.url}/sub/.git"))
    one = wary(f"{trusted.url}/tool/.git")
    require(one, f"{trusted.url}/tool/.git")
    assert one.run("install").status == 4

    config = one.folder.parent / "config" / "gpuinstall" / "config.toml"
    text = config.read_text("utf-8").replace("]", f", '{other.url}']")
    config.write_text(text, "utf-8")
    done = one.run("install")

    assert done.ok, done.err
    assert other.log


def test_repository_with_a_similar_name_is_refused(wary, trusted, tmp_path):
    commit(tmp_path / "trusted" / "team-evil" / "sub", {"data.txt": "x"})
    address = f"{trusted.url}/team-evil/sub/.git"
    commit(tmp_path / "trusted" / "team" / "tool", FILES, submodule(address))
    trusted.log.clear()
    one = wary(f"{trusted.url}/team")
    require(one, f"{trusted.url}/team/tool/.git")

    done = one.run("lock", "--target", "cpu")

    assert done.status == 4, done.err
    assert not [one for one in trusted.log if "evil" in one.path]


def test_redirect_of_a_repository_is_refused(wary, other):
    def redirect(path, _headers):
        return Answer(status=302, headers={"Location": f"{other.url}{path}"})

    first = Host("redirecting", redirect)
    one = wary(f"{first.url}/")
    require(one, f"{first.url}/sub/.git")

    done = one.run("lock", "--target", "cpu")
    first.close()

    assert done.status == 4, done.err
    assert other.log == []


def test_sync_refuses_submodule_outside_the_list(wary, trusted, other, tmp_path):
    address = f"{other.url}/sub/.git"
    commit(tmp_path / "trusted" / "tool", FILES, submodule(address))
    one = wary(f"{trusted.url}/")
    require(one, f"{trusted.url}/tool/.git")
    assert one.having(GPUINSTALL_TRUST_FOLDER="1").run("lock", "--target", "cpu").ok
    other.log.clear()

    done = one.having(UV_CACHE_DIR=str(tmp_path / "empty")).run("sync")

    assert done.status == 4, done.err
    assert f"trusted-sources requires {address}" in done.err
    assert other.log == []


def test_repository_is_fetched_once(here, trusted, tmp_path):
    files = {f"inner/{name}": text for name, text in FILES.items()}
    revision = commit(tmp_path / "trusted" / "tool", files)
    require(here, f"{trusted.url}/tool/.git@{revision}#subdirectory=inner")

    done = here.run("install")

    assert done.ok, done.err
    objects = [one.path for one in trusted.log if "/objects/" in one.path]
    fetched = [path for path in objects if "/info/" not in path]
    assert fetched
    assert len(fetched) == len(set(fetched))
