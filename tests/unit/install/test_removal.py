"""Removal of gpuinstall's own cache."""

from gpuinstall.install.removal import remove_cache


def test_uninstall_removes_only_own_cache_files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "cache" / "gpuinstall"
    (tmp_path / "elsewhere" / "thesis").mkdir(parents=True)
    for folder in ("stamps", "learned", "gpuinstall-x1"):
        (own / folder).mkdir(parents=True)
    (own / "pages").symlink_to(tmp_path / "elsewhere")
    (own / "mine.txt").touch()
    assert remove_cache() == [own / "mine.txt"]
    assert {path.name for path in own.iterdir()} == {"mine.txt"}
    assert (tmp_path / "elsewhere" / "thesis").is_dir()
