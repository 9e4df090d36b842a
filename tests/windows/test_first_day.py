"""The first commands of a user whose name is not in ASCII."""

from tests.windows.page import run_section


def test_bootstrap_installs_torch(plain, project):
    venv = plain.path(project) / ".venv"
    assert (venv / "Scripts" / "python.exe").is_file()
    assert (plain.path(project) / "pylock.cpu-windows-x86_64.toml").is_file()


def test_second_run_verifies_nothing(command):
    text = command("install", "torch", "einops>=0.7")
    assert "already up to date" in text
    assert "running kernels" not in text


def test_program_runs_in_the_environment(command):
    code = "import torch, sys; print(torch.ones(2).sum().item(), sys.prefix)"
    text = command("run", "python", "-c", code)
    assert text.splitlines()[-1] == r"2.0 C:\users\Jörg Ä\a b\.venv"


def test_sync_changes_nothing(command):
    assert "already up to date" in command("sync")


def test_lock_file_is_current(command):
    assert "is up to date" in command("lock", "check")


def test_doctor_finds_no_problem(command):
    text = command("doctor")
    assert "no problems found" in text
    assert "unchanged since then" in text


def test_commands_of_the_page_run(plain, project):
    (plain.path(project) / "requirements.txt").write_bytes(b"einops\r\n")
    done = run_section(plain, "Install PyTorch", project)
    assert done.status == 0, done.text


def test_upgraded_base_python_is_noticed(plain, command):
    base = plain.path(r"C:\Python\python.exe")
    content = base.read_bytes()
    try:
        base.unlink()
        base.write_bytes(content)
        assert "unchanged since then" not in command("doctor")
    finally:
        command("install")
