import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.values import replace
from gpuinstall.lock.file.lock import Record, compare_requests
from gpuinstall.lock.request.declaration import (
    group_files_by_path,
    read_constraints,
    read_inputs,
    reread_file,
)
from tests.lab.parsed import listed, required, written


def lines_of(files, folder):
    return {
        name: written(one.lines)
        for name, one in group_files_by_path(files, folder).items()
    }


def test_requirements_file_is_recorded_by_relative_path(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "in.txt").write_text("torch\n", "utf-8")
    (tmp_path / "base.txt").write_text("torch\n", "utf-8")
    files = {
        str(path): read_inputs(str(path))
        for path in (folder / "in.txt", tmp_path / "base.txt")
    }
    files["/dev/null"] = listed(["numpy"])
    assert lines_of(files, folder) == {
        "": ("numpy",),
        "../base.txt": ("torch",),
        "in.txt": ("torch",),
    }


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("# the same, said otherwise\n\nnumpy\ntorch >=2\n", ()),
        ("-r more.txt\nnumpy\n", ()),
        ("torch>=2\n", ("in.txt",)),
        ("--index-url https://index.example/\n", ("in.txt",)),
    ],
)
def test_reformatted_requirements_file_is_unchanged(tmp_path, text, changed):
    file = tmp_path / "in.txt"
    (tmp_path / "more.txt").write_text("torch>=2", "utf-8")
    file.write_text("torch>=2\nnumpy\n", "utf-8")
    before = lines_of({str(file): read_inputs(str(file))}, tmp_path)
    file.write_text(text, "utf-8")
    lines = reread_file("in.txt", required("torch"), tmp_path, no_sources=()).lines
    record = Record(inputs=("torch",), requirements_files=before)
    now = replace(record, requirements_files={"in.txt": written(lines)})
    assert compare_requests(record, now).files == changed


def test_lock_selects_only_files_of_its_repository(tmp_path):
    (tmp_path / "names.txt").write_text("secret", "utf-8")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "linked").symlink_to("..")
    own = str(tmp_path / "names.txt")
    for name in ("/dev/zero", "..", "a\0b", "../names.txt", "linked/names.txt", own):
        with pytest.raises(UsageError):
            reread_file(name, required("torch"), folder, no_sources=())


def test_constraints_file_is_reread_as_constraints(tmp_path):
    file = tmp_path / "only.txt"
    file.write_text("torch<2.14\n-c more.txt\n", "utf-8")
    (tmp_path / "more.txt").write_text("numpy<2\n", "utf-8")
    before = lines_of({str(file): read_constraints(str(file))}, tmp_path)
    assert before == {"only.txt": ("-c torch<2.14", "-c numpy<2")}
    again = reread_file(
        "only.txt", required(*before["only.txt"]), tmp_path, no_sources=()
    )
    assert written(again.lines) == (
        "-c torch<2.14",
        "-c numpy<2",
    )
