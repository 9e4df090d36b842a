"""The house as a whole: which room may use which, without a circle; one meaning for a name."""

import ast
import hashlib
import re
from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest

import gpuinstall
from gpuinstall.plan.rules import RULES
from gpuinstall.wheels.learned.row import READING
from tests.lab.source import (
    SOURCE,
    circles,
    drawn,
    module_graph,
    modules,
    public_names,
    reached,
    room_graph,
)

# Every arrow between rooms, imports inside functions included: a new one is a decision, one that nobody uses goes.
# ``python -m tests.lab.source`` prints those of today. The command line may use everything.
ARROWS = """
__main__ -> base cli
api -> base catalog install lock machine plan project verify
base ->
catalog -> base sources
diagnose -> base catalog environments lock machine plan verify wheels
environments -> base
export -> base catalog environments lock machine
gpuinstall -> base
install -> base catalog environments lock machine plan project sources verify wheels
lock -> base catalog environments machine plan sources wheels
machine -> base catalog
plan -> base catalog machine
project -> base environments lock machine plan sources wheels
sources -> base
verify -> base catalog environments machine
wheels -> base catalog machine
"""

# What decides touches nothing of the world, whatever it imports; the rooms and modules by their dotted names.
PURE = [
    "base.errors",
    "base.finding",
    "base.machine",
    "plan",
    "base.request",
    "machine.amd.rules",
    "machine.apple.rules",
    "machine.intel.rules",
    "machine.nvidia.rules",
    "machine.protocol",
    "base.versions",
    "wheels.torch_wheel",
]
WORLD = {
    "os",
    "subprocess",
    "ctypes",
    "socket",
    "time",
    "datetime",
    "pathlib",
    "shutil",
    "requests",
    "urllib",
}
WORLD |= {"platform", "asyncio", "tempfile"}


# Programs that run alone in another interpreter, with nothing of ours to import: each has its own names.
ALONE = re.compile(r"gpuinstall\.(verify\.kernels|.*_child\b)")
# Of the room of wheels, what says nothing of how one is read; a new module counts.
NO_READERS = {"compatibility", "http_ranges", "inspector", "linking", "store"}
ENTRANCES = {"command", "main", "TYPE_CHECKING"}
"""What a command, or a program, is called by whoever starts it."""


def test_every_arrow_between_rooms_is_one_of_the_plan_and_every_one_of_the_plan_is_used():
    graph = {room: others for room, others in room_graph().items() if room != "cli"}

    assert drawn(graph).splitlines() == ARROWS.strip().splitlines()


def test_nothing_uses_the_command_line_but_its_entrance():
    assert {room for room, others in room_graph().items() if "cli" in others} == {
        "__main__"
    }


@pytest.mark.parametrize("graph", [module_graph, room_graph])
def test_nothing_imports_or_below_the_door_names_a_type_in_a_circle(graph):
    below = graph(types=True)
    del below["gpuinstall"]
    of_types = {name: others - {"gpuinstall"} for name, others in below.items()}

    assert circles(graph()) == []
    assert circles(of_types) == []


def test_a_public_name_is_defined_once():
    definitions: dict[str, list[str]] = defaultdict(list)
    for name, module in modules().items():
        if (
            not ALONE.match(name) and name != "gpuinstall.api"
        ):  # which gives what others define, under the same name
            for public in public_names(module.tree) - ENTRANCES:
                definitions[public].append(name)

    assert {
        public: where for public, where in definitions.items() if len(where) > 1
    } == {}


@pytest.mark.parametrize("root", PURE)
def test_what_decides_reaches_nothing_of_the_world(root):
    dotted = f"gpuinstall.{root}"
    inside = {
        name for name in modules() if name == dotted or name.startswith(f"{dotted}.")
    }
    touched = {
        name: {other.partition(".")[0] for other in modules()[name].imports} & WORLD
        for name in reached(inside)
    }

    assert inside
    assert {name: world for name, world in touched.items() if world} == {}


def test_requirements_and_markers_are_parsed_by_one_module():
    # An environment's own Marker has a line for each of its fields.
    parses = re.compile(r"(?<!\w)(StandardRequirement|Marker)\((?!\n|Value)")
    files = Path(gpuinstall.__file__).parent.rglob("*.py")
    parsing = {file.name for file in files if parses.search(file.read_text("utf-8"))}

    assert parsing == {"requirement.py"}


def test_no_path_is_asked_by_methods_that_raise():
    # Before Python 3.14, they raise PermissionError if a parent cannot be searched. os.path's functions return False.
    raising = {"exists", "is_dir", "is_file", "is_symlink"}
    found = [
        f"{name}:{node.lineno}"
        for name, module in modules().items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in raising
        and not (node.args or node.keywords)
    ]

    assert found == []


def test_a_rule_of_a_plan_names_each_code_that_it_rejects_with():
    folder = Path(gpuinstall.__file__).parent / "plan"
    text = "".join(
        (folder / f"{name}.py").read_text("utf-8") for name in ("rules", "companions")
    )
    given = set(re.findall(r'\bReason\(\s*"([\w-]+)"', text))

    assert {"other-torch", "no-companion"} <= given
    assert given <= {*chain.from_iterable(RULES.values())}


def test_wheels_are_read_by_the_rules_that_their_rows_are_numbered_for():
    digest = hashlib.sha256()
    for path in sorted((SOURCE / "wheels").rglob("*.*")):
        if path.stem in NO_READERS or path.suffix not in {".py", ".toml", ".bin"}:
            continue
        content = path.read_bytes()
        if path.suffix != ".bin":
            # Comments say nothing, nor do the line ends of a system.
            text = re.sub(r"(?m)^\s*(#.*)?\n", "", path.read_text("utf-8"))
            content = text.encode()
        digest.update(content)

    assert (READING, digest.hexdigest()[:16]) == (24, "003ab4786ecc22c5"), (
        "if another answer may be found in the same wheel, raise READING in wheels/learned/row.py:"
        " what was learned before holds for ever; then write the new pair here"
    )


def test_names_that_share_an_assignment_are_defined():
    assert public_names(ast.parse("A, (B, c.d, e[F]) = G")) == {"A", "B"}


def test_the_walk_sees_what_is_imported_where(tmp_path_factory):
    room = tmp_path_factory.mktemp("source") / "gpuinstall"
    (room / "a").mkdir(parents=True)
    (room / "__init__.py").touch()
    (room / "a" / "__init__.py").touch()
    (room / "a" / "b.py").touch()
    (room / "c.py").write_text(
        "if TYPE_CHECKING:\n    import socket\n    from gpuinstall.a import Kind\n"
        "def f():\n    import os.path\n    from gpuinstall.a import b\n"
    )
    read = modules(room)["gpuinstall.c"]

    assert sorted(read.imports) == ["gpuinstall.a.b", "os.path"]
    assert sorted(read.types) == ["gpuinstall.a", "socket"]


def test_circles_are_found_whatever_leads_to_them():
    assert circles({"a": "b", "b": "c", "c": "bd", "d": "", "e": "f", "f": "e"}) == [
        ["b", "c"],
        ["e", "f"],
    ]


LAYERS = ("lock.file", "lock.request", "lock.uv", "lock.resolve", "lock")
"""The layers of the lock package; each imports only those before it."""


def layer_of(module):
    name = module.removeprefix("gpuinstall.")
    parts = ".".join(name.split(".")[:2])
    return LAYERS.index(parts if parts in LAYERS else "lock")


def test_layers_of_locks_import_only_lower_ones():
    upward = [
        (name, other)
        for name, module in modules().items()
        if name.startswith("gpuinstall.lock.")
        for other in {*module.imports, *module.types}
        if other.startswith("gpuinstall.lock.") and layer_of(other) > layer_of(name)
    ]

    assert upward == []


PARSING_EDGES = {
    "base.config",
    "base.request",
    "base.requirement",
    "catalog.catalog",
    "cli.options",
    "lock.file.lock",
    "lock.request.conda",
    "lock.request.declaration",
    "lock.request.history",
    "lock.request.project",
    "lock.request.pyproject",
    "sources.configuration",
    "sources.requirements_file",
    "wheels.learned.row",
}
"""The readers of text, and the API's Request."""


def test_requirements_are_parsed_only_at_edges():
    parsing = set()
    for name, module in modules().items():
        names = {
            node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name)
        }
        if names & {"parse_requirement", "parse_constraint", "parse_line"}:
            parsing.add(name.removeprefix("gpuinstall."))

    assert parsing == PARSING_EDGES
