"""Tests that package URLs in project files are reported or rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.git_host import commit
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.projects import project_files
from tests.lab.wheels import make_wheel

STATIC = '[project]\nname = "lib"\nversion = "1"\n'
LINKS = {
    "link": '<a href="{url}/files/filelock-9.0-py3-none-any.whl">x</a>',
    "base": '<base href="{url}/files/"><a href="filelock-9.0-py3-none-any.whl">x</a>',
    "json": '{{"meta": {{"api-version": "1.1"}}, "name": "filelock", "versions": ["9.0"], "files": ['
    '{{"filename": "filelock-9.0-py3-none-any.whl", "url": "{url}/files/filelock-9.0-py3-none-any.whl", "hashes": {{}}}}]}}',
}


@pytest.mark.parametrize(
    ("form", "requires", "status"),
    [("link", (), 0), ("base", (), 0), ("json", ("torch<1",), 3)],
)
def test_host_behind_project_index_is_reported(here, tmp_path, form, requires, status):
    files = serve_wheels(tmp_path, "files", requires)
    text = LINKS[form].format(url=files.url)
    kind = "application/vnd.pypi.simple.v1+json" if form == "json" else "text/html"

    def respond(path, _headers):
        is_listed = path == "/simple/filelock/"
        return Answer(body=text.encode(), content_type=kind) if is_listed else NOT_FOUND

    index = Host("index", respond)
    here.write("uv.toml", f'extra-index-url = ["{index.url}/simple"]\n')
    done = here.run("lock", "-q", "--target", "cpu", "torch", "filelock")
    index.close()
    files.close()

    assert done.status == status, done.err
    assert f"{files.url} (linked by {index.url}/simple from " in done.err


NAMES = (
    "CI_JOB_URL",
    "EMAIL",
    "GIT_AUTHOR_EMAIL",
    "GITHUB_TOKEN",
    "GIT_COMMITTER_NAME",
    "LOGNAME",
    "MY_THING",
    "SSH_CONNECTION",
    "SYSTEM_ACCESSTOKEN",
    "UV_INDEX_CORP_USERNAME",
    "UV_PUBLISH_TOKEN",
    "XDG_SESSION_SECRET",
)


def serve_wheels(folder: Path, name: str, requires: tuple[str, ...] = ()) -> Host:
    """Serve an index in which every file exists and has these requirements."""

    def respond(path, _headers):
        file = path.rpartition("/")[2]
        if file.endswith(".whl"):
            package = file.partition("-")[0]
            wheel = make_wheel(folder / name, package, "1.0", requires=requires)
            return Answer(body=wheel.read_bytes())
        package = path.strip("/").rpartition("/")[2]
        if package != "painter":
            return NOT_FOUND
        link = f'<a href="/files/{package}-1.0-py3-none-any.whl">{package}</a>'
        return Answer(body=link.encode(), content_type="text/html")

    return Host(name, respond)


def test_metadata_urls_contain_no_variable(here, tmp_path):
    tracker = serve_wheels(tmp_path, "tracker")
    requires = tuple(
        f"part{number} @ {tracker.url}/${{{name}}}/part{number}-1.0-py3-none-any.whl"
        for number, name in enumerate(NAMES)
    )
    index = serve_wheels(tmp_path, "index", requires)
    project = f"{STATIC}dependencies = {json.dumps(requires)}\n"
    commit(tmp_path / "lib", {"pyproject.toml": project})
    secretive = here.having(
        UV_INDEX=f"{index.url}/simple",
        **{name: f"s3cret-{number}" for number, name in enumerate(NAMES)},
    )

    messages = ""
    # uv reads both before gpuinstall.
    for request in ("painter", f"lib @ git+{(tmp_path / 'lib').as_uri()}"):
        done = secretive.run("lock", request, "--target", "cpu")
        messages += done.out + done.err
    index.close()
    tracker.close()

    requested = [request.path for request in tracker.log]
    assert len({path.rpartition("/")[2] for path in requested}) == len(NAMES)
    assert [path for path in requested if "s3cret" in path] == []
    assert "s3cret" not in messages


def test_metadata_of_a_build_contains_no_proxy(here, tmp_path):
    tracker = serve_wheels(tmp_path, "tracker")
    requires = f"part @ {tracker.url}/${{HTTP_PROXY}}/part-1.0-py3-none-any.whl"
    files = project_files("lib", "1.0", [requires])
    static = f"dependencies = {[requires]!r}"
    files["pyproject.toml"] = files["pyproject.toml"].replace(
        static, 'dynamic = ["dependencies"]'
    )
    commit(tmp_path / "lib", files)
    proxied = here.having(HTTP_PROXY="http://me:s3cret@h.example", NO_PROXY="127.0.0.1")

    proxied.run("lock", f"lib @ git+{(tmp_path / 'lib').as_uri()}", "--target", "cpu")
    tracker.close()

    requested = [request.path for request in tracker.log]
    assert requested
    assert [path for path in requested if "s3cret" in path] == []
