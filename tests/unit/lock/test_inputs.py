import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.lock.declaration import (
    are_same,
    canonical,
    changed_inputs,
    digest,
    has_place,
    is_requirement,
    lines_of,
    read_inputs,
)


def test_the_digest_does_not_depend_on_the_order():
    assert digest(("torch", "numpy")) == digest(("numpy", "torch"))
    assert digest(("torch", "numpy")) != digest(("torch",))


def test_requirements_have_one_spelling():
    assert canonical(("torch >=2", "NumPy", "Torch>=2")) == ("torch>=2", "numpy")
    assert are_same(("torch >=2", "NumPy"), ("numpy", "Torch>=2"))
    assert canonical(('Typing_Extensions[a]; os_name == "nt"',)) == (
        'typing-extensions[a]; os_name == "nt"',
    )
    with pytest.raises(UsageError) as caught:
        canonical(("torch==",))
    assert caught.value.code == "requirement-malformed"
    assert [is_requirement(text) for text in ("torch>=2", "torch==", 5)] == [True, False, False]


def test_a_requirements_file_is_recorded_by_its_path_from_the_folder(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "in.txt").write_text("torch\n", encoding="utf-8")
    (tmp_path / "base.txt").write_text("torch\n", encoding="utf-8")
    files = {
        str(path): read_inputs(str(path)) for path in (folder / "in.txt", tmp_path / "base.txt")
    }
    assert lines_of(files, folder) == {"../base.txt": ("torch",), "in.txt": ("torch",)}
    assert [has_place(name, folder) for name in (*files, "/dev/null")] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("# the same, said otherwise\n\nnumpy\ntorch >=2\n", []),
        ("-r more.txt\nnumpy\n", []),
        ("torch>=2\n", ["inputs-changed"]),
        ("torch==\n", ["inputs-changed"]),
        ("--index-url https://index.example/\n", ["inputs-changed"]),
        (None, ["inputs-gone"]),
    ],
)
def test_a_file_that_asks_for_something_else_or_is_gone_has_changed_inputs(tmp_path, text, codes):
    file = tmp_path / "in.txt"
    (tmp_path / "more.txt").write_text("torch>=2", encoding="utf-8")
    file.write_text("torch>=2\nnumpy\n", encoding="utf-8")
    before = lines_of({str(file): read_inputs(str(file))}, tmp_path)
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    assert [reason.code for reason in changed_inputs(before, tmp_path)] == codes


def test_a_record_of_what_is_no_file_is_not_read(tmp_path):
    reasons = changed_inputs(dict.fromkeys(("/dev/zero", "..", "a\0b"), ("torch",)), tmp_path)
    assert {reason.code for reason in reasons} == {"inputs-gone"}
