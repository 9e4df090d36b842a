"""Arguments and exit statuses of the launcher that bootstrap.py creates."""

import json

import pytest

from tests.windows.machine import DATA, LAUNCHER

SHOW = """
import json, sys
def main():
    print(json.dumps(sys.argv[1:]))
"""
CALL = """
import os, shutil, subprocess, sys
os.environ["PATH"] = sys.argv[1] + os.pathsep + os.environ["PATH"]
program = shutil.which("gpuinstall")
sys.exit(subprocess.run([program, *sys.argv[2:]]).returncode)
"""


ARGUMENTS = (
    ["einops>=0.7"],
    ["einops<1"],
    ["a & echo more"],
    ["a ^ b", "^"],
    ["%PATH%", "100%"],
    ['say "yes"'],
    ['a\\"b', "end\\"],
    ["!x!", "!"],
    ["Jörg Ä", "\N{SNOWMAN}"],
    ["", " ", "(a) | b > c"],
)


@pytest.mark.parametrize("words", ARGUMENTS)
def test_launcher_passes_arguments_unchanged(plain, project, words):
    before = set(plain.path(project).iterdir())
    folder = plain.path(project).parent / "modules" / "gpuinstall"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").touch()
    # The launcher runs this module instead of gpuinstall.
    (folder / "__main__.py").write_text(SHOW)
    script = folder.parent / "call.py"
    # The list of a Python program is also the command line of PowerShell.
    script.write_text(CALL)
    done = plain.run(
        *("python", r"..\modules\call.py", f"{DATA}\\bin", *words),
        cwd=project,
        env={"PYTHONPATH": str(folder.parent).replace(str(plain.drive), "C:")},
    )
    assert json.loads(done.text) == words
    assert set(plain.path(project).iterdir()) == before


def test_batch_file_continues_after_a_command(plain, project):
    batch = plain.path(project).parent / "steps.bat"
    lines = ("@echo off", "gpuinstall --version", "echo second step", "exit /b 3")
    batch.write_text("\r\n".join(lines))
    path = {"WINEPATH": f"{DATA}\\bin"}
    done = plain.run("cmd", "/c", r"..\steps.bat", cwd=project, env=path)
    assert done.status == 3
    assert "gpuinstall, version" in done.text
    assert "second step" in done.text


@pytest.mark.parametrize(("end", "status"), [(7, 7), (-0x3FFFFFFB, 5)])
def test_launcher_returns_the_exit_status(plain, project, end, status):
    # Linux sees only a byte of 0xC0000005, the status of a crash.
    code = f"import os; os._exit({end})"
    done = plain.run(LAUNCHER, "run", "python", "-c", code, cwd=project)
    assert (done.status, done.text) == (status, "")


def test_running_launcher_can_be_replaced(plain, project):
    end = plain.path(project) / "end"
    code = (
        "import os, time; print(flush=True); "
        "[time.sleep(0.2) for _ in iter(lambda: os.path.exists('end'), True)]"
    )
    with plain.start(LAUNCHER, "run", "python", "-c", code, cwd=project) as running:
        running.stdout.readline()
        readme = plain.path(r"C:\gpuinstall\README.md")
        readme.write_text(readme.read_text("utf-8") + "\nA new release.\n", "utf-8")
        done = plain.run("python", r"C:\gpuinstall\bootstrap.py", "--version")
        is_running = running.poll() is None
        end.touch()
        assert done.status == 0, done.text
        assert is_running
    assert plain.run(LAUNCHER, "--version").status == 0
