"""Applications with an environment of their own, known by what lies in their folder."""

import pytest

from gpuinstall.environments.application import application_of, find_application

LAYOUTS = {
    "python_embeded": "python_embeded/ ComfyUI/main.py",
    "ComfyUI/.venv": "standalone-env/ ComfyUI/main.py ComfyUI/.venv/",
    ".venv": "custom_nodes/ uv-cache/ .venv/",
    "venv": "main.py comfy/ custom_nodes/ venv/",
    "./.venv": "main.py comfy/ custom_nodes/ .venv/",
    "./venv": "modules/launch_utils.py venv/",
}
"""What lies in the folder of an application, by where its environment does."""


@pytest.mark.parametrize("environment", LAYOUTS)
def test_an_application_is_known_by_its_folder(tmp_path, environment):
    for path in LAYOUTS[environment].split():
        place = tmp_path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if path.endswith("/") else place.touch()

    found = find_application(tmp_path)

    assert found is not None
    assert found.environment == tmp_path / environment
    for folder in (found.environment.parent, tmp_path / "custom_nodes" / "a node"):
        assert find_application(folder) == found


def test_what_is_no_application_or_has_no_environment_is_none(tmp_path):
    (tmp_path / "custom_nodes").mkdir()
    (tmp_path / "comfy").mkdir()
    (tmp_path / "main.py").touch()
    assert find_application(tmp_path) is None

    (tmp_path / "venv").mkdir()
    assert application_of(tmp_path / "other") is None
    assert application_of(tmp_path / "venv") is not None
