import pytest

from gpuinstall.base.versions import Backend, known_backend


@pytest.mark.parametrize(
    ("tag", "kind", "version", "in_a_file_name"),
    [
        ("cpu", "cpu", None, "cpu"),
        ("cu126", "cuda", "12.6", "cu126"),
        ("cu92", "cuda", "9.2", "cu92"),
        ("rocm7.2", "rocm", "7.2", "rocm7-2"),
        ("rocm5.4.2", "rocm", "5.4.2", "rocm5-4-2"),
        ("xpu", "xpu", None, "xpu"),
    ],
)
def test_a_tag_is_read_and_written_as_it_was(tag, kind, version, in_a_file_name):
    backend = Backend.parse(tag)

    assert backend == Backend(kind, version)
    assert (str(backend), backend.tag, backend.file_tag) == (tag, tag, in_a_file_name)


@pytest.mark.parametrize(
    "text",
    ["", "cu", "cu1", "cu1300", "CU126", "cuda126", "rocm7.", "cpu2", "cpu ", "gpu"],
)
def test_what_is_no_tag_is_named(text):
    assert known_backend(text) is None
    with pytest.raises(ValueError, match="is not a backend such as cu126 or cpu"):
        Backend.parse(text)
