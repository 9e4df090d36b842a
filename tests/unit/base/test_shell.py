"""Commands for the shells of Windows."""

from gpuinstall.base.advice import Advice, make_command, read_hint
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
    export = read_hint("export UV_NO_CACHE=1 TMP='a b'")
    assert export.format("cmd") == 'set "UV_NO_CACHE=1" & set "TMP=a b"'
    assert export.format("powershell") == "$env:UV_NO_CACHE = '1'; $env:TMP = 'a b'"


def test_file_is_moved_by_a_command_of_cmd():
    assert Advice("mv", ("a", "b c")).format("cmd") == 'move a "b c"'
    assert Advice("rm", ("a",)).format("cmd") == "del a"


def test_catalogued_command_is_quoted_for_cmd():
    hint = read_hint(r"'C:\a b\python.exe' -m pip install 'numpy<2'   # why")
    line = r'"C:\a b\python.exe" -m pip install "numpy<2"   & rem why'
    assert hint.format("cmd") == line
