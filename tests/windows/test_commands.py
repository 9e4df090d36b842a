"""The other commands, code pages, encodings of files, and an empty input."""

import pytest

from tests.windows.machine import DATA, HOME, LAUNCHER


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plan", "torch 2.15.0"),
        ("plan --gpu N1X --os windows", "torch"),
        ("verify", "passed"),
        ("probe", "no GPU"),
        ("explain F03", "driver"),
        ("env list", ".venv"),
        ("export requirements", "einops=="),
        ("export constraints", "torch==2.15.0"),
        ("export uv", "torch"),
        ("export conda", "torch"),
        ("export needs", "x86_64"),
        ("hook pip", "pip"),
        ("hook pip --remove", "pip"),
        ("hook uv", "uv"),
        ("hook uv --remove", "uv"),
        ("lock --target cpu", "pylock.cpu"),
        ("run --any python --version", "Python 3.11"),
        ("--help", "Every day"),
    ],
)
def test_other_command_runs(command, words, expected):
    env = {"GPUINSTALL_ALLOW_CPU": "1"}  # for run --any
    assert expected in command(*words.split(), env=env)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
def test_output_to_a_pipe_is_encoded(plain, project, encoding):
    env = {"PYTHONIOENCODING": encoding}
    done = plain.run(LAUNCHER, "plan", cwd=project, env=env)
    assert done.status == 0
    assert " · " in done.decode(encoding)


def test_characters_outside_the_code_page_are_replaced(plain, project):
    env = {"PYTHONIOENCODING": "cp1252"}
    done = plain.run(LAUNCHER, "explain", "\N{SNOWMAN} F03", cwd=project, env=env)
    assert "Traceback" not in done.text


@pytest.mark.parametrize(
    "content",
    [
        b"einops==0.7.0\r\ntorch\r\n",
        b"\xef\xbb\xbfeinops==0.7.0\ntorch\n",
        "einops==0.7.0\r\ntorch\r\n".encode("utf-16"),
    ],
)
def test_requirements_file_of_windows_is_read(plain, command, content):
    folder = plain.path(HOME) / "encodings"
    folder.mkdir(exist_ok=True)
    (folder / "requirements.txt").write_bytes(content)
    text = command("plan", "-r", "requirements.txt", cwd=f"{HOME}\\encodings")
    assert "torch 2.15.0" in text


@pytest.mark.parametrize("line", ["env remove", "self uninstall"])
def test_empty_input_confirms_nothing(plain, project, line):
    batch = plain.path(project).parent / "empty.bat"
    batch.write_text(f"@gpuinstall {line} < nul\r\n")
    path = {"WINEPATH": f"{DATA}\\bin"}
    done = plain.run("cmd", "/c", r"..\empty.bat", cwd=project, env=path)
    assert done.status == 2, done.text
    assert (plain.path(project) / ".venv").exists()
