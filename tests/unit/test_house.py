"""Imports between packages, one meaning for each name, and names of tests."""

import ast
import hashlib
import re
from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest

import gpuinstall
from gpuinstall.base.vendors import VENDOR_ROWS
from gpuinstall.plan.rules import RULES
from gpuinstall.wheels.learned.row import READING
from tests.lab.source import (
    SOURCE,
    build_package_graph,
    find_import_cycles,
    find_imported_modules,
    format_graph,
    module_graph,
    modules,
    public_names,
)

# All imports between packages, also inside functions. Remove unused entries.
# # ``python -m tests.lab.source`` prints the current ones. The command line can import everything.
ARROWS = """
__main__ -> base cli
api -> base catalog install lock machine plan project verify
base ->
catalog -> base sources
diagnose -> base catalog environments lock machine plan sources verify wheels
environments -> base sources
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

# Packages and modules that only compute: they import nothing that reads or changes the machine.
PURE = [
    "base.errors",
    "base.finding",
    "base.machine",
    "plan",
    "base.request",
    *(f"machine.{row.name}.rules" for row in VENDOR_ROWS),
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


# Programs that run in another interpreter, without gpuinstall's modules.
ALONE = re.compile(r"gpuinstall\.(verify\.kernels|.*_child\b)")
# Modules of ``wheels`` that do not affect how a wheel is inspected.
NO_READERS = {"compatibility", "http_ranges", "inspector", "linking", "store"}
ENTRANCES = {"command", "main", "TYPE_CHECKING"}
"""Names of entry points, which several modules define."""


def test_package_imports_match_architecture_list():
    graph = build_package_graph()
    del graph["cli"]

    assert format_graph(graph).splitlines() == ARROWS.strip().splitlines(), (
        "a package imports another one, or no longer does: update ARROWS, or avoid the import"
    )


@pytest.mark.parametrize("graph", [module_graph, build_package_graph])
def test_imports_and_types_have_no_cycles(graph):
    below = graph(types=True)
    del below["gpuinstall"]
    of_types = {name: others - {"gpuinstall"} for name, others in below.items()}

    assert find_import_cycles(graph()) == [], "these modules import each other"
    assert find_import_cycles(of_types) == [], "these types refer to each other"


def test_public_name_is_defined_once():
    definitions: dict[str, list[str]] = defaultdict(list)
    for name, module in modules().items():
        if (
            not ALONE.match(name) and name != "gpuinstall.api"
        ):  # api exports names of other modules
            for public in public_names(module.tree) - ENTRANCES:
                definitions[public].append(name)

    assert {
        public: where for public, where in definitions.items() if len(where) > 1
    } == {}, "rename one of two things with the same name"


@pytest.mark.parametrize("root", PURE)
def test_pure_modules_do_not_import_io_modules(root):
    dotted = f"gpuinstall.{root}"
    inside = {
        name for name in modules() if name == dotted or name.startswith(f"{dotted}.")
    }
    touched = {
        name: {other.partition(".")[0] for other in modules()[name].imports} & WORLD
        for name in find_imported_modules(inside)
    }

    assert inside
    assert {name: world for name, world in touched.items() if world} == {}, (
        "a module of PURE imports a module of WORLD"
    )


def test_interpreters_run_code_only_in_isolated_mode():
    # Without -I, ``python -c`` and ``python -m`` import modules of the working folder.
    starting = [
        line
        for file in SOURCE.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if re.search(r"[\[(,] *\"-[cm]\"", line)
    ]

    assert starting
    assert [line for line in starting if '"-I"' not in line] == [], "add -I"


URL_PARSERS = {
    "base/location.py",
    "base/requirement.py",
    # Redacts text that may contain a URL.
    "base/text.py",
    # Reads the name in a line of pip.
    "export/pins.py",
    # These read the name in a message of uv.
    "lock/uv/errors.py",
    "lock/uv/project.py",
}
"""Modules that recognize a URL or a wheel in text."""


def test_urls_and_wheels_are_recognized_by_one_module():
    parts = {"@", " @ ", "://", ".whl", "git+", "file:", "file://", "http://"}
    tests = {"startswith", "endswith", "partition", "find"}
    found = set()
    for module in modules().values():
        for node in module.nodes:
            read: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                read = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                read = node.args if node.func.attr in tests else []
            texts = {one.value for one in read if isinstance(one, ast.Constant)}
            if parts & texts:
                found.add(module.path.relative_to(SOURCE).as_posix())

    assert found - URL_PARSERS == set(), (
        "a module recognizes a URL or a wheel itself: call is_http_url or parse_source"
    )


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        # Which locks does a folder have? FolderLocks
        (r"= read_lock_text\(", {"lock/file/folder.py"}),
        (r'glob\("pylock', {"lock/file/target.py"}),
        # Has the request changed since the lock? compare_requests
        (
            r"\.(inputs|preferred_digest|requirements_files)( [!=]= |\.get\()",
            {"lock/file/lock.py"},
        ),
        # What does a lock contain? packaging's values, also for uv's output
        (r"Pylock\.from_dict\(", {"lock/file/lock.py", "lock/uv/project.py"}),
        # What does a requirement or a marker mean? Not a dataclass named Marker
        (
            r"(?<!\w)(StandardRequirement|Marker)\((?!\n|Value)",
            {"base/requirement.py"},
        ),
        (r"\.evaluate\(", {"base/requirement.py"}),
        # For which Python is a marker evaluated? marker_environment, never the running one
        (r'"(platform_machine|python_full_version)": ', {"base/requirement.py"}),
        (r"environment: Mapping\[str, str\] \| None", set()),
        (r"\bpython_version\(\)", {"machine/pythons.py"}),
        # Which index serves a name? Addresses.find_indexes
        (r"package_indexes\[", {"sources/addresses.py"}),
        # Which index lists a package? find_page, and find_index
        (r"\.page\(f.*\{(package|name)\}|\.page\(\s*index", {"sources/web.py"}),
        # Which environment does a command use? read_paths
        (
            r"(?<!def )\bdefault_environment\(",
            {"base/environment_paths.py", "project/run.py"},
        ),
        # Which environment is active? find_active_environment; its pip.conf
        (r'"CONDA_PREFIX"', {"cli/active.py", "sources/configuration.py"}),
        # Whose file is it? owners.py; of a path outside the folder, check_outside
        (r"\bst_uid\b", {"base/files.py", "base/owners.py"}),
        # Which Python does a new environment prefer? read_project
        (r"\bread_active_python\(", {"machine/pythons.py", "project/run.py"}),
        # Which Python does a build get? prefer_python, for a request and for a build
        (r"(?<!def )\bprefer_python\(", {"plan/context.py", "plan/demand.py"}),
        # Which interpreter is the base of this one? pythons.py
        (r'"_base_executable"', {"machine/pythons.py"}),
        # Which packages does uv build? list_built_sources
        (r"if not (one|package)\.wheels\]", {"lock/file/lock.py"}),
        # For which machine and Python are markers evaluated? LockRequest.markers
        (
            r"(?<!def )create_marker_values\(",
            {"lock/request/lock_request.py", "plan/demand.py"},
        ),
        # Which extras and groups are requested? read_contents, once per project
        (
            r"\bdefault_parts\b",
            {"lock/request/declaration.py", "project/folder.py"},
        ),
        # Which options do pip's files have? read_pip_files, once per command
        (r"(?<!def )\bfind_pip_files\(", {"sources/sources.py"}),
        # Where is the location of a source setting? SourceSetting.source
        (
            r"(Location\.parse|parse_source|find_path|remove_logins|urlsplit)\([\w.]*\.value\b",
            {"sources/addresses.py", "sources/provenance.py"},
        ),
        # Is a URL or path local? find_path
        (r"\bis_remote\b|def find_path\(", {"base/requirement.py"}),
        # What is the public version? parse_public_version
        (r"Version\((Version\(|[\w.]*\.public\))", {"base/versions.py"}),
        # What does a file's METADATA contain? parse_metadata
        (r"Parser\(\)\.parse|message_from_", {"wheels/wheel_reader.py"}),
        # Does a path lead outside? leads_outside
        (r'startswith\([^)]*"/?\.\.|"\.\." in ', {"base/files.py"}),
        # Is an installed file unchanged? find_damage and find_intact_files
        (r"\bst_size (==|!=|<) row\.size", {"environments/damage.py"}),
        (r"def _parse_record\(|csv\.reader\(", {"environments/packages.py"}),
        # Download and hash a file: _fetch_file; file_sha256 for an existing one
        (r"digest\.update\(", {"base/files.py", "lock/uv/fetch.py"}),
        # Relocate a path of the command line: relocate_value
        (r"def \w*relocate_(value|option|path)\w*\(", {"cli/options.py"}),
    ],
)
def test_question_is_answered_by_one_module(pattern, places):
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if re.search(pattern, file.read_text("utf-8"), re.MULTILINE)
    }
    assert found == places


def test_only_vendor_rows_list_several_vendors():
    # The plugin runs without gpuinstall's modules.
    names = {word for row in VENDOR_ROWS for word in (row.name, row.kind, row.pci_id)}
    allowed = {
        "gpuinstall.base.vendors",
        "gpuinstall.verify.pytest_plugin",
        "gpuinstall.machine.amd.prober",
        "gpuinstall.diagnose.predicates",
    }
    found = {
        f"{name}:{node.lineno}"
        for name, module in modules().items()
        for node in module.nodes
        if isinstance(node, ast.Dict | ast.Set | ast.Tuple | ast.List)
        and name not in allowed
        and len(
            {
                part.value
                for part in ast.iter_child_nodes(node)
                if isinstance(part, ast.Constant) and part.value in names - {"cpu"}
            }
        )
        > 1
    }
    assert found == set(), "derive this list of vendors from VENDOR_ROWS"


def test_source_uses_no_path_queries_that_raise():
    # Before Python 3.14, they raise PermissionError if a parent cannot be searched. os.path's functions return False.
    raising = {"exists", "is_dir", "is_file", "is_symlink"}
    found = [
        f"{name}:{node.lineno}"
        for name, module in modules().items()
        for node in module.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in raising
        and not (node.args or node.keywords)
    ]

    assert found == [], "call the function of os.path instead of the method of Path"


def test_plan_rules_list_their_reason_codes():
    folder = Path(gpuinstall.__file__).parent / "plan"
    text = "".join(
        (folder / f"{name}.py").read_text("utf-8") for name in ("rules", "companions")
    )
    given = set(re.findall(r'\bReason\(\s*"([\w-]+)"', text))

    assert {"other-torch", "no-companion"} <= given
    assert given <= {*chain.from_iterable(RULES.values())}, "add the code to RULES"


def test_inspection_version_matches_inspection_code():
    digest = hashlib.sha256()
    for path in sorted((SOURCE / "wheels").rglob("*.*")):
        if path.stem in NO_READERS or path.suffix not in {".py", ".toml", ".bin"}:
            continue
        content = path.read_bytes()
        if path.suffix != ".bin":
            # Ignores comments and line endings.
            text = re.sub(r"(?m)^\s*(#.*)?\n", "", path.read_text("utf-8"))
            content = text.encode()
        digest.update(content)

    assert (READING, digest.hexdigest()[:16]) == (49, "55e6a68b396231bb"), (
        "if the inspection of the same wheel can differ now, raise READING in wheels/learned/row.py:"
        " previous results are kept forever. Then write the new pair in this test"
    )


EXPLAINING = ("explain", "facts")
"""Modules that explain answers. They neither read nor resolve."""
READERS = {"sources", "lock.resolve.pages"}
READERS |= {"lock.resolve.ask", "lock.resolve.lane", "lock.resolve.reading"}
READERS |= {"lock.resolve.inspect", "wheels.learned.reader", "lock.uv.project"}


def test_explanations_read_and_resolve_nothing():
    imported = {
        f"{name} -> {other}"
        for name in EXPLAINING
        for other in modules()[f"gpuinstall.lock.resolve.{name}"].imports
        if other.removeprefix("gpuinstall.").startswith(tuple(READERS))
    }

    assert imported == set(), "an explanation is a pure function of Found or Refused"


PAGE_READERS = {"find_page", "find_page_if_reachable", "parse_page", "parse_files"}
PAGE_READERS |= {"read_default_wheels", "read_family_wheels", "read_index_names"}
PAGE_READERS |= {"read_live_catalog", "list_files", "read_listing"}


@pytest.mark.parametrize(
    ("functions", "places"),
    [
        # ask
        ({"resolve_project"}, {"ask"}),
        # inspect reads with the lane; extensions and torch have their own readers
        ({"Inspector"}, {"lane", "extensions"}),
        ({"make_reader"}, {"lane", "extensions", "live_builds"}),
        ({"readings", "library_names"}, {"reading", "extensions"}),
        # pages; locks reports the hosts of an index after a refusal
        (
            PAGE_READERS,
            {"pages", "lane", "live_builds", "extensions", "members", "locks"},
        ),
    ],
)
def test_resolver_walls_are_not_crossed(functions, places):
    crossing = set()
    for name, module in modules().items():
        folder, _, last = name.removeprefix("gpuinstall.").rpartition(".")
        for node in module.nodes if folder == "lock.resolve" else ():
            named = {getattr(node, key, None) for key in ("id", "attr")}
            if functions & named:
                crossing.add(last)

    assert crossing == places, "a wall of the resolver has another door"


LAYERS = ("lock.file", "lock.request", "lock.uv", "lock.resolve", "lock")
"""The layers of the lock package; each imports only earlier ones."""


def layer_of(module):
    name = module.removeprefix("gpuinstall.")
    parts = ".".join(name.split(".")[:2])
    return LAYERS.index(parts if parts in LAYERS else "lock")


def test_lock_layers_import_only_lower_layers():
    upward = [
        (name, other)
        for name, module in modules().items()
        if name.startswith("gpuinstall.lock.")
        for other in {*module.imports, *module.types}
        if other.startswith("gpuinstall.lock.") and layer_of(other) > layer_of(name)
    ]

    assert upward == [], "a layer of lock imports a later layer (LAYERS)"


def is_oversized(node):
    """Return whether a function or a class is above the limits of lock."""
    if isinstance(node, ast.ClassDef):
        return sum(isinstance(one, ast.FunctionDef) for one in node.body) > 20
    first, *_ = node.body
    lines = node.end_lineno - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= first.end_lineno - first.lineno + 1
    given = node.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return lines > 40 or len({*names} - {"self", "cls"}) > 5


def test_functions_and_classes_of_lock_are_small():
    found = set()
    for name, module in modules().items():
        for node in module.nodes if name.startswith("gpuinstall.lock.") else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_oversized(node):
                found.add(node.name)

    assert found == set(), "split what is new here by its decisions, not by lines"


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
    "lock.uv.edges",
    "sources.requirements_file",
    "sources.uv_settings",
    "wheels.learned.row",
}
"""Modules that parse requirements."""


def test_requirements_are_parsed_only_at_edges():
    parsing = set()
    for name, module in modules().items():
        names = {node.id for node in module.nodes if isinstance(node, ast.Name)}
        if names & {"parse_requirement", "parse_constraint", "parse_line"}:
            parsing.add(name.removeprefix("gpuinstall."))

    assert parsing == PARSING_EDGES, (
        "requirements are parsed where they are read: pass a Requirement, or update PARSING_EDGES"
    )


TESTS = Path(__file__).parents[1]


def test_test_names_have_at_most_eight_words():
    long = [
        f"{path.relative_to(TESTS).as_posix()}: {name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)\(", path.read_text("utf-8"))
        if len(name.split("_")) > 9
    ]

    assert long == [], "shorten these names to eight words"


def test_story_titles_have_at_most_eight_words():
    titles = [
        f"{path.stem}: {title}"
        for path in sorted((TESTS / "stories").glob("*.txt"))
        for title in re.findall(
            r"(?:\A|\n\n)# (?:heavy: )?(.*)", path.read_text("utf-8")
        )
        if len(title.split()) > 8
    ]

    assert titles == [], "shorten these titles to eight words"


def test_each_promise_names_an_existing_test():
    text = (TESTS.parent / "docs/evidence.md").read_text("utf-8")
    _, _, promises = text.partition("## Promises and their tests")
    listed = set(re.findall(r"`([^`\s]+)`(?=[, ])", promises))
    names = {one for one in listed if re.fullmatch(r"test_\w+", one)}
    files = {one for one in listed if re.fullmatch(r"\w+/.+\.(py|txt)", one)}
    sources = {
        path.relative_to(TESTS).as_posix(): path.read_text("utf-8")
        for path in TESTS.rglob("*")
        if path.suffix in {".py", ".txt"}
    }
    defined = set(re.findall(r"def (test_\w+)\(", "\n".join(sources.values())))
    whole = {
        name
        for name in sources
        if re.fullmatch(r"(hostile|integration)/test_\w+\.py", name)
    }

    assert names - defined == set()
    assert files - sources.keys() == set()
    assert whole - files == set(), "add these files to docs/evidence.md"


READING_CALLS = {
    *("open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "walk", "scandir"),
    *("stat", "lstat", "exists", "lexists", "isfile", "isdir", "islink", "access"),
    *("file_size", "_read_text", "packages_folders", "disk_usage", "real_path"),
    *("interpreter", "find_interpreter", "run", "getenv", "cwd", "home"),
    *("cache_folder", "default_index", "expand_home", "_read_files"),
}
READING_NAMES = re.compile(r"(read|open)_(?!poetry|machine_fact)\w+|load_extended_\w+")
"""Functions that read files, the machine, or an index, by their verb."""


def list_property_reads():
    """Return the properties that access files, processes, or variables."""
    found = []
    for name, module in modules().items():
        for node in module.nodes:
            if not isinstance(node, ast.FunctionDef):
                continue
            decorators = {ast.unparse(one) for one in node.decorator_list}
            if not decorators & {"property", "cached_property"}:
                continue
            text = ast.unparse(node)
            called = set(re.findall(r"(\w+)\(", text)) - {node.name}
            reads = {name for name in called if READING_NAMES.fullmatch(name)}
            if called & READING_CALLS or reads or "os.environ" in text:
                found.append(f"{name}: {node.name}")
    return found


def test_properties_read_no_files():
    assert list_property_reads() == [], "make a function of a property that reads"
