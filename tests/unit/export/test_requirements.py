import yaml

from gpuinstall.export.formats import format_conda_environment, format_requirements_file
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import INDEX, cpu_lock, cuda_lock, digest, lock, wheel

NUMPY = f"numpy==2.3.4 --hash=sha256:{digest('numpy')}"


def lines(*packages):
    """Return the comments and pins of a lock's requirements."""
    text = format_requirements_file(lock("cpu", *packages)).replace(" \\\n   ", "")
    _head, *rest = text.splitlines()
    return rest


def test_marker_of_a_package_is_kept():
    [line] = lines(wheel("numpy", "2.3.4", marker="sys_platform == 'linux'"))
    assert line.startswith('numpy==2.3.4 ; sys_platform == "linux" --hash')


def test_all_wheels_of_a_package_are_allowed():
    numpy = wheel("numpy", "2.3.4")
    address = f"{INDEX}/numpy-2.3.4-cp312-cp312-win_amd64.whl"
    numpy["wheels"].append({"url": address, "hashes": {"sha256": "f" * 64}})
    assert lines(numpy) == [f"{NUMPY} --hash=sha256:{'f' * 64}"]


def test_exported_requirements_omit_projects_and_repositories():
    repository = {"type": "git", "url": f"{INDEX}/git", "commit-id": "0" * 40}
    packages = (
        wheel("numpy", "2.3.4"),
        {"name": "mine", "directory": {"path": ".", "editable": True}},
        {"name": "lib", "directory": {"path": "my lib"}},
        {"name": "git", "vcs": repository},
    )
    assert lines(*packages) == [
        "# Without mine: pip install --no-deps -e .",
        "# Without lib: pip install --no-deps './my lib'",
        f"# Without git: pip install --no-deps 'git @ git+{INDEX}/git@{'0' * 40}'",
        NUMPY,
    ]


def test_requirement_by_url_keeps_its_url():
    address = f"{INDEX}/mine-1.tar.gz"
    hashes = {"sha256": digest("mine")}
    archive = {"url": address, "hashes": hashes, "subdirectory": "python"}
    assert lines({"name": "mine", "version": "1", "archive": archive}) == [
        f"mine @ {address}#subdirectory=python --hash=sha256:{digest('mine')}"
    ]


def test_conda_export_requires_driver_only_for_gpu_builds():
    assert "CONDA_OVERRIDE_CUDA=12.0 conda env create" in format_conda_environment(
        cuda_lock()
    )
    assert "CUDA" not in format_conda_environment(cpu_lock())


def test_lock_of_another_tool_may_allow_several_pythons():
    text = cuda_lock().text.replace('"==3.12.*"', '">=3.10,<3.13"')
    read = yaml.safe_load(format_conda_environment(parse("pylock.toml", text)))
    assert read["dependencies"][0] == "python<3.13,>=3.10"
