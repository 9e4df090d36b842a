"""Applications with an environment of their own, known by what lies in their folder."""

import pytest

from gpuinstall.environments.application import application_of, find_application


@pytest.mark.parametrize(
    ("paths", "environment"),
    [
        (["python_embeded/", "ComfyUI/main.py"], "python_embeded"),
        (["standalone-env/", "ComfyUI/main.py", "ComfyUI/.venv/"], "ComfyUI/.venv"),
        (["custom_nodes/", "uv-cache/", ".venv/"], ".venv"),
        (["main.py", "comfy/", "custom_nodes/", "venv/"], "venv"),
        (["main.py", "comfy/", "custom_nodes/", ".venv/"], ".venv"),
        (["modules/launch_utils.py", "venv/"], "venv"),
    ],
)
def test_an_application_is_known_by_its_folder(tmp_path, paths, environment):
    for path in paths:
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if path.endswith("/") else place.touch()

    found = find_application(tmp_path)

    assert found is not None
    assert found.environment == tmp_path / environment
    inside = found.environment.parent
    assert find_application(inside) == found
    assert find_application(tmp_path / "custom_nodes" / "a node") == found


def test_what_is_no_application_or_has_no_environment_is_none(tmp_path):
    (tmp_path / "custom_nodes").mkdir()
    (tmp_path / "comfy").mkdir()
    (tmp_path / "main.py").touch()
    assert find_application(tmp_path) is None

    (tmp_path / "venv").mkdir()
    assert application_of(tmp_path / "other") is None
    assert application_of(tmp_path / "venv") is not None
