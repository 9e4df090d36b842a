"""Code that runs while a package is built: what it sees of the user."""

from __future__ import annotations

import pytest

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
def test_a_build_of_an_installation_sees_no_token_and_no_login(here, tmp_path, line):
    seen = tmp_path / "seen"
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
