"""Requirements that are addresses or folders."""

import gc
import sys
from contextlib import suppress

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.threads import side_by_side


@pytest.mark.parametrize(
    ("text", "name", "url", "editable"),
    [
        (".", ".", ".", False),
        (".[test]", ".", ".", False),
        ("-e lib", "lib", "./lib", True),
        ("--editable=./lib", "lib", "./lib", True),
        ("lib/inner", "inner", "lib/inner", False),
        (r"C:\work\lib", "lib", r"C:\work\lib", False),
        (
            "./dist/owl_eye-3.0-py3-none-any.whl",
            "owl-eye",
            "./dist/owl_eye-3.0-py3-none-any.whl",
            False,
        ),
        (
            "git+ssh://git@git.example/tool@main#egg=x",
            "x",
            "git+ssh://git@git.example/tool@main#egg=x",
            False,
        ),
        (
            "git+https://git.example/pytorch/pytorch@v2.9.1",
            "torch",
            "git+https://git.example/pytorch/pytorch@v2.9.1",
            False,
        ),
        (
            "git+https://git.example/ours/vision",
            "vision",
            "git+https://git.example/ours/vision",
            False,
        ),
        (
            "https://files.example/a-1.tar.gz",
            "a",
            "https://files.example/a-1.tar.gz",
            False,
        ),
        (
            "Thing @ git+https://git.example/t@main#subdirectory=s",
            "thing",
            "git+https://git.example/t@main#subdirectory=s",
            False,
        ),
        ("-e Thing @ ./lib", "thing", "./lib", True),
    ],
)
def test_an_address_is_read_with_the_name_that_it_tells(text, name, url, editable):
    asked = parse_requirement(text)
    assert (asked.name, asked.url, asked.editable) == (name, url, editable)
    assert parse_requirement(asked.text) == asked


@pytest.mark.parametrize(
    "text", ["torch", "torch>=2", "torch[opt]==2.*; python_version < '3.13'", "a.b"]
)
def test_what_is_no_address_has_none(text):
    assert parse_requirement(text).url is None


def test_extras_and_markers_of_an_address_are_kept():
    asked = parse_requirement("./lib[a,b] ; sys_platform == 'linux'")
    assert asked.extra_names == ("a", "b")
    assert str(asked.marker) == 'sys_platform == "linux"'


@pytest.mark.parametrize("text", ["./lib ; nonsense", "-e numpy>=2", "-e numpy @"])
def test_what_names_no_folder_or_has_no_marker_is_malformed(text):
    with pytest.raises(UsageError) as caught:
        parse_requirement(text)
    assert caught.value.code == "requirement-malformed"


def test_a_requirement_is_one_line():
    accepted = []
    for text in (
        'numpy ; platform_release == "a\n-r /etc/passwd"',
        "numpy @ https://files.example/a.whl\n-r",
        "./lib[a\n-r /etc/passwd\n]",
        "numpy\r-r /etc/passwd",
        "numpy\x00",
        "numpy\u2028-r",
    ):
        with suppress(UsageError):
            accepted.append(parse_requirement(text))
    assert accepted == []


def test_a_path_may_have_blanks():
    cases = {
        "./a folder": ("a-folder", "./a folder", False),
        "-e ./my lib": ("my-lib", "./my lib", True),
        "-e my lib": ("my-lib", "./my lib", True),
        "my lib/inner part[test] ; os_name == 'posix'": (
            "inner-part",
            "my lib/inner part",
            False,
        ),
        "/opt/Project - Copy": ("project-copy", "/opt/Project - Copy", False),
        r"C:\my work\lib": ("lib", r"C:\my work\lib", False),
        "thing @ ./my lib ; os_name == 'posix'": ("thing", "./my lib", False),
        "-e thing[test] @ ../my lib": ("thing", "../my lib", True),
    }
    wrong = []
    for text, expected in cases.items():
        asked = parse_requirement(text)
        if (asked.name, asked.url, asked.editable) != expected or parse_requirement(
            asked.text
        ) != asked:
            wrong.append((text, asked))
    assert wrong == []


def test_an_option_or_comment_is_no_part_of_a_path():
    accepted = []
    for text in (
        "./lib --hash=sha256:00",
        "./lib -r other.txt",
        "lib @ ./lib --index-url https://index.example/simple",
        "./lib #comment",
        "-r ../other.txt",
        "--index-url https://index.example/simple",
        "torch git+https://git.example/tool",
        "tool @ https://files.example/a b.whl",
    ):
        with suppress(UsageError):
            accepted.append(parse_requirement(text))
    assert accepted == []


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lib @ file:lib", "./lib"),
        ("lib @ file:../lib", "./../lib"),
        ("file:lib", "./lib"),
        ("-e file:lib", "./lib"),
        ("lib @ file:///srv/lib", None),
    ],
)
def test_a_path_may_be_written_as_a_file_address(text, path):
    assert parse_requirement(text).path == path


def test_what_is_no_folder_of_this_machine_cannot_be_editable():
    text = "git+https://git.example/tool#egg=tool"
    with pytest.raises(UsageError) as refused:
        parse_requirement(f"-e {text}")
    assert refused.value.hint == f"Write {text} in place of -e {text}"
    assert parse_requirement(text).is_remote


@pytest.mark.heavy
def test_markers_are_parsed_in_several_threads():
    # What is collected while a syntax tree is made lets other threads run.
    class Rubbish:
        def __init__(self):
            self.own = self

        def __del__(self):
            sum(range(200))

    def parse(thread):
        for number in range(1000):
            Rubbish()
            parse_requirement(f"a ; extra == 'a' or extra == '{thread}.{number}'")

    gc.set_threshold(50)
    sys.setswitchinterval(1e-5)
    side_by_side(parse, range(8))
    gc.set_threshold(700)
    sys.setswitchinterval(0.005)
