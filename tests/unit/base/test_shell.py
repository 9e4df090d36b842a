"""Commands for the shells of Windows."""

from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.shell import format_activation, format_path_command, quote_word


def test_word_for_cmd_has_double_quotes():
    assert quote_word(r"C:\a b\x", "cmd") == r'"C:\a b\x"'
    assert quote_word("einops>=0.7", "cmd") == '"einops>=0.7"'
    assert quote_word(r"C:\ab", "cmd") == r"C:\ab"


def test_environment_is_activated_by_cmd():
    assert format_activation(".venv", "cmd", windows=True) == (
        r".venv\Scripts\activate.bat"
    )
    assert format_activation("a b", "cmd", windows=True) == (
        r'"a b\Scripts\activate.bat"'
    )


def test_folder_is_added_to_path_of_cmd():
    assert format_path_command(r"C:\a b", "cmd") == r'set "PATH=C:\a b;%PATH%"'


def test_hint_for_cmd_runs_in_cmd():
    hint = make_command("install", "einops>=1", place=r"D:\a b", note="adds it")
    line = r'cd /d "D:\a b" && gpuinstall install "einops>=1"   & rem adds it'
    assert hint.format("cmd") == line
    export = Advice("export", ("UV_NO_CACHE=1",))
    assert export.format("cmd") == 'set "UV_NO_CACHE=1"'
