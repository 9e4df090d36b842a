"""Sizes of folders."""

from gpuinstall.base import removal


def test_sizes_need_no_proc(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"1234")
    monkeypatch.setattr(removal, "_MOUNTS", tmp_path / "proc" / "self" / "mountinfo")

    assert removal.tree_size(tmp_path) == 4


def test_sizes_need_no_access_to_the_mounts(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"1234")
    monkeypatch.setattr(removal, "_MOUNTS", tmp_path)

    assert removal.tree_size(tmp_path) == 4
