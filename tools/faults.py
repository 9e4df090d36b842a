"""Makes ``FOLDER/faults.md``: faults drawn by a seed in the source of one commit, and the test that finds each.

``python -m tools.faults FOLDER [TESTS ...]`` changes src/gpuinstall of the clone that it runs in, which has to be
committed, and restores it. First one run of TESTS (all of them) records which test reaches which place. Then each fault
is put in by itself, and the tests that reach its place run, the quickest first, until one fails that passes without the
fault. FOLDER keeps what was measured: a further run with other TESTS looks only for the faults that are left, so the
quick tests come first (tests/unit tests/contract), then one file after another.

A fault in what removes files removes files: run it where nothing but the clone and FOLDER can be written.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gpuinstall"
BASE = "9e94867d"
SEED = 39
COUNT = 60
OF_EACH_ROOM = 2
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-m",
    "not heavy and not network",
)
STUCK_S = 300
OPPOSITES: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
NO_CODE = {"annotation", "returns", "decorator_list", "args"}
"""The fields of a function that no fault is drawn in."""
REWRITTEN: Mapping[int, tuple[str, str, str]] = {
    1: (
        "advice.py",
        "return [word for word in words if _squeezed(removed) not in {_squeezed(word), _squeezed(_name(word))}]",
        "pass",
    ),
    2: (
        "catalog/live.py",
        "reporter.warn(_nothing_in_index(sources.torch_index, request.backend))",
        "pass",
    ),
    29: (
        "plan/reasons.py",
        'unknown := builds.get("not-in-catalogue")',
        'not (unknown := builds.get("not-in-catalogue"))',
    ),
    49: (
        "cli/shellenv.py",
        "file is None or file.name != CONSTRAINTS",
        "file is not None or file.name != CONSTRAINTS",
    ),
}
"""The same faults in decisions that were written anew: module, text and replacement."""
# Written into a module for the run that records: a place notes itself once for each test. It stands alone, since some
# modules run in Pythons that have nothing of ours.
NOTE = """
def _reached(number, _seen=set()):
    import os
    key = (number, os.environ.get("PYTEST_CURRENT_TEST", ""))
    if key not in _seen:
        _seen.add(key)
        with open({file!r}, "a", encoding="utf-8") as file:
            file.write(f"{{number}}\\t{{key[1]}}\\n")
"""
INTRODUCTION = f"""# Faults that the tests find

{COUNT} faults drawn in src/gpuinstall of {BASE}, with the seed {SEED}: at least {OF_EACH_ROOM} in each room, and in
functions only. Each was put in by itself, and the tests of `make test` that reach its place were run, the quickest
first, until one failed that passes without it: tests/unit and tests/contract first, then those tests of the other
folders that are about its module, in a later commit first the test that found it before. *Not found* and *not reached*
say so of the tests that were tried. A fault is looked for in a later commit by its function and its text, then by its
text alone in its module; where its decision was written anew, it is put in there; else it is *gone*.
For 13, 15, 19, 33, 36, 37, 43, 52 and 56, which no test of before had found, a test was written; for 4 and 6, one that
installs nothing. By reading alone, 8, 30, 32, 41 and 47 seem to change nothing that can be seen on Linux.
Made by `python -m tools.faults`.
"""


@dataclass(frozen=True)
class Place:
    """A place in the source, and what a fault makes of it."""

    kind: str
    module: str
    function: str
    text: str
    replacement: str
    #: Which of the same kind and text in the function it is.
    occurrence: int
    is_statement: bool
    #: Offsets in the bytes of the module.
    start: int
    end: int

    @property
    def room(self) -> str:
        """The folder below the package; a dot for a module beside the rooms."""
        return str(Path(self.module).parent).partition("/")[0]

    def overlaps(self, other: Place) -> bool:
        """Whether both stand in the same bytes of a module."""
        return self.module == other.module and self.start < other.end and other.start < self.end


def places(module: str, source: str) -> list[Place]:
    """Return every place of a module that a fault can change."""
    offsets = [0]
    for line in source.encode().splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    result: list[Place] = []
    occurrences: Counter[tuple[str, ...]] = Counter()
    for function, node in nodes_of_functions(ast.parse(source)):
        for kind, target, replacement in changes(node):
            text = ast.unparse(target)
            key = (kind, function, text)
            place = Place(
                kind=kind,
                module=module,
                function=function,
                text=text,
                replacement=replacement,
                occurrence=occurrences[key],
                is_statement=isinstance(target, ast.stmt),
                start=offsets[target.lineno - 1] + target.col_offset,
                end=offsets[(target.end_lineno or 1) - 1] + (target.end_col_offset or 0),
            )
            result.append(place)
            occurrences[key] += 1
    return result


def nodes_of_functions(
    tree: ast.AST, name: str = "", *, is_inside: bool = False
) -> Iterator[tuple[str, ast.AST]]:
    """Yield the nodes of functions' bodies with the function's name, but annotations, patterns and f-strings."""
    for node in parts_with_code(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{node.name}".lstrip(".")
            is_function = isinstance(node, ast.FunctionDef)
            yield from nodes_of_functions(node, inner, is_inside=is_inside or is_function)
        else:
            if is_inside:
                yield name, node
            yield from nodes_of_functions(node, name, is_inside=is_inside)


def parts_with_code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node in which a fault can be."""
    for field, value in ast.iter_fields(tree):
        if field in NO_CODE and isinstance(tree, ast.FunctionDef | ast.arg):
            continue
        for node in value if isinstance(value, list) else [value]:
            # The parts of an f-string have no position of their own before Python 3.12.
            is_no_code = isinstance(node, ast.pattern | ast.JoinedStr | ast.AnnAssign)
            if isinstance(node, ast.AST) and not is_no_code:
                yield node


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the kinds of faults that a node can have: what is replaced, by which text."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITES:
            opposite = copy.copy(node)
            opposite.ops = [OPPOSITES[type(operator)]()]
            yield "comparison turned round", node, f"({ast.unparse(opposite)})"
        case ast.BoolOp():
            exchanged = copy.copy(node)
            exchanged.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and, or exchanged", node, f"({ast.unparse(exchanged)})"
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield "constant changed by one", node, str(number + 1)
        case ast.Constant(value=str() as text) if (
            text.startswith("--") and len(text) > 2 and " " not in text
        ):
            other = "--force" if text == "--yes" else "--yes"
            yield "another option", node, f'"{other}"'
        case ast.Expr(value=ast.Call()):
            yield "call left out", node, "pass"
    match node:
        case ast.If(body=[*_, (ast.Raise() | ast.Return()) as exit_], orelse=[]):
            yield "check left out", exit_, "pass"
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition negated", test, f"(not ({ast.unparse(test)}))"


def sources_of_commit() -> dict[str, str]:
    """Return the modules of the package at the commit that the faults are drawn from."""
    archive = io.BytesIO(git("archive", BASE, "src/gpuinstall"))
    sources: dict[str, str] = {}
    with tarfile.open(fileobj=archive) as files:
        for member in files:
            file = files.extractfile(member)
            if file and member.name.endswith(".py"):
                sources[member.name.removeprefix("src/gpuinstall/")] = file.read().decode()
    return sources


def git(*words: str) -> bytes:
    """Return what a command of git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True).stdout


def present_sources() -> dict[str, str]:
    """Return the modules of the package as they are here."""
    return {
        str(path.relative_to(SOURCE)): path.read_text("utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }


def all_places(sources: Mapping[str, str]) -> list[Place]:
    """Return the places of all modules, in the order of their names."""
    return [place for module in sorted(sources) for place in places(module, sources[module])]


def draw(candidates: Sequence[Place]) -> list[Place]:
    """Return the faults of the seed: first those of each room, then of all; a kind is drawn before its place."""
    generator = random.Random(SEED)  # noqa: S311  anyone draws the same
    drawn: list[Place] = []

    def draw_one(among: Sequence[Place]) -> None:
        free = [place for place in among if not any(place.overlaps(other) for other in drawn)]
        kind = generator.choice(sorted({place.kind for place in free}))
        drawn.append(generator.choice([place for place in free if place.kind == kind]))

    for room in sorted({place.room for place in candidates}):
        for _ in range(OF_EACH_ROOM):
            draw_one([place for place in candidates if place.room == room])
    while len(drawn) < COUNT:
        draw_one(candidates)
    return drawn


def find(fault: Place, candidates: Sequence[Place]) -> Place | None:
    """Return the place of a fault in another state of the source; None if its text is gone."""
    in_function = []
    in_module = []
    unmoved = []
    for place in candidates:
        if place.kind != fault.kind or place.text != fault.text:
            continue
        if name_of(place) == name_of(fault):
            in_function.append(place)
        if place.module == fault.module:
            in_module.append(place)
            if place.function == fault.function:
                unmoved.append(place)
    # A function that moved to another module comes after one that stayed.
    for place in (*unmoved, *in_function):
        if place.occurrence == fault.occurrence:
            return place
    return in_module[0] if len(in_module) == 1 else None


def find_rewritten(number: int, fault: Place, sources: Mapping[str, str]) -> Place | None:
    """Return the place where the decision of a fault was written anew; None if it is gone."""
    module, text, replacement = REWRITTEN.get(number, ("", "", ""))
    start = sources.get(module, "").encode().find(text.encode())
    if not module or start < 0:
        return None
    end = start + len(text.encode())
    return replace(fault, module=module, text=text, replacement=replacement, start=start, end=end)


def name_of(place: Place) -> str:
    """Return the name of the function that a place is in, without its class."""
    return place.function.rpartition(".")[2]


def record(
    faults: Mapping[int, Place], sources: Mapping[str, str], tests: Sequence[str], recording: Path
) -> None:
    """Run the tests once on sources whose places note who reaches them."""
    reached = recording / "reached.tsv"
    reached.touch()
    changed = dict(sources)
    for module in {fault.module for fault in faults.values()}:
        code = sources[module].encode()
        own = [(number, fault) for number, fault in faults.items() if fault.module == module]
        # From the end, so that the offsets of the others stay right.
        own.sort(key=lambda item: item[1].start, reverse=True)
        for number, fault in own:
            text = code[fault.start : fault.end]
            if fault.is_statement:
                text = b"_reached(%d); %b" % (number, text)
            else:
                text = b"(_reached(%d) or (%b))" % (number, text)
            code = code[: fault.start] + text + code[fault.end :]
        changed[module] = with_note(code.decode(), reached)
    write(changed)
    try:
        run_tests([*tests, f"--junitxml={recording / 'times.xml'}"], seconds=4 * 3600)
    finally:
        write(sources)


def with_note(source: str, file: Path) -> str:
    """Return a module with the function that notes, after its docstring and imports from the future."""
    line = 0
    for node in ast.parse(source).body:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__"):
                line = node.end_lineno or 0
            case _:
                break
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:line], NOTE.format(file=str(file)), *lines[line:]])


def write(sources: Mapping[str, str]) -> None:
    """Write the modules that differ from those here, and remove their bytecode, which may look as if it were newer."""
    for module, text in sources.items():
        path = SOURCE / module
        if path.read_text("utf-8") == text:
            continue
        path.write_text(text, "utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()


def run_tests(words: Sequence[str], seconds: float = STUCK_S) -> str | None:
    """Run pytest; return what it printed, or None if it did not end in time."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        done = subprocess.run(
            [*PYTEST, *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return done.stdout


def recorded(recording: Path) -> tuple[dict[int, set[str]], dict[str, float]]:
    """Return the tests that reach each fault, and the seconds of the tests that passed."""
    seconds: dict[str, float] = {}
    for case in ET.parse(recording / "times.xml").iter("testcase"):  # noqa: S314  pytest wrote it
        has_passed = len(case) == 0
        if has_passed:
            module = case.attrib["classname"].replace(".", "/")
            name = f"{module}.py::{case.attrib['name']}"
            seconds[name] = float(case.attrib["time"])
    tests: dict[int, set[str]] = defaultdict(set)
    for line in (recording / "reached.tsv").read_text("utf-8").splitlines():
        number, _, test = line.partition("\t")
        tests[int(number)].add(test.rpartition(" (")[0])
    return tests, seconds


def search(fault: Place, tests: Sequence[str], sources: Mapping[str, str], folder: Path) -> str:
    """Return the test that finds a fault, or in a few words that none does."""
    if not tests:
        return "not reached"
    code = sources[fault.module].encode()
    changed = code[: fault.start] + fault.replacement.encode() + code[fault.end :]
    write({**sources, fault.module: changed.decode()})
    try:
        output = run_with(tests, folder)
    finally:
        write(sources)
    if output is None:
        return "the tests do not end"
    failure = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", output, re.MULTILINE)
    if failure is None:
        return "not found"
    test = failure[1]
    # A test that fails without the fault too has found nothing.
    again = run_with([test], folder)
    if again is None or "FAILED " in again or "ERROR " in again:
        return f"fails anyway: {test}"
    return test


def run_with(tests: Sequence[str], folder: Path) -> str | None:
    """Run some tests until one fails."""
    names = folder / "tests.txt"
    names.write_text("\n".join(tests), "utf-8")
    return run_tests(["-x", f"@{names}"])


def is_found(answer: str) -> bool:
    """Whether an answer is the name of a test."""
    return answer.startswith("tests/")


def page(faults: Sequence[Place], outcomes: Mapping[str, Mapping[int, str]]) -> str:
    """Return the page: a row for each fault, a column for each commit that was measured."""
    heads = ["fault", "place", "what", *outcomes]
    lines = [
        INTRODUCTION,
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
    ]
    for number, fault in enumerate(faults):
        text = " ".join(fault.text.split())
        change = f"{fault.kind}: `{text}` → `{fault.replacement}`"
        cells = [
            str(number),
            f"{fault.module}, `{fault.function}`",
            change.replace("|", r"\|"),
        ]
        cells += [answers.get(number, "") for answers in outcomes.values()]
        lines.append(f"| {' | '.join(cells)} |")
    for commit, answers in outcomes.items():
        count = sum(map(is_found, answers.values()))
        lines.append(f"\n{commit}: {count} of {len(answers)} found.")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Draw, record, search, and write the page."""
    folder = Path(sys.argv[1]).resolve()
    tests = sys.argv[2:] or ["tests"]
    faults = draw(all_places(sources_of_commit()))
    sources = present_sources()
    present = present_faults(faults, sources)
    state = folder / "outcomes.json"
    outcomes: dict[str, str] = {}
    if state.exists():
        outcomes = json.loads(state.read_text("utf-8"))
    found = {int(number) for number, answer in outcomes.items() if is_found(answer)}
    remaining = {number: place for number, place in present.items() if number not in found}

    recording = folder / hashlib.sha256(" ".join(tests).encode()).hexdigest()[:16]
    recording.mkdir(parents=True, exist_ok=True)
    if not (recording / "times.xml").exists():
        record(remaining, sources, tests, recording)
    reaching, seconds = recorded(recording)
    for number in range(len(faults)):
        if number not in present:
            outcomes[str(number)] = "gone"
        elif number in remaining:
            names = sorted(reaching[number] & seconds.keys(), key=seconds.__getitem__)
            answer = search(remaining[number], names, sources, folder)
            # These tests may not reach what others have reached before.
            if answer != "not reached" or str(number) not in outcomes:
                outcomes[str(number)] = answer
            sys.stdout.write(f"{number} {len(names)} {answer}\n")
            sys.stdout.flush()
        state.write_text(json.dumps(outcomes, indent=1), "utf-8")
    commit = git("rev-parse", "--short=8", "HEAD").decode().strip()
    (folder / f"{commit}.json").write_text(json.dumps(outcomes), "utf-8")
    (folder / "faults.md").write_text(page(faults, measured_outcomes(folder)), "utf-8")


def present_faults(faults: Sequence[Place], sources: Mapping[str, str]) -> dict[int, Place]:
    """Return the places of the faults in the source as it is here, by the number of the fault."""
    candidates = all_places(sources)
    present: dict[int, Place] = {}
    for number, fault in enumerate(faults):
        place = find(fault, candidates) or find_rewritten(number, fault, sources)
        if place:
            present[number] = place
    return present


def measured_outcomes(folder: Path) -> dict[str, dict[int, str]]:
    """Return the outcomes of each commit that was measured, those of ``BASE`` first."""
    measured: dict[str, dict[int, str]] = {}
    files = sorted(folder.glob("????????.json"), key=lambda path: path.stem != BASE)
    for path in files:
        answers = json.loads(path.read_text("utf-8"))
        measured[path.stem] = {int(number): answer for number, answer in answers.items()}
    return measured


if __name__ == "__main__":
    main()
