import json
import os

import pytest

from gpuinstall.cli.main import run_command_line
from tests.unit.export.locks import cpu_lock, cuda_lock


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


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("requirements", "# From pylock.cu126.toml"),
        ("conda", "# From pylock"),
        ("dockerfile", "# syntax=docker"),
    ],
)
def test_export_prints_requested_format_to_stdout(form, start, export):
    plain = export(form).out
    assert plain.startswith(start)
    data = json.loads(export(f"{form} --json").out)["data"]
    assert data == {"format": form, "path": None, "text": plain}


def test_export_writes_the_output_file(folder, export):
    data = json.loads(export("requirements -o locked.txt --json").out)["data"]
    assert data["path"] == "locked.txt"
    assert (folder / "locked.txt").read_text("utf-8") == data["text"]


def test_export_with_several_locks_requires_lock_option(folder, export):
    (folder / "pylock.cpu.toml").write_text(cpu_lock().text, "utf-8")
    assert "pylock.cpu.toml, pylock.cu126.toml" in export("requirements", 2).err
    chosen = export("requirements --lock pylock.cpu.toml").out
    assert "torch-2.14.1%2Bcpu" in chosen


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


def test_export_warns_of_local_files(folder, export, monkeypatch):
    monkeypatch.setenv("UV_FIND_LINKS", "/w")
    text = cuda_lock().text.replace("https://index.example/torch-", "file:///w/torch-")
    (folder / "pylock.cu126.toml").write_text(text, "utf-8")
    written = export("requirements")
    assert "torch @ file:///w/" in written.out
    assert written.err == (
        "warning: pylock.cu126.toml has packages from local folders (torch), so the export works only on this machine\n"
    )
    assert export("constraints").err == "", "versions alone come from anywhere"


@pytest.mark.parametrize("form", ["uv", "dockerfile", "needs"])
def test_export_rejects_a_lock_for_several_pythons(form, folder, export):
    text = cuda_lock().text.replace('"==3.12.*"', '">=3.12"')
    (folder / "pylock.cu126.toml").write_text(text, "utf-8")
    assert "has an unknown Python version" in export(form, 2).err


def test_export_writes_through_a_link(folder, export):
    (folder / "real.txt").touch(mode=0o600)
    (folder / "requirements.txt").symlink_to("real.txt")
    export("requirements -o requirements.txt")
    assert (folder / "requirements.txt").is_symlink()
    assert "torch" in (folder / "real.txt").read_text("utf-8")
    assert (folder / "real.txt").stat().st_mode & 0o777 == 0o600


def test_export_writes_to_a_pipe(folder, export):
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    export("requirements -o pipe")
    assert os.read(reader, 1 << 16).startswith(b"# From pylock.cu126.toml")
    assert (folder / "pipe").is_fifo()
    os.close(reader)


def test_export_overwrites_only_exported_files(folder, export):
    (folder / "mine.txt").write_text("six  # my notes\n", "utf-8")
    error = export("requirements -o mine.txt", 2).err
    assert "mine.txt already exists" in error
    assert " -o locked-mine.txt\n" in error
    assert (folder / "mine.txt").read_text("utf-8") == "six  # my notes\n"
    for form in (
        "requirements",
        "constraints",
        "conda",
        "uv",
        "dockerfile",
        "dockerfile --any",
        "needs",
    ):
        export(f"{form} -o ours")
        export(f"{form} -o ours")
        (folder / "ours").unlink()
