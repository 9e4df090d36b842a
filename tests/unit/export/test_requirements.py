from gpuinstall.export.formats import requirements
from tests.unit.export.locks import INDEX, digest, lock, wheel


def lines(text):
    return [
        line
        for line in text.replace(" \\\n   ", "").splitlines()
        if not line.startswith("#")
    ]


def test_a_marker_of_the_lock_stays():
    marked = lock("cu126", wheel("numpy", "2.3.4", marker="sys_platform == 'linux'"))
    assert lines(requirements(marked))[0].startswith(
        'numpy==2.3.4 ; sys_platform == "linux" --hash'
    )


def test_of_several_wheels_any_may_serve():
    numpy = wheel("numpy", "2.3.4")
    numpy["wheels"].append(
        {
            "url": f"{INDEX}/numpy-2.3.4-cp312-cp312-win_amd64.whl",
            "hashes": {"sha256": "f" * 64},
        }
    )
    assert lines(requirements(lock("cpu", numpy))) == [
        f"numpy==2.3.4 --hash=sha256:{digest('numpy')} --hash=sha256:{'f' * 64}"
    ]


def test_a_project_in_its_own_folder_is_left_out_and_named():
    project = {"name": "mine", "directory": {"path": ".", "editable": True}}
    library = {"name": "lib", "directory": {"path": "my lib"}}
    text = requirements(lock("cpu", wheel("numpy", "2.3.4"), project, library))
    assert lines(text) == [f"numpy==2.3.4 --hash=sha256:{digest('numpy')}"]
    assert text.splitlines()[1:3] == [
        "# Without mine: pip install --no-deps -e .",
        "# Without lib: pip install --no-deps './my lib'",
    ]


def test_a_repository_is_left_out_and_named_with_its_commit():
    repository = {"type": "git", "url": f"{INDEX}/mine", "commit-id": "0" * 40}
    mine = {"name": "mine", "vcs": repository}
    text = requirements(lock("cpu", wheel("numpy", "2.3.4"), mine))
    assert lines(text) == [f"numpy==2.3.4 --hash=sha256:{digest('numpy')}"]
    way = f"pip install --no-deps 'mine @ git+{INDEX}/mine@{'0' * 40}'"
    assert f"# Without mine: {way}\n" in text


def test_what_was_asked_for_by_address_is_taken_from_there():
    archive = {
        "url": f"{INDEX}/mine-1.tar.gz",
        "hashes": {"sha256": digest("mine")},
        "subdirectory": "python",
    }
    mine = {"name": "mine", "version": "1", "archive": archive}
    assert lines(requirements(lock("cpu", mine))) == [
        f"mine @ {INDEX}/mine-1.tar.gz#subdirectory=python --hash=sha256:{digest('mine')}"
    ]
