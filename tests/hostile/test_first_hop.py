"""Tests of the servers that a repository in ``trusted-sources`` leads to."""

import pytest

from tests.integration.test_private_repositories import BACKEND, BUILD, PROJECT
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
    (here.folder / "requirements.txt").write_text(lines, "utf-8")


def submodule(address, path="sub"):
    """Return the Git command that adds a submodule."""
    return ("-c", "protocol.file.allow=always", "submodule", "add", "-q", address, path)


def test_submodule_outside_the_list_is_refused(wary, trusted, other, tmp_path):
    address = f"{other.url}/sub/.git"
    commit(tmp_path / "trusted" / "tool", FILES, submodule(address))
    other.log.clear()
    one = wary(f"{trusted.url}/")
    require(one, f"{trusted.url}/tool/.git")

    done = one.run("install")

    assert done.status == 4, done.err
    fault = "a repository in trusted-sources requires {}, which is not in the list"
    assert fault.format(address) in done.err
    assert other.log == []


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


@pytest.mark.heavy
def test_submodule_of_a_submodule_is_refused(wary, trusted, other, tmp_path):
    inner = tmp_path / "trusted" / "inner"
    commit(inner, {"a.txt": "x"}, submodule(f"{other.url}/sub/.git"))
    command = submodule(f"{trusted.url}/inner/.git")
    commit(tmp_path / "trusted" / "tool", FILES, command)
    other.log.clear()
    one = wary(trusted.url)
    require(one, f"{trusted.url}/tool/.git")

    done = one.run("lock", "--target", "cpu")

    assert done.status == 4, done.err
    assert f"trusted-sources requires {other.url}/sub/.git" in done.err
    assert other.log == []


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


def test_repository_required_by_a_repository_is_refused(wary, trusted, other, tmp_path):
    required = f'dependencies = ["deep @ git+{other.url}/sub/.git"]\n'
    files = FILES | {"pyproject.toml": PROJECT + required + BUILD}
    commit(tmp_path / "trusted" / "tool", files)
    one = wary(f"{trusted.url}/")
    require(one, f"{trusted.url}/tool/.git")

    done = one.run("lock", "--target", "cpu")

    assert done.status == 4, done.err
    assert f"trusted-sources requires {other.url}/sub/.git" in done.err
    assert other.log == []


def test_file_required_by_url_is_requested_and_refused(wary, trusted, other, tmp_path):
    wheel = make_wheel(tmp_path / "other", "x", "1.0")
    required = f'dependencies = ["x @ {other.url}/{wheel.name}"]\n'
    files = FILES | {"pyproject.toml": PROJECT + required + BUILD}
    commit(tmp_path / "trusted" / "tool", files)
    one = wary(f"{trusted.url}/")
    require(one, f"{trusted.url}/tool/.git")

    done = one.run("install")

    assert done.status == 2, done.err
    assert f"x from {other.url}/{wheel.name} is not trusted" in done.err
    assert other.log


@pytest.mark.heavy
def test_build_requirement_by_url_is_requested(wary, trusted, other, tmp_path):
    build = BUILD.replace("[]", f'["x @ {other.url}/x-1.0-py3-none-any.whl"]', 1)
    commit(tmp_path / "trusted" / "tool", FILES | {"pyproject.toml": PROJECT + build})
    one = wary(f"{trusted.url}/")
    require(one, f"{trusted.url}/tool/.git")

    one.run("install")

    assert other.log, "docs/trust.md says that uv cannot be told to refuse it"


@pytest.mark.heavy
def test_redirect_of_a_file_is_followed(wary, other):
    first = Host(
        "redirecting",
        lambda path, _: Answer(status=302, headers={"Location": f"{other.url}{path}"}),
    )
    one = wary(f"{first.url}/")
    line = f"torch\nx @ {first.url}/x-1.0-py3-none-any.whl\n"
    (one.folder / "requirements.txt").write_text(line, "utf-8")

    one.run("install")
    first.close()

    assert other.log, "docs/trust.md says that uv cannot be told to refuse it"


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
