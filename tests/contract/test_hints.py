"""Tests that commands and options in hints and documentation exist."""

import ast
import re
from functools import cache
from itertools import chain

import pytest
from tools.docs import walk_commands

from gpuinstall.cli.commands import COMMANDS
from tests.lab.advice import check_hint_line
from tests.lab.clone import ROOT

SOURCE = ROOT / "src" / "gpuinstall"
CALL = re.compile(rf"\bgpuinstall ((?:{'|'.join(COMMANDS)})\b[^`#|;&\n\"]*)")
OPTIONS = {
    " ".join(words): {
        "--help",
        *chain(*(each.opts + each.secondary_opts for each in command.params)),
    }
    for words, command in walk_commands()
}
PROSE = {
    *("adds", "and", "cannot", "could", "created", "did", "does", "itself"),
    *("manages", "recorded", "selects", "uses", "wrote"),
}
"""Words after gpuinstall that are not commands."""
FILES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "src").rglob("*.toml")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bootstrap.py")),
]


def hints():
    """Return the commands in hints and documentation, with each option."""
    return {
        (re.sub(r"\{[^}]*\}", "", call).partition(" -")[0], option)
        for path in FILES
        for call in CALL.findall(path.read_text("utf-8"))
        if not re.match(r"run \w", call)
        for option in re.findall(
            r"(?<= )--?[a-z][a-z-]*", re.sub(r"\$\([^)]*\)", "", call)
        )
    }


def known(words):
    """Return the options of the command in ``words``."""
    while words not in OPTIONS:
        words, space, _ = words.rpartition(" ")
        assert space, words
    return OPTIONS[words]


def test_options_of_commands_in_hints_exist():
    options = hints()

    assert {("lock", "--upgrade"), ("install", "--backend")} <= options
    assert [
        (words, option)
        for words, option in sorted(options)
        if option not in known(words)
    ] == []


def calls(name, folder=SOURCE):
    """Return the constant words of each call of a function, with its place."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                words = [_word(one).split() or [""] for one in node.args]
                yield f"{path.name}:{node.lineno}", [*chain(*words)]


def _word(node):
    """Return a constant word; "" for another expression."""
    is_word = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_word else ""


def test_commands_in_hints_exist():
    made = dict(calls("make_command"))
    assert len(made) > 70
    wrong = {}
    for place, (command, *words) in made.items():
        if command.startswith("--") or not command:
            continue
        known_words = f"{command} {words[0]}" if words else command
        names = known(known_words) if command in COMMANDS else set()
        options = {word for word in words if word.startswith("--") and word != "--"}
        if command not in COMMANDS or not (command == "run" or options <= names):
            wrong[place] = command, options
    assert wrong == {}


def test_changed_options_in_hints_exist():
    every = set().union(*OPTIONS.values())
    made = dict(calls("make_change"))
    assert len(made) > 20
    wrong = {
        place: words
        for place, words in made.items()
        if not {word for word in words if word.startswith("-")} <= every
    }
    assert wrong == {}


def test_commands_in_documentation_exist():
    call = r"(?<![\w./-])gpuinstall ([a-z][a-z-]*)\b"
    found = {*re.findall(call, "\n".join(chain(*map(code, FILES))))}

    assert {"probe", "doctor", "plan"} <= found
    assert found - COMMANDS.keys() - PROSE == set()


def code(path):
    """Return the code of a page, or the text of a data file."""
    text = path.read_text("utf-8") if path.suffix != ".py" else ""
    blocks = re.findall(r"(?ms)^ *```.*?```|`[^`]+`", text)
    return blocks if path.suffix == ".md" else [text]


@cache
def texts(folder=SOURCE):
    """Return all strings of the source, with placeholders filled in."""
    found = set[str]()
    for path in folder.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        # Parts of a formatted text are not separate texts.
        others = {id(part) for node in formatted for part in ast.walk(node)}
        others |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found.update("".join(map(_part, node.values)) for node in formatted)
        constants = (
            node
            for node in nodes
            if isinstance(node, ast.Constant) and id(node) not in others
        )
        found.update(node.value for node in constants if isinstance(node.value, str))
    return frozenset(found)


def test_hint_sentences_mention_only_existing_options():
    sentences = {
        line
        for text in texts()
        for line in text.splitlines()
        if re.match(r"[A-Z][a-z]+ .*\s--[a-z]", line)
    }
    ours = set().union(*OPTIONS.values())
    assert "Select another interpreter with --python PATH or --venv DIR" in sentences
    wrong = {}
    for sentence in sentences:
        others = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", sentence)) - ours
        if others:
            wrong[sentence] = others
    assert wrong == {}


PASTED = (
    # A command follows words, but users paste the whole line.
    "(?m)^[A-Z].*: (?:gpuinstall|uv|pip|sudo|export|python3?|conda|docker) .*",
    # A command has a placeholder.
    r"(?m)^(?:gpuinstall|export|Run it again)(?:(?!   # |: ).)*(?:[ =][A-Z]+(?:$| )|…|/path/to)",
)


@pytest.mark.parametrize("fault", PASTED)
def test_hint_commands_can_be_pasted(fault):
    assert {line for text in texts() for line in re.findall(fault, text)} == set()


def _part(part):
    return str(part.value) if isinstance(part, ast.Constant) else "numpy"


def test_commands_in_story_output_are_valid():
    command = re.compile(
        rf"(?m)^ {{4,}}(?:\w+ +)?(gpuinstall (?:{'|'.join(COMMANDS)})\b.*)"
    )
    lines = {
        line
        for path in (ROOT / "tests" / "stories").glob("*.txt")
        for line in command.findall(path.read_text("utf-8"))
    }
    assert len(lines) > 80
    assert {line: fault for line in lines if (fault := check_hint_line(line))} == {}
