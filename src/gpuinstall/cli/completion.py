"""``gpuinstall completion``: what a shell evaluates so that TAB completes commands, options and their values."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.shell import COMPLETED

VARIABLE = "_GPUINSTALL_COMPLETE"


@add_completion_class
class QuotingBashComplete(BashComplete):
    """What click's lacks: bash puts a value into the line as it is, and one with a blank would be several words."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)",
        """[[ ${COMP_WORDS[COMP_CWORD]} == [\\"\\']* ]] || printf -v value %%q "$value"
            COMPREPLY+=("$value")""",
    )


@add_completion_class
class StartingZshComplete(ZshComplete):
    """What click's lacks: a new zsh has not started completion; and it takes away a word that no value begins with."""

    source_template = ZshComplete.source_template.replace(
        "    compdef ", "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n    compdef "
    ).replace(
        "compadd -U -V unsorted -a completions",
        """compadd -U -V unsorted -a completions
        (( $#completions == 1 )) || [[ -n $compstate[unambiguous] ]] || compstate[insert]=""",
    )


@add_completion_class
class PowerShellComplete(ShellComplete):
    """What click lacks: PowerShell, which hands over the line up to the word."""

    name = "powershell"
    source_template = """\
Register-ArgumentCompleter -Native -CommandName %(prog_name)s -ScriptBlock {
    param($word, $line, $position)
    $env:%(complete_var)s = 'powershell_complete'
    $env:COMP_WORDS = $line.ToString()
    $env:COMP_WORD = $word
    %(prog_name)s | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
    Remove-Item 'Env:%(complete_var)s', 'Env:COMP_WORDS', 'Env:COMP_WORD'
}
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Read the words before the one that is being typed, and that one."""
        word = os.environ.get("COMP_WORD", "")
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))[1:]
        return (words[:-1] if word and words else words), word

    def format_completion(self, item: CompletionItem) -> str:
        """Write a value as PowerShell takes it."""
        return f"'{item.value}'" if " " in item.value else str(item.value)


@click.command("completion", help="Print the script that makes TAB complete commands and values.")
@click.argument("shell", type=click.Choice(COMPLETED))
@framed("completion")
def command(_terminal: Terminal, shell: str) -> Outcome:
    """Print a completion script."""
    from gpuinstall.cli.main import entrance

    kind = get_completion_class(shell)
    text = kind(entrance, {}, "gpuinstall", VARIABLE).source() if kind else ""
    return Outcome({"shell": shell, "text": text}, lambda screen: screen.block(text.rstrip()))
