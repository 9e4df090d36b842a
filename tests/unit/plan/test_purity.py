"""The rooms that decide never touch the world."""

from __future__ import annotations

import ast
from pathlib import Path

import gpuinstall

SOURCE = Path(gpuinstall.__file__).parent
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
    "platform",
}
RULES = [
    SOURCE / "vendors" / "__init__.py",
    SOURCE / "vendors" / "protocol.py",
    SOURCE / "vendors" / "nvidia" / "code.py",
    SOURCE / "vendors" / "nvidia" / "driver.py",
    SOURCE / "vendors" / "nvidia" / "rules.py",
]
PURE = [
    *sorted((SOURCE / "plan").glob("*.py")),
    *RULES,
    SOURCE / "backend.py",
    SOURCE / "catalog" / "build.py",
    SOURCE / "catalog" / "catalog.py",
    SOURCE / "catalog" / "drivers.py",
    SOURCE / "machine.py",
    SOURCE / "request.py",
    SOURCE / "versions.py",
]


def imported(module: Path) -> set[str]:
    """Every module that is imported when the code runs, at the top or inside a function."""
    names = set()
    for node in ast.walk(Unchecked().visit(ast.parse(module.read_text("utf-8")))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


class Unchecked(ast.NodeTransformer):
    """Leaves out what only a type checker imports."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else self.generic_visit(node)


def test_no_room_that_decides_imports_the_world() -> None:
    for module in PURE:
        roots = {name.split(".")[0] for name in imported(module)}
        assert not roots & WORLD, module.name


def test_the_plan_imports_only_itself_the_makers_rules_and_values() -> None:
    allowed = ("gpuinstall.plan", "gpuinstall.vendors", "gpuinstall.backend", "gpuinstall.catalog.build")
    for module in sorted((SOURCE / "plan").glob("*.py")):
        ours = {name for name in imported(module) if name.startswith("gpuinstall")}
        assert all(name.startswith((*allowed, "gpuinstall.errors")) for name in ours), (module.name, ours)


def test_the_rules_of_a_maker_import_only_themselves_the_catalogue_and_values() -> None:
    allowed = ("gpuinstall.vendors", "gpuinstall.backend", "gpuinstall.catalog", "gpuinstall.versions")
    for module in RULES:
        ours = {name for name in imported(module) if name.startswith("gpuinstall")}
        assert all(name.startswith(allowed) for name in ours), (module.name, ours)


def test_the_walk_sees_imports_inside_functions_and_not_those_for_type_checkers(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("if TYPE_CHECKING:\n    import socket\n\ndef f():\n    import os.path\n    from a.b import c\n")

    assert imported(module) == {"os.path", "a.b"}
