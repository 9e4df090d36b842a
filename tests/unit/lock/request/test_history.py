import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import FOLDER_REQUEST, Request
from gpuinstall.lock.file.folder import read_folder_locks
from gpuinstall.lock.request.history import (
    combine_recorded_requests,
    increment_revision,
    remove_packages,
    update_request,
)
from tests.lab.parsed import listed, required, written

ASKED = Request(("torch", "numpy", "transformers<5"))
DECLARED = Request(
    ("torch", "numpy", "rich"), files={"pyproject.toml": required("torch", "numpy")}
)


def add(asked, *requirements, **files):
    words = required(*requirements)
    return update_request(asked, parsed(asked.files), words, parsed(files))


def parsed(files):
    return {
        name: listed(line if isinstance(line, str) else line.line for line in lines)
        for name, lines in files.items()
    }


@pytest.mark.parametrize(
    ("added", "requirements"),
    [
        ((), ("torch", "numpy", "transformers<5")),
        (("Numpy",), ("torch", "numpy", "transformers<5")),
        (("rich",), ("torch", "numpy", "transformers<5", "rich")),
        (("torch==2.13.0",), ("torch==2.13.0", "numpy", "transformers<5")),
        (("rich", "numpy<2", "torch"), ("torch", "numpy<2", "transformers<5", "rich")),
        (("Transformers[torch]",), ("torch", "numpy", "transformers[torch]")),
        (("./thing",), ("torch", "numpy", "transformers<5", "./thing")),
    ],
)
def test_added_requirement_replaces_the_same_package(added, requirements):
    assert written(add(ASKED, *added).requirements) == requirements


def test_changed_requirements_file_replaces_its_previous_requirements():
    first = add(
        FOLDER_REQUEST,
        "rich",
        one=("torch", "numpy", "-c numpy<2"),
        two=("torch", "cowsay"),
    )
    again = add(first, one=("torch",))
    assert set(written(again.requirements)) == {"rich", "torch", "cowsay"}
    assert written(first.constraints) == ("-c numpy<2",)
    assert again.constraints == ()


@pytest.mark.parametrize(
    ("declared", "requirements"),
    [
        (("torch", "numpy"), ("torch", "numpy", "rich")),
        (("torch",), ("torch", "rich")),
        (("torch", "rich==14"), ("torch", "rich==14")),
        ((), ("rich",)),
    ],
)
def test_changed_pyproject_replaces_its_recorded_requirements(declared, requirements):
    today = {"pyproject.toml": declared}
    assert written(update_request(DECLARED, parsed(today)).requirements) == requirements


def test_added_requirement_precedes_an_unchanged_declaration():
    today = {"pyproject.toml": ("torch", "numpy")}
    asked = add(update_request(FOLDER_REQUEST, parsed(today)), "torch==2.13.0")
    again = update_request(asked, parsed(today))
    assert set(written(again.requirements)) == {"torch==2.13.0", "numpy"}
    newer = {"pyproject.toml": ("torch>=2.14", "numpy")}
    again = update_request(asked, parsed(newer))
    assert set(written(again.requirements)) == {"torch>=2.14", "numpy"}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("torch", "torch-stays"),
        ("numpy", "requested-elsewhere"),
        ("cowsay", "not-requested"),
    ],
)
def test_only_added_requirements_are_removed(name, code):
    with pytest.raises(UsageError) as raised:
        remove_packages(DECLARED, (name,))
    assert raised.value.code == code
    assert written(remove_packages(DECLARED, ("Rich",)).requirements) == (
        "torch",
        "numpy",
    )


def test_request_revision_ignores_requirement_order():
    recorded = Request(("torch", "numpy"), revision=3)
    assert increment_revision(Request(("numpy", "torch")), recorded).revision == 3
    assert increment_revision(Request(("torch",)), recorded).revision == 4
    assert increment_revision(Request(("torch",)), FOLDER_REQUEST).revision == 0


def lock(folder, target, inputs, revision=0):
    text = 'lock-version = "1.0"\ncreated-by = "gpuinstall"\npackages = []\n[tool.gpuinstall]\n'
    text += f"inputs = {inputs}\nrequest-revision = {revision}\n"
    (folder / f"pylock.{target}.toml").write_text(text, "utf-8")


def test_latest_revision_determines_the_request(tmp_path):
    lock(tmp_path, "cpu", '["torch", "numpy"]')
    assert written(
        combine_recorded_requests(read_folder_locks(tmp_path)).requirements
    ) == ("torch", "numpy")
    lock(tmp_path, "cu126", '["torch"]')
    assert set(
        written(combine_recorded_requests(read_folder_locks(tmp_path)).requirements)
    ) == {
        "torch",
        "numpy",
    }
    lock(tmp_path, "cu130", '["torch"]', 1)
    assert combine_recorded_requests(read_folder_locks(tmp_path)) == Request(
        ("torch",), revision=1
    )
