"""Sets of alternatives in ``[tool.uv] conflicts``."""

from gpuinstall.lock.request.pyproject import ProjectFile


def test_duplicate_conflict_sets_are_merged():
    extras = {"cpu": ["torch"], "cu128": ["torch"]}
    rows = [{"extra": name} for name in extras]
    document = {
        "project": {"name": "app", "optional-dependencies": extras},
        "tool": {"uv": {"conflicts": [rows] * 200}},
    }
    [members] = ProjectFile(document).find_alternatives()
    assert [one.part.name for one in members] == [*extras]
