from __future__ import annotations

import pytest
import tomli

from gpuinstall.base.errors import UsageError
from gpuinstall.export.uv_project import groups, patched, unpatched
from gpuinstall.lock.lock import parse
from tests.unit.export.locks import FAMILY, cpu_lock, cuda_lock, lock, wheel

BASE = "https://index.example/whl"
BARE = '[project]\nname = "x"\nversion = "0"\n'
EXISTING = f"""{BARE}
[tool.uv.sources]
mine = {{ path = "mine" }}  # mine
torch = {{ index = "pytorch-cu118" }}  # old

[tool.ruff]
line-length = 100

[[tool.uv.index]]
name = "pytorch-cu118"
url = "{BASE}/cu118"
explicit = true
"""
CONFLICTS = f"""{BARE}
[project.optional-dependencies]
cpu = ["torch"]
gpu = ["torch"]

[tool.uv]
conflicts = [[{{ extra = "cpu" }}, {{ extra = "gpu" }}]]

[tool.uv.sources]
torch = [
    {{ index = "pytorch", extra = "gpu", marker = "sys_platform == 'linux'" }},
]
"""


def two() -> str:
    return patched(BARE, groups([cuda_lock(), cpu_lock()], FAMILY), BASE)


def test_each_backend_has_a_group_an_index_of_its_own_and_only_one_at_a_time():
    document = tomli.loads(two())
    uv = document["tool"]["uv"]
    assert document["dependency-groups"].keys() == {"torch-cpu", "torch-cu126"}
    assert uv["index"][1] == {"name": "gpuinstall-cu126", "url": f"{BASE}/cu126", "explicit": True}
    assert uv["sources"]["torch"][1] == {"index": "gpuinstall-cu126", "group": "torch-cu126"}
    assert uv["conflicts"] == [[{"group": "torch-cpu"}, {"group": "torch-cu126"}]]
    assert uv["dependency-groups"]["torch-cpu"] == {"requires-python": "==3.12.*"}


def test_a_group_pins_the_family_and_names_what_torch_brings_along_where_it_was_locked():
    (group,) = groups([cuda_lock(), cuda_lock("cu126-windows-x86_64")], FAMILY)
    torch, triton = group.requirements
    assert torch == "torch==2.14.1"
    assert triton.startswith(
        "triton==3.8.0 ; sys_platform == 'linux' and platform_machine == 'x86_64'"
    )
    assert "win32" not in triton


def test_targets_of_one_backend_with_different_torches_are_told_apart_by_their_markers():
    (group,) = groups([cuda_lock(), cuda_lock("cu126-windows-x86_64", torch="2.13.0")], FAMILY)
    torches = [text for text in group.requirements if text.startswith("torch==")]
    assert [("linux" in text, "win32" in text) for text in torches] == [
        (True, False),
        (False, True),
    ]


def test_a_companion_that_was_asked_for_has_no_marker():
    (group,) = groups(
        [lock("cpu", wheel("torchvision", "0.29.2+cpu"), inputs=("torchvision",))], FAMILY
    )
    assert group.requirements == ("torchvision==0.29.2",)


TABS = f"{BARE}\n[tool.uv]\n\tpackage\t=\tfalse\n\t# tabs\n"
WORDS = f'{BARE}\n[tool.x]\ntext = """\n# by gpuinstall, was: x\n"""\n'
SHAPES = [BARE, EXISTING, CONFLICTS, BARE.rstrip("\n"), EXISTING.replace("\n", "\r\n"), TABS, WORDS]


@pytest.mark.parametrize("text", SHAPES)
def test_patching_twice_is_patching_once_and_removing_gives_the_same_bytes(text):
    wanted = groups([cuda_lock(), cpu_lock()], FAMILY)
    once = patched(text, wanted, BASE)
    assert once != text
    assert patched(once, wanted, BASE) == once
    assert unpatched(once) == text


def test_a_file_whose_line_ends_were_changed_since_can_still_be_undone():
    assert unpatched(two().replace("\n", "\r\n")) == BARE.replace("\n", "\r\n")


def test_another_set_of_locks_replaces_the_one_before():
    fewer = tomli.loads(patched(two(), groups([cpu_lock()], FAMILY), BASE))
    assert fewer["dependency-groups"].keys() == {"torch-cpu"}
    assert "conflicts" not in fewer["tool"]["uv"]


def test_every_line_that_was_there_is_still_there_in_its_order():
    after = iter(patched(EXISTING, groups([cuda_lock()], FAMILY), BASE).splitlines())
    assert all(any(line in found for found in after) for line in EXISTING.splitlines())


def test_a_source_for_everyone_gives_way_because_uv_knows_no_other_beside_it():
    sources = tomli.loads(patched(EXISTING, groups([cuda_lock()], FAMILY), BASE))["tool"]["uv"][
        "sources"
    ]
    assert sources["torch"] == [{"index": "gpuinstall-cu126", "group": "torch-cu126"}]
    assert sources["mine"] == {"path": "mine"}


def test_extras_that_say_where_torch_comes_from_stay_and_conflict_with_ours():
    uv = tomli.loads(patched(CONFLICTS, groups([cuda_lock()], FAMILY), BASE))["tool"]["uv"]
    assert uv["sources"]["torch"][0] == {
        "index": "pytorch",
        "extra": "gpu",
        "marker": "sys_platform == 'linux'",
    }
    assert uv["conflicts"] == [
        [{"extra": "cpu"}, {"extra": "gpu"}],
        [{"extra": "cpu"}, {"extra": "gpu"}, {"group": "torch-cu126"}],
    ]


def test_extras_that_exclude_each_other_over_torch_conflict_with_ours_too():
    extras = '[project.optional-dependencies]\nold = ["torch==2.13.0"]\nnew = ["Torch >2"]\nx = ["y"]\nz = ["y"]\n'
    said = '[tool.uv]\nconflicts = [[{ extra = "old" }, { extra = "new" }], [{ extra = "x" }, { extra = "z" }]]\n'
    uv = tomli.loads(patched(f"{BARE}{extras}{said}", groups([cuda_lock()], FAMILY), BASE))["tool"][
        "uv"
    ]
    assert uv["conflicts"][2:] == [[{"extra": "old"}, {"extra": "new"}, {"group": "torch-cu126"}]]


def test_a_source_keeps_the_name_that_it_was_given():
    said = f'{BARE}[tool.uv.sources]\nTorch = {{ index = "theirs" }}\n'
    sources = tomli.loads(patched(said, groups([cuda_lock()], FAMILY), BASE))["tool"]["uv"][
        "sources"
    ]
    assert sources.keys() == {"Torch", "triton"}
    assert sources["Torch"] == [{"index": "gpuinstall-cu126", "group": "torch-cu126"}]


def test_a_lock_for_any_python_says_nothing_of_one():
    text = cuda_lock().text.replace('requires-python = "==3.12.*"\n', "")
    uv = tomli.loads(patched(BARE, groups([parse("pylock.cu126.toml", text)], FAMILY), BASE))[
        "tool"
    ]["uv"]
    assert "dependency-groups" not in uv


INLINE = [
    'tool.uv.index = [{ url = "https://index.example" }]\n[project]\n',
    f'{BARE}[tool.uv]\nindex = [{{ url = "https://index.example" }}]\n',
    f'{BARE}[tool.uv]\nsources = {{ torch = {{ index = "theirs" }} }}\n',
    f'{BARE}[tool.uv.sources.torch]\nindex = "theirs"\n',
    f'dependency-groups.dev = ["pytest"]\n{BARE}',
]


@pytest.mark.parametrize("text", INLINE)
def test_a_form_that_takes_no_further_line_is_refused_with_the_form_that_does(text):
    with pytest.raises(UsageError, match="cannot be extended") as refused:
        patched(text, groups([cuda_lock()], FAMILY), BASE)
    assert "[tool.uv.sources]" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[project", "cannot be patched"),
        ("", r"no \[project\]"),
        ("[tool.uv]\nmanaged = true\n", r"no \[project\]"),
        (f'{BARE}[dependency-groups]\nTorch_cu126 = ["mine"]\n', "torch-cu126 already"),
        (
            f'{BARE}[[tool.uv.index]]\nname = "gpuinstall-cu126"\nurl = "{BASE}"\n',
            "gpuinstall-cu126 already",
        ),
    ],
)
def test_what_uv_would_refuse_afterwards_is_refused_before(text, why):
    with pytest.raises(UsageError, match=why):
        patched(text, groups([cuda_lock()], FAMILY), BASE)


def test_locks_of_one_backend_for_different_pythons_are_refused_by_name():
    other = lock("cu126-windows-x86_64", wheel("torch", "2.14.1+cu126"), python="3.13")
    with pytest.raises(
        UsageError, match=r"pylock\.cu126\.toml, pylock\.cu126-windows-x86_64\.toml"
    ):
        groups([cuda_lock(), other], FAMILY)
