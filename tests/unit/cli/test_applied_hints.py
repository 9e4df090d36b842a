"""Hints that change the command line of this run, or keep its options."""

import shlex

import click
import pytest

from gpuinstall.base.advice import make_change, make_command
from gpuinstall.cli.commands import load_command
from gpuinstall.cli.main import main_command
from gpuinstall.cli.terminal import apply_hints

CPU = make_change("--backend", "cpu", note="selects the CPU build")


def applied(hint, line):
    """Return a hint as it is printed by a command line."""
    words = shlex.split(line)
    settings = main_command.context_settings
    top = click.Context(main_command, info_name="gpuinstall", obj=words, **settings)
    command = load_command(words[0])
    with command.make_context(words[0], words[1:], top):
        return [*map(str, apply_hints([hint]))]


def test_change_repeats_the_whole_command_without_password():
    line = "run --wheels . --no-proof https://me:secret@index.example --backend xpu"
    assert applied(make_change("--install", note="creates it"), line) == [
        "gpuinstall run --wheels . --no-proof --install https://****@index.example --backend xpu   # creates it"
    ]
    assert applied(CPU, "install --backend=cu130 torch --json") == [
        "gpuinstall install --backend cpu torch   # selects the CPU build"
    ]


def test_change_removes_an_option_with_its_value():
    without = make_change(without=("--target", "cu126"), note="--backend selects it")
    line = "lock torch --target=cpu --target cu126 -q"
    assert applied(without, line) == [
        "gpuinstall lock --quiet torch   # --backend selects it"
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (make_change("--backend", "cpu"), "install --backend cpu"),
        (make_change(without=("--python", "3.8")), "install"),
        (make_change(without=("vllm",)), "install vllm"),
        (make_change(without=("vllm",)), "install vllm --backend cpu"),
        (make_change("--relax"), "plan vllm"),
    ],
    ids=["same", "absent", "only request", "option", "unknown option"],
)
def test_pointless_change_is_no_command(change, line):
    assert applied(change, line) == []


def test_change_can_remove_the_last_word():
    without = make_change(without=("--offline",))
    assert applied(without, "lock --offline") == ["gpuinstall lock"]


def test_removed_requirement_leaves_other_requirements():
    change = make_change("torch", without=("torch==2.12",))
    assert applied(change, "install torch==2.12") == ["gpuinstall install torch"]
    without = make_change(without=("vllm",))
    assert applied(without, "install vllm -r more.txt") == [
        "gpuinstall install --requirement more.txt"
    ]


def test_change_of_an_extra_keeps_other_extras():
    change = make_change(
        "--extra", "cpu", without=("--extra", "cpu", "--extra", "cu126")
    )
    assert applied(change, "install --extra dev --extra=cpu --extra cu126 -q") == [
        "gpuinstall install --extra dev --quiet --extra cpu"
    ]


def test_only_replaces_the_typed_request():
    change = make_change("--only", "torch", "einops", without=("vllm",))
    assert applied(change, "install vllm --group dev --backend cpu") == [
        "gpuinstall install --backend cpu --only torch einops"
    ]


def test_removed_only_keeps_the_request():
    change = make_change(without=("--only",))
    assert applied(change, "install --only torch") == ["gpuinstall install torch"]


def test_other_command_keeps_machine_and_sources():
    line = "lock --gpu=T4 torch --torch-index https://i.example --driver 580"
    assert applied(make_command("plan --all", note="why"), line) == [
        "gpuinstall plan --gpu T4 --torch-index https://i.example --driver 580 --all   # why"
    ]


def test_lock_repeats_the_request_of_plan():
    line = "plan --gpu=T4 torch -r more.txt --all --json"
    assert applied(make_command("lock --dry-run"), line) == [
        "gpuinstall lock --gpu T4 --requirement more.txt torch --dry-run"
    ]


def test_lock_for_another_machine_suggests_no_installation():
    assert applied(make_command("install"), "lock --gpu T4") == []
    assert applied(make_command("install"), "lock") == ["gpuinstall install"]


def test_hint_of_a_subcommand_is_not_repeated():
    assert applied(make_command("lock check"), "lock check") == []
    assert applied(make_command("lock"), "lock check") == ["gpuinstall lock"]
