"""Tests of the environment variables that build code receives."""

from __future__ import annotations

import json

import pytest
import tomli
import tomli_w

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


@pytest.mark.heavy
@pytest.mark.parametrize("line", ["./tool", "-e ./tool"])
def test_build_environment_contains_no_credentials(here, tmp_path, line):
    seen = tmp_path / "seen"
    (here.folder / "tool").mkdir()
    here.write("tool/pyproject.toml", STATIC)
    backend = BACKEND.format(seen=str(seen))
    here.write("tool/backend.py", backend)
    here.write("requirements.txt", f"torch\n{line}\n")
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


def add_project(folder, name, seen, *required):
    """Write a project whose build records its variables."""
    (folder / name).mkdir()
    needs = "".join(f"Requires-Dist: {one.partition(' ')[0]}\\n" for one in required)
    backend = BACKEND.format(seen=str(seen)).replace("1.0\\n", f"1.0\\n{needs}")
    backend = backend.replace("tool", name).replace('["filelock"]', "[]")
    (folder / name / "backend.py").write_text(
        backend.replace("    import filelock\n", ""), "utf-8"
    )
    static = STATIC.replace("tool", name).replace("[]", json.dumps(required), 1)
    (folder / name / "pyproject.toml").write_text(static, "utf-8")


@pytest.mark.heavy
def test_builds_of_required_packages_receive_all_variables(here, tmp_path):
    for name in ("deep", "introduced"):
        add_project(here.folder, name, tmp_path / name)
    deep = f"deep @ {(here.folder / 'deep').as_uri()}"
    add_project(here.folder, "app", tmp_path / "app", deep)
    here.write("requirements.txt", "torch\n./app\n")
    assert here.run("lock", "--target", "cpu").ok
    lock = here.folder / "pylock.cpu.toml"
    document = tomli.loads(lock.read_text("utf-8"))
    document["packages"].append(
        {"name": "introduced", "directory": {"path": "introduced"}}
    )
    lock.write_text(tomli_w.dumps(document), "utf-8")

    login = {"UV_INDEX_CORP_USERNAME": "me"}
    done = here.having(MY_FLAVOR="x", **login).run("sync", "--target", "cpu")

    assert done.ok, done.err
    for name in ("app", "deep", "introduced"):
        assert "UV_INDEX_CORP" not in (tmp_path / name).read_text("utf-8")
    received = {
        name: "MY_FLAVOR" in (tmp_path / name).read_text("utf-8")
        for name in ("app", "deep", "introduced")
    }
    assert received == {"app": True, "deep": True, "introduced": False}
