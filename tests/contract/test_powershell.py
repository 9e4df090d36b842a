"""Tests that check PowerShell scripts with a grammar."""

import re

import pytest
import tree_sitter_powershell
from tools.bundle import build_powershell_script
from tree_sitter import Language, Node, Parser

from gpuinstall.base.shell import format_activation, format_path_command
from tests.lab.clone import ROOT

SCRIPT = (ROOT / "bootstrap.ps1").read_text("utf-8")


def parsed(text):
    return Parser(Language(tree_sitter_powershell.language())).parse(text.encode())


def nodes(tree, kind):
    waiting, found = [tree.root_node], list[Node]()
    while waiting:
        node = waiting.pop(0)
        waiting += node.children
        found += [node] if node.type == kind else []
    return found


def texts(tree, kind):
    return [(node.text or b"").decode() for node in nodes(tree, kind)]


def test_bootstrap_script_is_ascii_powershell():
    assert not parsed(SCRIPT).root_node.has_error
    assert SCRIPT.isascii(), (
        "Windows PowerShell 5.1 reads a file without a mark in the system's old encoding"
    )


def test_bootstrap_script_uses_only_builtin_commands():
    names = set(texts(parsed(SCRIPT), "command_name"))

    assert names == {
        "Select-Object",
        "Get-Command",
        "Join-Path",
        "New-Item",
        "Remove-Item",
        "Test-Path",
    }


def test_bootstrap_script_passes_on_all_arguments():
    calls = [
        text
        for text in texts(parsed(SCRIPT), "command")
        if text.startswith("& $python ")
    ]

    assert sorted(calls) == [
        f'& $python @options "{at}\\bootstrap.py" @args'
        for at in ("$PSScriptRoot", "$folder")
    ]
    assert re.findall(r"^.*\bexit \$.*$", SCRIPT, re.MULTILINE) == [
        "    exit $LASTEXITCODE"
    ]
    assert "if ($PSCommandPath) {\n    exit $LASTEXITCODE\n}\n" in SCRIPT


def test_windows_bootstrap_contains_bootstrap_py():
    script = (ROOT / "bootstrap.py").read_text("utf-8")
    tree = parsed(build_powershell_script(script))

    assert not tree.root_node.has_error
    assert texts(tree, "verbatim_here_string_characters") == [f"@'\n{script}'@"]


def test_script_that_ends_powershell_string_is_rejected():
    with pytest.raises(SystemExit, match="begins with '@"):
        build_powershell_script("text = '''\n'@\n'''\n")


@pytest.mark.parametrize(
    "text",
    [
        format_path_command("C:\\Users\\Ann O'Hara\\bin", "powershell"),
        format_activation("C:\\my env", "powershell", windows=True),
        format_activation(".venv", "powershell", windows=True),
    ],
)
def test_printed_powershell_commands_parse(text):
    assert not parsed(text).root_node.has_error


def test_powershell_blocks_in_pages_parse():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    blocks = [
        text
        for page in pages
        for text in re.findall(r"```powershell\n(.+?)```", page.read_text(), re.DOTALL)
    ]

    assert blocks
    assert [block for block in blocks if parsed(block).root_node.has_error] == []
