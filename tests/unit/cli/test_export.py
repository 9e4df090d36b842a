import pytest

from gpuinstall.cli.main import run_command_line
from tests.unit.export.locks import cuda_lock


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Create a folder with one lock file, and change to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUINSTALL_TORCH_INDEX", raising=False)
    (tmp_path / "pylock.cu126.toml").write_text(cuda_lock().text, "utf-8")
    return tmp_path


@pytest.fixture
def export(folder, capsys):  # noqa: ARG001  in which it runs
    """Return a function that runs ``export`` and returns its output."""

    def run(line, expected=0):
        capsys.readouterr()
        assert run_command_line(["export", *line.split()]) == expected, line
        return capsys.readouterr()

    return run


def test_uv_export_contains_the_project_torch_index(folder, export):
    settings = '[tool.gpuinstall]\ntorch-index = "https://index.example/whl"\n'
    (folder / "pyproject.toml").write_text(settings, "utf-8")
    assert 'url = "https://index.example/whl/cu126"' in export("uv").out


@pytest.mark.parametrize(
    ("index", "is_other"), [("https://index.example/whl", False), (None, True)]
)
def test_uv_export_warns_of_another_index(index, is_other, export, monkeypatch):
    monkeypatch.setenv("GPUINSTALL_TORCH_INDEX", index or "")
    written = export("uv")
    assert "Another build" not in written.out
    assert ("add --torch-index URL" in written.err) == is_other
