import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.request.declaration import parse_project, read_declaration
from gpuinstall.sources import Sources
from gpuinstall.sources.provenance import Effect

PROJECT = {
    "project": {
        "name": "Our.Thing",
        "dependencies": ["torch>=2.9", "numpy"],
        "optional-dependencies": {
            "plot": ["plotter", "our-thing[more]"],
            "more": ["cowsay"],
        },
    },
    "dependency-groups": {
        "dev": ["pytest", {"include-group": "lint"}, "our_thing[plot]"],
        "lint": ["ruff"],
        "docs": ["sphinx"],
    },
}


def test_dependencies_and_the_group_that_uv_installs_unasked_are_taken_with_the_projects_own_extras():
    expected = ("torch>=2.9", "numpy", "pytest", "ruff", "plotter", "cowsay")
    assert parse_project(PROJECT).listed.requirements == expected


@pytest.mark.parametrize(
    ("groups", "last"),
    [
        (["docs"], ["sphinx"]),
        ([], []),
        ("all", ["pytest", "ruff", "plotter", "cowsay", "sphinx"]),
    ],
)
def test_the_groups_that_uv_is_configured_for_count(groups, last):
    configured = {**PROJECT, "tool": {"uv": {"default-groups": groups}}}
    assert parse_project(configured).listed.requirements[2:] == tuple(last)


def test_the_groups_of_an_export_are_no_request():
    groups = {"docs": ["sphinx"], "torch-cpu": ["torch==2.13.0"]}
    index = {"name": "gpuinstall-cpu", "url": "https://index.example/cpu"}
    uv = {"default-groups": ["docs", "torch-cpu"], "index": [index]}
    pyproject = {**PROJECT, "dependency-groups": groups, "tool": {"uv": uv}}
    expected = ("torch>=2.9", "numpy", "sphinx")
    assert parse_project(pyproject).listed.requirements == expected


def test_a_folder_without_a_project_depends_on_nothing(tmp_path):
    assert read_declaration(tmp_path).listed.requirements == ()
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n", "utf-8")
    assert read_declaration(tmp_path).listed.requirements == ()


@pytest.mark.parametrize(
    "pyproject",
    [
        {"project": {"dependencies": ["torch=="]}},
        {"project": {"dependencies": [3]}},
        {"dependency-groups": {"dev": [{"include-group": "missing"}]}},
        {"tool": {"uv": {"default-groups": ["missing"]}}},
        {"project": {"name": "thing", "dependencies": ["thing[missing]"]}},
    ],
)
def test_what_is_malformed_is_the_users_fault(pyproject):
    with pytest.raises(UsageError, match="malformed"):
        parse_project(pyproject)


def test_a_package_with_a_source_of_its_own_is_not_looked_for_on_the_default_index():
    sources = {"numpy": {"workspace": True}, "torch": {"index": "pytorch-cu126"}}
    settings = parse_project(
        {**PROJECT, "tool": {"uv": {"sources": sources}}}
    ).listed.settings
    assert [(one.package, one.effect) for one in settings] == [
        ("numpy", Effect.REFUSED),
        ("torch", Effect.TORCH),
    ]
    with pytest.raises(
        UsageError, match=r"sources \(workspace.*\) of numpy cannot be obeyed"
    ):
        Sources().with_settings(settings)
    assert (
        parse_project(
            {**PROJECT, "tool": {"uv": {"sources": {"torch": {}}}}}
        ).listed.requirements[0]
        == "torch>=2.9"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"path": "../numpy"}, "numpy @ ../numpy"),
        ({"path": "../numpy", "editable": True}, "-e numpy @ ../numpy"),
        (
            {"git": "https://git.example/numpy", "branch": "main"},
            "numpy @ git+https://git.example/numpy@main",
        ),
        (
            {
                "git": "https://git.example/all",
                "rev": "0" * 40,
                "subdirectory": "numpy",
            },
            f"numpy @ git+https://git.example/all@{'0' * 40}#subdirectory=numpy",
        ),
        (
            {"url": "https://files.example/numpy-2-py3-none-any.whl"},
            "numpy @ https://files.example/numpy-2-py3-none-any.whl",
        ),
    ],
)
def test_what_uv_takes_from_an_address_is_asked_for_by_that_address(source, expected):
    assert (
        expected
        in parse_project(
            {**PROJECT, "tool": {"uv": {"sources": {"NumPy": source}}}}
        ).listed.requirements
    )


def test_a_path_with_a_blank_that_uv_is_given_can_be_read_again():
    sources = {"numpy": {"path": "../my numpy"}}
    requirements = parse_project(
        {**PROJECT, "tool": {"uv": {"sources": sources}}}
    ).listed.requirements

    assert [parse_requirement(text).url for text in requirements] == [
        None,
        "../my numpy",
        None,
        None,
        None,
        None,
    ]
