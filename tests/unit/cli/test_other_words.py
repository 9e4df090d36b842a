"""What people type who know pip, uv or conda: each is answered with a command of ours."""

import re

import pytest

from gpuinstall.cli.main import run_command_line
from gpuinstall.cli.options import python_version

COMMANDS = [
    ("uninstall", "gpuinstall self uninstall"),
    ("uninstall einops", "gpuinstall remove einops"),
    ("upgrade", "gpuinstall install --upgrade"),
    ("update torch", "gpuinstall install --upgrade torch"),
    ("add einops", "gpuinstall install einops"),
    ("list", "gpuinstall run python -m pip list\ngpuinstall env list"),
    ("check", "gpuinstall doctor\ngpuinstall lock check"),
    ("init", "gpuinstall install"),
    ("pip install torch", "gpuinstall install torch"),
    ("pip list", "gpuinstall run python -m pip list\ngpuinstall env list"),
    ("pip uninstall einops", "gpuinstall remove einops"),
    ("show torch", "gpuinstall run python -m pip show torch"),
    ("freeze", "gpuinstall export requirements\ngpuinstall run python -m pip freeze"),
    ("undo", "gpuinstall env rollback"),
    ("repair", "gpuinstall doctor --fix"),
    ("version", "gpuinstall --version"),
    ("venv", "gpuinstall install"),
    ("shell", "gpuinstall run bash"),
    ("tree", "gpuinstall run python -m pip list"),
    ("why torch", "gpuinstall run python -m pip show torch"),
    ("cache clean", "gpuinstall env list\ngpuinstall env prune"),
    ("python install 3.12", "gpuinstall install --python 3.12\ngpuinstall run python"),
    ("status", "gpuinstall probe\ngpuinstall doctor"),
    (
        "install --extra-index-url https://index.example/whl/cu126 torch",
        "gpuinstall install torch --backend cu126",
    ),
    (
        "install torch --index-url=https://index.example/whl/cpu",
        "gpuinstall install torch --backend cpu",
    ),
    (
        "install --index-url https://index.example/simple torch",
        (
            "export UV_DEFAULT_INDEX=https://index.example/simple   # for all but PyTorch; pip's configuration is read too\n"
            "export GPUINSTALL_TORCH_INDEX=https://index.example/simple   # if it is a mirror of PyTorch's"
        ),
    ),
    (
        "install -f wheels torch",
        "export UV_FIND_LINKS=wheels   # a folder of wheels",
    ),
    (
        "install torch --cuda 12.6",
        "gpuinstall install --backend cu126   # PyTorch for CUDA 12.6",
    ),
    ("install torch --force-reinstall", "gpuinstall doctor --fix"),
    ("install -fwheels", "export UV_FIND_LINKS=wheels   # a folder of wheels"),
    ("plan -p3.12 torch", "gpuinstall plan torch --python 3.12"),
    (
        "run -p 3.12 train.py",
        "gpuinstall install --python 3.12   # the environment has it then",
    ),
    (
        "sync --python=3.12",
        "gpuinstall install --python 3.12   # the environment has it then",
    ),
    ("install -qp 3.12", "gpuinstall install --help"),
    ("install --cpu torch", "gpuinstall install torch --backend cpu"),
    (
        "install --system rich",
        "gpuinstall install rich   # into .venv: the system's own Python is never changed",
    ),
    (
        "install --frozen",
        ("gpuinstall sync\ngpuinstall lock check   # whether the lock is still right"),
    ),
    ("sync --inexact", "gpuinstall sync   # it is so here"),
    ("lock --refresh", "gpuinstall lock --upgrade"),
    ("install --directory=app rich", "cd app && gpuinstall install rich"),
    (
        "sync --no-dev",
        "Write default-groups = [] below [tool.uv] in pyproject.toml",
    ),
    (
        "install . --extra gpu",
        (
            "gpuinstall install -e '.[gpu]'\n"
            "gpuinstall install --group gpu   # of a project without a build system"
        ),
    ),
    (
        "install --no-deps rich",
        "gpuinstall run python -m pip install --no-deps rich",
    ),
    ("run -m http.server 80", "gpuinstall run python -m http.server 80"),
    ("install --into --venv e -U six", "Run it again without --upgrade"),
    ("install --into --python 3.12 six", "Run it again without --python"),
    ("install --pre six", "export UV_PRERELEASE=allow   # but for PyTorch"),
    (
        "install --exclude-newer 2026-01-31 six",
        "export UV_EXCLUDE_NEWER=2026-01-31",
    ),
    ("--no-color plan", "export NO_COLOR=1   # or FORCE_COLOR=1"),
    ("install --prefix here torch", "gpuinstall install --help"),
    ("install --exact torch", "gpuinstall install --help"),
    ("run --quit train.py", "gpuinstall run --help"),
    ("sync pylock.cpu.toml -q", "gpuinstall sync --target cpu"),
    ("install --upgrad torch", "gpuinstall install --help"),
]


@pytest.mark.parametrize(("line", "advice"), COMMANDS)
def test_a_word_of_other_tools_is_answered(line, advice, capsys):
    assert run_command_line(line.split()) == 2
    _, _, told = capsys.readouterr().err.partition("  do    ")
    assert told.replace("\n        ", "\n").strip() == advice


GUESSES = {
    "--upgrad": "--upgrade",
    "--relx": "--relax",
    "--prefix": "",
    "--exact": "",
    "--user": "",
    "--link-mode": "",
}


def test_a_command_is_guessed_by_its_beginning(capsys):
    guesses = {"verfy": "verify", "isntall": "install", "clang": "", "mock": ""}
    for word, guess in guesses.items():
        run_command_line([word])
        message = capsys.readouterr().err.splitlines()[0]
        assert message.partition("Did you mean ")[2].strip("'?") == guess


def test_an_option_may_stand_before_its_command(capsys):
    for line in ("-q plan", "--offline --json plan", "-q env list", "-v lock check"):
        run_command_line([*line.split(), "--nope"])
        assert "No such option '--nope'" in "".join(capsys.readouterr())


def test_an_option_is_guessed_by_its_beginning(capsys):
    guesses = {}
    for option in GUESSES:
        run_command_line(["install", option])
        message = capsys.readouterr().err.splitlines()[0].partition("Did")[2]
        guesses[option] = "".join(re.findall("--[a-z]+", message)[:1])
    assert guesses == GUESSES


VERSIONS = {
    "3.12": "3.12",
    "3.12.1": "3.12.1",
    "python3.12": "3.12",
    "cpython@3.12": "3.12",
    "cpython-3.12": "3.12",
    ">=3.10": ">=3.10",
    "python3": None,
    "pypy@3.10": None,
    "/usr/bin/python3": None,
}


def test_a_python_may_be_written_as_uv_takes_it():
    assert {text: python_version(text) for text in VERSIONS} == VERSIONS
