import json
import os

import pytest

from gpuinstall.cli.main import run_command_line
from tests.unit.export.locks import cpu_lock, cuda_lock


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with one lock, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUINSTALL_TORCH_INDEX", raising=False)
    (tmp_path / "pylock.cu126.toml").write_text(cuda_lock().text, "utf-8")
    return tmp_path


def document(capsys):
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("requirements", "# From pylock.cu126.toml"),
        ("conda", "# From pylock"),
        ("dockerfile", "# syntax=docker"),
    ],
)
def test_a_lock_is_printed_in_another_format(form, start, capsys):
    assert run_command_line(["export", form]) == 0
    plain = capsys.readouterr().out
    assert plain.startswith(start)
    assert run_command_line(["export", form, "--json"]) == 0
    assert document(capsys)["data"] == {"format": form, "path": None, "text": plain}


def test_a_file_is_written_where_it_is_named(folder, capsys):
    assert (
        run_command_line(["export", "requirements", "-o", "requirements.txt", "--json"])
        == 0
    )
    data = document(capsys)["data"]
    assert data["path"] == "requirements.txt"
    assert (folder / "requirements.txt").read_text("utf-8") == data["text"]


def test_without_a_lock_it_says_how_to_get_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["export", "requirements"]) == 6
    assert "do    gpuinstall lock" in capsys.readouterr().err


def test_of_several_locks_one_has_to_be_named(folder, capsys):
    (folder / "pylock.cpu.toml").write_text(cpu_lock().text, "utf-8")
    assert run_command_line(["export", "requirements"]) == 2
    assert "pylock.cpu.toml, pylock.cu126.toml" in capsys.readouterr().err
    assert (
        run_command_line(["export", "requirements", "--lock", "pylock.cpu.toml"]) == 0
    )
    assert "torch-2.14.1%2Bcpu" in capsys.readouterr().out


def test_the_torch_index_of_the_project_is_the_one_that_uv_is_given(folder, capsys):
    settings = '[tool.gpuinstall]\ntorch-index = "https://index.example/whl"\n'
    (folder / "pyproject.toml").write_text(settings, "utf-8")
    assert run_command_line(["export", "uv", "--json"]) == 0
    assert 'url = "https://index.example/whl/cu126"' in document(capsys)["data"]["text"]


def test_a_lock_from_a_folder_is_said_to_serve_this_machine_alone(folder, capsys):
    lock = folder / "pylock.cu126.toml"
    lock.write_text(
        cuda_lock().text.replace(
            "https://index.example/torch-", "file:///wheels/torch-"
        ),
        "utf-8",
    )
    assert run_command_line(["export", "requirements"]) == 0
    captured = capsys.readouterr()
    assert "torch @ file:///wheels/" in captured.out
    assert captured.err == (
        "warning: torch in pylock.cu126.toml is in a local folder: the export works on this machine only\n"
    )


def test_a_link_stays_one_and_the_file_behind_it_is_written(folder):
    (folder / "real.txt").touch(mode=0o600)
    (folder / "requirements.txt").symlink_to("real.txt")
    assert run_command_line(["export", "requirements", "-o", "requirements.txt"]) == 0
    assert (folder / "requirements.txt").is_symlink()
    assert "torch" in (folder / "real.txt").read_text("utf-8")
    assert (folder / "real.txt").stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_and_not_replaced(folder):
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert run_command_line(["export", "requirements", "-o", "pipe"]) == 0
    assert os.read(reader, 1 << 16).startswith(b"# From pylock.cu126.toml")
    assert (folder / "pipe").is_fifo()
    os.close(reader)


@pytest.mark.usefixtures("folder")
def test_only_an_export_is_written_over(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("six  # my notes\n", "utf-8")
    assert run_command_line(["export", "requirements", "-o", "mine.txt"]) == 2
    error = capsys.readouterr().err
    assert "mine.txt is there, and no export" in error
    assert "do    Run it again with -o locked-mine.txt" in error
    assert (tmp_path / "mine.txt").read_text("utf-8") == "six  # my notes\n"
    forms = (
        ("requirements",),
        ("constraints",),
        ("conda",),
        ("uv",),
        ("dockerfile",),
        ("dockerfile", "--any"),
        ("needs",),
        ("needs", "--for", "slurm"),
    )
    for form in forms:
        for _ in "once", "again":
            assert run_command_line(["export", *form, "-o", "ours"]) == 0, form
        (tmp_path / "ours").unlink()
