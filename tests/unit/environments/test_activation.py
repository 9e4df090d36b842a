"""Activation in all shells, with unusual folder names and after a move."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.shell import (
    ShellName,
    format_activation,
    quote_literal,
    quote_word,
)
from gpuinstall.environments.activation import relocate_activation, relocate_scripts
from gpuinstall.environments.damage import find_intact_files
from gpuinstall.environments.packages import read_packages
from tests.lab.wheels import make_wheel

NAMES = (
    "a blank",
    'it\'s "quoted"',
    "😀 💻",
    "$HOME `x` %s",
    "back\\slash\\",
    "bang!",
)
UNPRINTABLE = ("a\ttab", "a line\nbreak", "👩\u200d💻", "gpj\u202egnp")
TOOL: dict[str, str | bytes] = {
    "tool.py": "import sys\n\ndef main():\n    print(sys.prefix)\n",
    "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n",
}
PROGRAMS = {
    "bash": "bash -c",
    "sh": "sh -c",
    "zsh": "zsh -fc",
    "ksh": "ksh -c",
}
SHELLS = [
    "bash",
    "sh",
    *(pytest.param(name, marks=pytest.mark.heavy) for name in [*PROGRAMS][2:]),
]


def program_of(name):
    """Return the words that start a shell."""
    words = PROGRAMS[name].split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"no {words[0]} here")
    return words


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    venv = tmp_path_factory.mktemp("built") / "venv"
    variables = {**os.environ, "UV_NO_CONFIG": "1"}
    done = process.run(uv.venv_command(Path(sys.executable), venv), env=variables)
    assert done.ok, done.err
    return venv


def environment_in(folder, built):
    venv = shutil.copytree(built, folder / ".venv", symlinks=True)
    relocate_activation(venv, venv)
    return venv


def activated(name, venv):
    """Return a shell's VIRTUAL_ENV and prefix after activation."""
    words = program_of(name)
    line = format_activation(str(venv), "sh", windows=False)
    python = "import sys; print(sys.prefix)"
    script = f"""{line}; printf "[%s]" "$VIRTUAL_ENV"; python -c '{python}'"""
    done = process.run([*words, script], cwd=Path("/"))
    assert done.ok, done.err
    return done.out


@pytest.mark.parametrize("name", SHELLS)
def test_printed_command_activates_an_environment_of_any_name(name, built, tmp_path):
    wrong = {}
    for folder in NAMES:
        venv = environment_in(tmp_path / folder, built)
        said = activated(name, venv)
        if said != f"[{venv}]{venv}\n":
            wrong[folder] = said
    assert wrong == {}


@pytest.mark.parametrize("name", SHELLS)
def test_quoted_shell_words_expand_to_original_text(name):
    words = program_of(name)
    for text in NAMES:
        for word in (quote_literal(text, "sh"), quote_word(text, "sh")):
            said = process.run([*words, f"printf '[%s]' {word}"]).out
            assert (word, said) == (word, f"[{text}]")


def test_quoted_shell_words_contain_no_control_characters():
    shells: list[ShellName] = ["sh", "powershell"]
    words = [quote_word(text, shell) for text in UNPRINTABLE for shell in shells]
    marks = {mark for word in words for mark in word}
    assert not marks & set("\t\n\u202e\u200d")


@pytest.mark.parametrize("name", SHELLS)
def test_moved_environment_activates_at_its_new_path(name, built, tmp_path):
    environment_in(tmp_path / "before", built)
    moved = (tmp_path / "before").rename(tmp_path / "after it") / ".venv"
    assert activated(name, moved) == f"[{moved}]{moved}\n"
    relocate_activation(moved, moved)
    assert activated(name, moved) == f"[{moved}]{moved}\n"


def test_activate_works_with_a_relative_path(built, tmp_path):
    venv = environment_in(tmp_path / "the project", built)
    script = '. "./the project/.venv/bin/activate"; cd /; command -v python'
    done = process.run(["sh", "-c", script], cwd=tmp_path)
    assert done.out.strip() == str(venv / "bin" / "python")


def test_user_activation_script_is_kept(built, tmp_path):
    venv = shutil.copytree(built, tmp_path / ".venv", symlinks=True)
    with (venv / "bin" / "activate").open("a") as file:
        file.write("export MINE=1\n")
    relocate_activation(venv, venv)
    assert (venv / "bin" / "activate").read_text().endswith("export MINE=1\n")


def test_linked_and_binary_scripts_are_not_changed(built, tmp_path):
    venv = shutil.copytree(built, tmp_path / ".venv", symlinks=True)
    mine = "mine\ndeactivate nondestructive\n\nVIRTUAL_ENV='café'\nif (["
    own = {tmp_path / name: mine.encode() for name in ("activate",)}
    for file, text in own.items():
        file.write_bytes(text)
        (venv / "bin" / file.name).unlink(missing_ok=True)
        (venv / "bin" / file.name).symlink_to(file)
    latin = venv / "bin" / "tool"
    latin.write_bytes(mine.encode("latin-1"))
    relocate_activation(venv, venv)
    relocate_scripts(venv, tmp_path / "before")
    assert latin.read_bytes() == mine.encode("latin-1")
    for file, text in own.items():
        assert file.read_bytes() == text
        assert (venv / "bin" / file.name).is_symlink()


@pytest.mark.parametrize("before", ["plain", "a blank"])
def test_relocated_pip_scripts_use_environment_interpreter(built, tmp_path, before):
    venv = environment_in(tmp_path / before, built)
    wheel = make_wheel(tmp_path, "tool", "1.0", modules=TOOL)
    python = venv / "bin" / "python"
    pip = ["-m", "pip", "--python", python, "install", "--no-index", wheel]
    assert process.run([sys.executable, *pip]).ok
    foreign = venv / "bin" / "foreign"
    foreign.write_text("#!/usr/bin/env sh\necho foreign\n")
    mine = f"#!{venv}/bin/python\nprint('mine')\n"
    (venv / "bin" / "mine").write_text(mine)
    for after in ("other", 'it\'s "$HOME"', "n" * 230):
        copy = shutil.copytree(venv, tmp_path / after / ".venv", symlinks=True)
        relocate_scripts(copy, venv)
        done = process.run([copy / "bin" / "tool"])
        assert done.out == f"{copy}\n", done.err
        text = (copy / "bin" / "foreign").read_text()
        assert text == "#!/usr/bin/env sh\necho foreign\n"
        assert (copy / "bin" / "mine").read_text() == mine
        packages = read_packages(packages_folders(copy))
        assert find_intact_files(packages, copy, {"bin/tool"}) == {"bin/tool"}
