"""Insert small faults into modules and list the tests that find them.

``python -m tools.faults src/gpuinstall/plan --tests tests/unit/plan --count 20`` selects
random faults by a seed, such as an inverted comparison or a removed check. If no test
detects a fault, a test is missing. If a test detects no fault that others miss, it may
be redundant. Modules are changed in place and restored, also after an interrupt. A fault
in code that removes files may remove other files, so run this tool where only the clone
is writable.
"""

import argparse
import ast
import copy
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAIRS: tuple[tuple[type[ast.cmpop], type[ast.cmpop]], ...] = (
    (ast.Lt, ast.GtE),
    (ast.Gt, ast.LtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
)
OPPOSITES = {**dict(_PAIRS), **{second: first for first, second in _PAIRS}}


@dataclass(frozen=True)
class Fault:
    """A place in a module and its replacement."""

    path: Path
    line: int
    kind: str
    start: int
    """The byte offset in the module, like ``end``."""
    end: int
    replacement: str

    def apply_to(self, source: bytes) -> bytes:
        """Return the module with the fault."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def find_faults(path: Path) -> Iterator[Fault]:
    """Yield every possible fault in the functions of a module."""
    source = path.read_bytes()
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    for node in find_function_nodes(ast.parse(source)):
        for kind, target, replacement in changes(node):
            start = offsets[target.lineno - 1] + target.col_offset
            end = offsets[(target.end_lineno or 1) - 1] + (target.end_col_offset or 0)
            yield Fault(path, target.lineno, kind, start, end, replacement)


def find_function_nodes(tree: ast.AST, *, is_inside: bool = False) -> Iterator[ast.AST]:
    """Yield the executed nodes of functions."""
    if isinstance(tree, ast.FunctionDef):
        children: Sequence[ast.AST] = tree.body
        is_inside = True
    else:
        children = list(ast.iter_child_nodes(tree))
    for node in children:
        # Before Python 3.12, the parts of an f-string have no positions.
        if isinstance(node, ast.pattern | ast.JoinedStr | ast.AnnAssign):
            continue
        if is_inside:
            yield node
        yield from find_function_nodes(node, is_inside=is_inside)


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield the possible faults of a node: kind, target, and replacement."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in OPPOSITES:
            opposite = copy.copy(node)
            opposite.ops = [OPPOSITES[type(operator)]()]
            yield "comparison inverted", node, f"({ast.unparse(opposite)})"
        case ast.BoolOp(op=operator):
            exchanged = copy.copy(node)
            exchanged.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and, or swapped", node, f"({ast.unparse(exchanged)})"
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield "constant changed by one", node, str(number + 1)
        case ast.Expr(value=ast.Call()):
            yield "call removed", node, "pass"
        case ast.If(body=[*_, (ast.Raise() | ast.Return()) as exit_], orelse=[]):
            yield "check removed", exit_, "pass"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield "condition negated", test, f"(not ({ast.unparse(test)}))"


def find_failing_tests(tests: Sequence[str], seconds: float) -> set[str]:
    """Return the failing tests.

    Args:
        tests: The arguments of pytest.
        seconds: The time limit of a test run.
    """
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    # If a module changes twice within a second, its bytecode looks current.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"the tests do not end"}
    found = re.findall(
        r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", done.stdout, re.MULTILINE
    )
    return set(found)


def run_with_fault(
    fault: Fault,
    tests: Sequence[str],
    seconds: float,
) -> set[str]:
    """Return the tests that fail with a fault, and restore the module."""
    source = fault.path.read_bytes()
    for compiled in fault.path.parent.glob(f"__pycache__/{fault.path.stem}.*"):
        compiled.unlink()
    fault.path.write_bytes(fault.apply_to(source))
    try:
        return find_failing_tests(tests, seconds)
    finally:
        fault.path.write_bytes(source)


def main() -> None:
    """Draw faults and print a line per fault and per test."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument(
        "modules", nargs="+", type=Path, help="modules or folders of modules"
    )
    parser.add_argument(
        "--tests", nargs="+", default=["tests/unit"], help="what pytest runs"
    )
    parser.add_argument("--count", type=int, default=20, help="how many faults")
    parser.add_argument(
        "--seed", type=int, default=1, help="another one draws other faults"
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="when a run does not end"
    )
    arguments = parser.parse_args()

    candidates: list[Fault] = []
    for each in arguments.modules:
        for path in sorted(each.rglob("*.py")) or [each]:
            candidates += find_faults(path)
    generator = random.Random(arguments.seed)  # noqa: S311  anyone draws the same
    drawn = generator.sample(candidates, min(arguments.count, len(candidates)))
    failing_anyway = find_failing_tests(arguments.tests, arguments.seconds)
    finders: dict[str, int] = {}
    found = 0
    for fault in drawn:
        names = (
            run_with_fault(fault, arguments.tests, arguments.seconds) - failing_anyway
        )
        sys.stdout.write(
            f"{fault.path}:{fault.line} {fault.kind}: {' '.join(names) or 'NOT'}\n"
        )
        sys.stdout.flush()
        found += bool(names)
        for name in names:
            # Count the faults that only this test finds.
            finders[name] = finders.get(name, 0) + (len(names) == 1)
    for name, alone in sorted(finders.items()):
        sys.stdout.write(f"{name}: finds {alone} alone\n")
    sys.stdout.write(f"{found} of {len(drawn)} found\n")


if __name__ == "__main__":
    main()
