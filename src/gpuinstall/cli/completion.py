"""``gpuinstall completion``: what a shell evaluates so that TAB completes commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import (
    BashComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
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
        "    compdef ",
        "    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n    compdef ",
    ).replace(
        "compadd -U -V unsorted -a completions",
        """compadd -U -V unsorted -a completions
        (( $#completions == 1 )) || [[ -n $compstate[unambiguous] ]] || compstate[insert]=""",
    )


@click.command("completion", help="Print the script that makes TAB complete commands and values.")
@click.argument("shell", type=click.Choice(COMPLETED))
@framed("completion")
def command(_terminal: Terminal, shell: str) -> Outcome:
    """Print a completion script."""
    from gpuinstall.cli.main import entrance

    text = ""
    kind = get_completion_class(shell)
    if kind:
        text = kind(entrance, {}, "gpuinstall", VARIABLE).source()
    data = {"shell": shell, "text": text}
    return Outcome(data, lambda screen: screen.block(text.rstrip()))
