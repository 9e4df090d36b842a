"""``gpuinstall node``: one step of a fleet's work on this node, told in one record; whatever starts it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from gpuinstall.cli.options import PATH, bundled
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.environments.environment import fingerprint
from gpuinstall.fleet.environment import Placing, newest_proof, prolog_answer
from gpuinstall.fleet.hostlist import NodeName
from gpuinstall.fleet.node import NodeOrder, install_node, read_scratch, survey_node, verify_node
from gpuinstall.fleet.run_folder import RunFolder, this_node
from gpuinstall.probe import read_machine

PROLOG_S = 1.5

_root = click.option("--root", metavar="DIR", type=PATH, help="The folder of environments.")


class StepOptions(NamedTuple):
    """Which step is taken, by which node, of which run."""

    run_dir: Path | None
    run: str | None
    attempt: int
    node: str | None

    def take(
        self,
        name: str,
        terminal: Terminal,
        work: Callable[[RunFolder, NodeName], Mapping[str, Any]],
    ) -> Outcome:
        """Take a step; what is printed for a person is the record too, in one line."""
        if self.run_dir is None:
            raise click.UsageError("--run-dir is required")
        folder = RunFolder.at(self.run_dir, terminal)
        node = this_node(os.environ, self.node)
        order = NodeOrder(folder, name, node, self.run, self.attempt)
        record = order.carry_out(lambda: work(folder, node))
        errors = []
        if record.status == "failed":
            errors.append(
                {
                    "code": record.code,
                    "message": record.message,
                    "hint": record.hint,
                }
            )
        return Outcome(
            record.to_dict(),
            lambda screen: screen.line(json.dumps(record.to_dict())),
            exit_code=record.exit_code,
            errors=tuple(errors),
        )


_step = bundled(
    "step",
    StepOptions,
    {
        "run_dir": click.option(
            "--run-dir",
            metavar="DIR",
            type=PATH,
            help="The folder of the run, on every node.",
        ),
        "run": click.option(
            "--run", metavar="ID", help="The id of the run; the folder must belong to it."
        ),
        "attempt": click.option(
            "--attempt",
            type=click.IntRange(1),
            default=1,
            metavar="N",
            help="The number of the attempt.",
        ),
        "node": click.option(
            "--node",
            metavar="NAME",
            help="This node's name (default: the engine's or the host's).",
        ),
    },
)


@click.group("node", help="Run one step of a fleet on this node: survey, install or verify.")
def command() -> None:
    """Work on one node."""


@command.command("survey", help="Show what this node is.")
@_step
@framed("node")
def _survey(terminal: Terminal, *, step: StepOptions) -> Outcome:
    return step.take("survey", terminal, lambda *_: survey_node(terminal))


@command.command("install", help="Install this node's lock of the plan.")
@_step
@_root
@click.option(
    "--mode",
    type=click.Choice(["node", "shared"]),
    default="node",
    help="Where environments go.",
)
@click.option("--build", is_flag=True, help="Build the environment that other nodes use (shared).")
@framed("node")
def _install(
    terminal: Terminal,
    *,
    step: StepOptions,
    root: Path | None,
    mode: Any,
    build: bool,
) -> Outcome:
    def work(folder: RunFolder, name: NodeName) -> dict[str, Any]:
        if root:
            place = root
        elif mode == "shared":
            place = folder.place("environments")
        else:
            place = read_scratch(os.environ).path
        placing = Placing(place.absolute(), mode, build or mode == "node")
        return install_node(folder, name, placing, terminal)

    return step.take("install", terminal, work)


@command.command("verify", help="Run kernels on every GPU of this node.")
@_step
@_root
@click.option(
    "--deep",
    is_flag=True,
    help="Also check attention, FP8, sparsity, solvers, graphs, compiler, NCCL.",
)
@click.option(
    "--together",
    type=click.IntRange(1),
    metavar="N",
    help="Take part in a test of several nodes.",
)
@click.option(
    "--prolog", is_flag=True, help="Answer from the last proof within 2 s; always exit 0."
)
@click.option(
    "--may-drain", is_flag=True, help="With --prolog: exit 1 if a kernel failed in the last proof."
)
@framed("node")
def _verify(
    terminal: Terminal,
    *,
    step: StepOptions,
    root: Path | None,
    deep: bool,
    together: int | None,
    prolog: bool,
    may_drain: bool,
) -> Outcome:
    if prolog:
        return _prolog(this_node(os.environ, step.node), root, may_drain=may_drain)

    def work(folder: RunFolder, name: NodeName) -> Mapping[str, Any]:
        from gpuinstall.fleet.together import take_part

        if together:
            return take_part(folder, name, together, root)
        return verify_node(folder, name, root, terminal, deep=deep)

    return step.take(f"together-{together}" if together else "verify", terminal, work)


def _prolog(node: NodeName, root: Path | None, *, may_drain: bool) -> Outcome:
    """Answer from what is known; if the driver keeps us waiting, the node is not blamed."""
    answers: list[tuple[bool, str]] = []

    def ask() -> None:
        proof = newest_proof(root or read_scratch(os.environ).path, node)
        answers.append(prolog_answer(proof, fingerprint(read_machine()), time.time()))

    # A thread can be left behind; a driver that hangs cannot be interrupted.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PROLOG_S)
    answers.append((True, f"no answer within {PROLOG_S} s; the node is not blamed"))
    is_good, message = answers[0]
    return Outcome(
        {
            "node": node,
            "good": is_good,
            "message": message,
        },
        lambda screen: screen.field("Prolog", message),
        exit_code=1 if may_drain and not is_good else 0,
        status="success",
    )
