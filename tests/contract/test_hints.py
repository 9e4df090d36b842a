"""What errors and pages tell people to type is there: the command, and the options that follow it."""

import ast
import re
import shlex
from functools import cache
from itertools import chain
from pathlib import Path

import click
from tools.docs import commands

from gpuinstall.base.advice import for_command
from gpuinstall.cli.main import COMMANDS
from tests.lab.advice import judged

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "gpuinstall"
CALL = re.compile(rf"\bgpuinstall ((?:{'|'.join(COMMANDS)})\b[^`#|;&\n\"]*)")
OPTIONS = {
    " ".join(words): {
        "--help",
        *chain(*(each.opts + each.secondary_opts for each in command.params)),
    }
    for words, command in commands()
}
FILES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "src").rglob("*.toml")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "bootstrap.py")),
]


def hints():
    """The words of each call up to its first option, and each option in it; a program that is run has its own."""
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
    """The options of the command that ``words`` begin with."""
    while words not in OPTIONS:
        words, space, _ = words.rpartition(" ")
        assert space, words
    return OPTIONS[words]


def test_an_option_that_is_told_is_one_of_its_command():
    options = hints()

    assert {("lock", "--upgrade"), ("install", "--backend")} <= options
    assert [
        (words, option)
        for words, option in sorted(options)
        if option not in known(words)
    ] == []


@cache
def texts(folder=SOURCE):
    """Each text in the source that is not a docstring, a name in each of its gaps."""
    found = set[str]()
    for path in folder.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        # What stands between the gaps of a text is no text of its own.
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


def changes(folder=SOURCE):
    """Each line in the source that says with which option to run the command again."""
    return {
        line
        for text in texts(folder)
        for line in re.findall(r"(?m)^Run it again with --\S.*", text)
    }


def test_an_option_in_a_sentence_is_one_of_ours():
    sentences = {
        line
        for text in texts()
        for line in text.splitlines()
        if re.match(r"[A-Z][a-z]+ .*\s--[a-z]", line)
    }
    ours = set().union(*OPTIONS.values())
    assert "Use another with --python PATH or --venv DIR" in sentences
    wrong = {}
    for sentence in sentences:
        others = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", sentence)) - ours
        if others:
            wrong[sentence] = others
    assert wrong == {}


def test_no_command_stands_behind_words():
    # The whole line is pasted.
    command = "(?:gpuinstall|uv|pip|sudo|export|python3?|conda|docker) "
    behind_words = re.compile(rf"(?m)^[A-Z].*: {command}.*")
    assert {line for text in texts() for line in behind_words.findall(text)} == set()


def test_no_command_has_a_word_to_fill_in():
    to_fill_in = re.compile(
        r"(?m)^(?:gpuinstall|export|Run it again)(?:(?!   # |: ).)*(?:[ =][A-Z]+(?:$| )|…|/path/to)"
    )
    assert {line for text in texts() for line in to_fill_in.findall(text)} == set()


def _part(part):
    return str(part.value) if isinstance(part, ast.Constant) else "numpy"


def test_what_is_advised_in_place_of_a_command_runs_again_is_one_to_install():
    options = known("install")
    install = ("gpuinstall", "install")
    # The doctor and the page give it for "install", whatever command was run.
    of_plans = changes(SOURCE / "plan")
    assert "Run it again with --backend cpu: the CPU build instead" in of_plans
    assert all(for_command(line, install, options=options) for line in of_plans)
    written = [
        command
        for line in changes()
        for command in for_command(line, install, options=options)
    ]
    assert {line: fault for line in written if (fault := judged(line))} == {}


def test_every_command_is_judged_as_it_is_typed():
    lines = []
    for words, command in commands():
        needs = [_needed(each) for each in command.params if each.required]
        if not isinstance(command, click.Group) or command.invoke_without_command:
            lines.append(shlex.join(["gpuinstall", *words, *chain(*needs)]))

    assert {line: fault for line in lines if (fault := judged(line))} == {}


def _needed(parameter):
    """The words that give a parameter some value."""
    is_choice = isinstance(parameter.type, click.Choice)
    value = parameter.type.choices[0] if is_choice else "needed"
    is_argument = isinstance(parameter, click.Argument)
    return [value] if is_argument else [parameter.opts[0], value]
