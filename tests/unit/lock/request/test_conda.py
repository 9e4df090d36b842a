"""Conda packages as requirements of wheels."""

import json
from pathlib import Path

import pytest
import tomli

from gpuinstall.base.errors import UsageError
from gpuinstall.lock.request.conda import read_conda
from gpuinstall.sources.requirements_file import CondaRequest
from tests.lab.parsed import required

CONDA = Path(__file__).parents[3] / "data/conda.toml"
CASES = tomli.loads(CONDA.read_text("utf-8"))["case"]


def read(tmp_path, *packages):
    """Read an environment file with some packages."""
    path = tmp_path / "environment.yaml"
    lines = ["dependencies:", *(f"  - {json.dumps(one)}" for one in packages)]
    path.write_text("\n".join(lines))
    return read_conda(path, None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case["packages"]))
def test_conda_packages_become_requirements(tmp_path, case):
    listed = read(tmp_path, *case["packages"])
    [conda] = listed.conda
    request = conda.request

    assert listed.requirements == required(*case.get("requirements", ()))
    assert request.python == case.get("python")
    assert request.backend == case.get("backend")
    assert request.preferred_backend == case.get("preferred_backend")
    assert list(map(list, conda.without_wheel)) == case.get("without_wheel", [])


def test_conda_requirements_have_file_and_line(tmp_path):
    listed = read(tmp_path, "python=3.11", "cuda-version=12.6", "scipy")
    path = tmp_path / "environment.yaml"

    places = listed.conda[0].request.places
    assert {tag: str(place) for tag, place in places.items()} == {
        "3.11": f"{path}, line 2",
        "cu126": f"{path}, line 3",
    }
    assert str(listed.requirements[0].origin) == f"{path}, line 4"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("pandas=1.5|2.0", "cannot convert {} to a version specifier"),
        ("numpy=1.2x|2", "cannot convert {} to a version specifier"),
        ("??", "{!r} is not a valid conda package specification"),
        ("=1.0", "{!r} is not a valid conda package specification"),
        ("numpy[version=2]", "{!r} is not a valid conda package specification"),
        ("numpy=2 - tqdm", "{!r} is not a valid conda package specification"),
    ],
)
def test_malformed_conda_package_is_rejected(tmp_path, text, fault):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "tqdm", text)
    path = tmp_path / "environment.yaml"
    assert caught.value.message == f"{path}, line 3: {fault.format(text)}"


def test_conda_packages_without_wheel_are_reported():
    gcc = CondaRequest(without_wheel=(("ffmpeg", "ffmpeg >=6"), ("gcc", "gcc=11")))
    assert gcc.note(requested=()) == (
        "not installed, because the index may have different projects with these names: ffmpeg >=6, gcc=11; "
        "to install them from conda: conda install 'ffmpeg >=6' gcc=11; "
        "packages of the index belong to the pip section"
    )
    assert CondaRequest().note(requested=()) == ""
    six = CondaRequest(without_wheel=(("Six", "Six=1"), ("gcc", "gcc")))
    assert six.note({"six", "gcc"}) == ""
