"""Tests of computing the sizes of folders."""

from gpuinstall.base import removal


def test_tree_size_works_without_proc(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"1234")
    monkeypatch.setattr(removal, "_MOUNTS", tmp_path / "proc" / "self" / "mountinfo")

    assert removal.tree_size(tmp_path) == 4
