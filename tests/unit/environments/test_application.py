"""Detection of applications with their own environment."""

import pytest

from gpuinstall.environments.application import (
    find_application,
    find_owning_application,
)
from tests.unit.install.environments import write_files

LAYOUTS = {
    "python_embeded": "python_embeded/ ComfyUI/main.py",
    "ComfyUI/.venv": "standalone-env/ ComfyUI/main.py ComfyUI/.venv/",
    ".venv": "custom_nodes/ uv-cache/ .venv/",
    "venv": "main.py comfy/ custom_nodes/ venv/",
    "./.venv": "main.py comfy/ custom_nodes/ .venv/",
    "./venv": "modules/launch_utils.py venv/",
}
"""Files in an application's folder, by the path of its environment."""


@pytest.mark.parametrize("environment", LAYOUTS)
def test_application_is_found_by_its_files(tmp_path, environment):
    write_files(tmp_path, *LAYOUTS[environment].split())

    found = find_application(tmp_path)

    assert found is not None
    assert found.environment == tmp_path / environment
    for folder in (found.environment.parent, tmp_path / "custom_nodes" / "a node"):
        assert find_application(folder) == found


def test_application_without_an_environment_is_not_found(tmp_path):
    write_files(tmp_path, "custom_nodes/", "comfy/", "main.py")
    assert find_application(tmp_path) is None

    (tmp_path / "venv").mkdir()
    assert find_owning_application(tmp_path / "other") is None
    assert find_owning_application(tmp_path / "venv") is not None
