"""Hints of stories, each parsed, and pasted where it was printed."""

import re
import shlex
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from gpuinstall.base.advice import NOTE
from tests.lab.advice import check_hint_line
from tests.lab.index_text import steps_of
from tests.stories import test_stories
from tests.stories.test_stories import OWN, stories

stage = test_stories.stage

BLOCK = re.compile(r"(?m)^ +do +(.+(?:\n +\S.*)*)")
"""The rows of fixes below an error or a warning."""
OTHER_ROW = re.compile("(?:next|here|seen|why) |comparing |building |running ")
ERROR = re.compile(r"(?m)^error: .*")
OTHER_MACHINE = {"--gpu", "--driver", "--machine", "--target", "--os", "--arch"}
IDENTIFYING = {*OTHER_MACHINE, "--venv", "--into", "--lock", "--dry-run"}
FOR_THIS_MACHINE = {"install", "remove", "run", "sync", "verify", "doctor"}
SUBCOMMANDS = {"list", "remove", "rollback", "prune", "check", "download"}
FIRST = re.compile(r"run it again|trust this|if you trust|to use a mirror|^export")
"""Signs of a step that precedes the same command."""
UNSUITED = re.compile(
    r"<|…|index\.example|CUDA_HOME|sudo|find /"
    r"|^(?:docker|pip|softwareupdate|curl|wget|git ls-remote)\b"
)
"""Hints with a placeholder, or for programs and servers that a test lacks."""
UNREPAIRABLE = {
    # The index has a damaged torch, the kernel always fails, or an index is stopped.
    "install: An incomplete torch leaves no environment.",
    "proof: heavy: Adding a package keeps the verification.",
    "install: A rejected plan needs no network.",
    "relax: Fixes need no unreachable index.",
    "settings: Another machine takes torch from --wheels.",
}


def hints_in(output):
    """Return the commands in printed hints, with their notes."""
    return [
        re.sub(" +# ", NOTE, line.strip(), count=1)
        for block in BLOCK.findall(output)
        for line in block.splitlines()
        if re.match(r"[a-z'/]", line.strip()) and not OTHER_ROW.match(line.strip())
    ]


def command_of(hint):
    return hint.partition(NOTE)[0]


def printed_hints():
    """Yield the place, the command line, and a hint below it in a story."""
    for param in stories():
        (story,) = param.values
        for line, below in steps_of(story.text):
            own = OWN.fullmatch(line.removeprefix("$ "))
            if line.startswith("$") and own:
                for hint in hints_in("\n".join(below)):
                    yield param.id, shlex.split(own[3]), hint


def options_of(words):
    return {word.partition("=")[0] for word in words if word.startswith("-")}


def find_faults(typed, hint):
    """Yield the faults of a hint for a command line."""
    fault = check_hint_line(hint)
    if fault:
        yield fault
    if fault or not hint.startswith("gpuinstall "):
        return
    command, *rest = shlex.split(command_of(hint))[1:]
    before, after = options_of(typed), options_of(rest)
    is_same = command == typed[0] and not {*rest[:1], *typed[1:2]} & SUBCOMMANDS
    is_for_others = typed[0] in {"lock", "plan"} and before & OTHER_MACHINE
    if [command, *rest] == typed:
        yield "it repeats the refused command"
    if is_for_others and command in FOR_THIS_MACHINE:
        yield "it is for this machine"
    if is_same or (is_for_others and command in {"lock", "plan"}):
        # A new environment needs no --into.
        changed = {"--target", *(["--into"] if "another folder" in hint else [])}
        # Only one of the two describes the machine, and --driver requires --gpu.
        changed.add("--machine" if "--gpu" in before else "--driver")
        lost = before & IDENTIFYING - after - changed
        if lost:
            yield f"it omits {lost}"


def test_hints_of_stories_are_commands():
    found = list(printed_hints())
    assert len(found) > 200
    faults = [
        f"{fault}: {place}, {' '.join(typed)}: {hint}"
        for place, typed, hint in found
        for fault in find_faults(typed, hint)
    ]
    assert not faults, "\n".join(faults)


def stories_with_hints():
    for param in stories():
        (story,) = param.values
        if hints_in(story.text) and param.id not in UNREPAIRABLE:
            yield pytest.param(story, id=param.id, marks=pytest.mark.heavy)


@contextmanager
def restored(folder, copy):
    """Restore a folder after a change."""
    subprocess.run(["cp", "-a", folder, copy], check=True)
    yield
    shutil.rmtree(folder)
    copy.rename(folder)


def try_hint(stage, typed, hint, printed):
    """Paste a hint where it was printed. Return its fault or None."""
    own = OWN.fullmatch(typed)
    assert own
    folder, variables, arguments = own.groups(default="")
    line = command_of(hint)
    if FIRST.search(hint):
        before = f"export {variables}; " if variables else ""
        line = f"{before}{line} && gpuinstall {arguments}"
    elif OWN.fullmatch(line):
        line = f"{variables}{line}"
    done = stage.run(f"cd {folder} && {line}" if folder else line)
    output = done.err + done.out
    same = {*ERROR.findall(printed)} & {*ERROR.findall(output)}
    if same:
        return f"the same refusal: {same}"
    if done.status and not ERROR.search(output):
        return f"exit {done.status}: {output[-500:]}"
    return None


@pytest.mark.parametrize("story", list(stories_with_hints()))
def test_pasted_hints_work(story, stage, tmp_path_factory, record_property):
    copy = tmp_path_factory.mktemp("copies") / "story"
    faults = []
    for line, below in (*steps_of(story.common), *steps_of(story.text)):
        typed = line.removeprefix("$ ")
        if typed == line:
            stage.step(line, below)
            continue
        done = stage.run(typed)
        output = done.err + done.out
        for hint in hints_in(output) if OWN.fullmatch(typed) else ():
            if UNSUITED.search(hint):
                continue
            with restored(stage.tmp_path, copy):
                fault = try_hint(stage, typed, hint, output)
            record_property(f"{typed} -> {hint}", fault or "works")
            if fault:
                faults.append(f"{fault}: {typed} -> {hint}")
    assert not faults, "\n".join(faults)
