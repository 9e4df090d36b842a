"""Requirements, URLs, and folders."""

import gc
import sys

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import (
    marker_environment,
    marker_holds,
    parse_requirement,
)
from gpuinstall.base.threads import map_concurrently

REPOSITORY = "git+https://git.example/tool#egg=tool"
ADDRESSES = {
    ".": (".", "."),
    ".[test]": (".", "."),
    "-e lib": ("lib", "./lib"),
    "--editable=./lib": ("lib", "./lib"),
    "lib/inner": ("inner", "lib/inner"),
    r"C:\work\lib": ("lib", r"C:\work\lib"),
    "./dist/owl_eye-3.0-py3-none-any.whl": (
        "owl-eye",
        "./dist/owl_eye-3.0-py3-none-any.whl",
    ),
    "git+ssh://git@git.example/tool@main#egg=x": (
        "x",
        "git+ssh://git@git.example/tool@main#egg=x",
    ),
    "git+https://git.example/pytorch/pytorch@v2.9.1": (
        "torch",
        "git+https://git.example/pytorch/pytorch@v2.9.1",
    ),
    "git+https://git.example/ours/vision": (
        "vision",
        "git+https://git.example/ours/vision",
    ),
    "https://files.example/a-1.tar.gz": ("a", "https://files.example/a-1.tar.gz"),
    "Thing @ git+https://git.example/t@main#subdirectory=s": (
        "thing",
        "git+https://git.example/t@main#subdirectory=s",
    ),
    "-e Thing @ ./lib": ("thing", "./lib"),
    # Paths can contain blanks.
    "./a folder": ("a-folder", "./a folder"),
    "-e ./my lib": ("my-lib", "./my lib"),
    "-e my lib": ("my-lib", "./my lib"),
    "my lib/inner part[test] ; os_name == 'posix'": ("inner-part", "my lib/inner part"),
    "/opt/Project - Copy": ("project-copy", "/opt/Project - Copy"),
    r"C:\my work\lib": ("lib", r"C:\my work\lib"),
    "thing @ ./my lib ; os_name == 'posix'": ("thing", "./my lib"),
    "-e thing[test] @ ../my lib": ("thing", "../my lib"),
}


def test_requirement_name_is_read_from_url():
    requirements = {text: parse_requirement(text) for text in ADDRESSES}
    found = {text: (one.name, one.url) for text, one in requirements.items()}
    assert found == ADDRESSES
    for text, one in requirements.items():
        assert one.editable is text.startswith("-")
        assert parse_requirement(one.text) == one


def test_extras_and_markers_of_urls_are_kept():
    asked = parse_requirement("./lib[a,b] ; sys_platform == 'linux'")
    assert asked.extras == ("a", "b")
    assert str(asked.marker) == 'sys_platform == "linux"'


REFUSED = {
    "it names no folder, or has no marker": (
        "./lib ; nonsense",
        "-e numpy>=2",
        "-e numpy @",
    ),
    "it is more than a line": (
        'numpy ; platform_release == "a\n-r /etc/passwd"',
        "numpy @ https://files.example/a.whl\n-r",
        "./lib[a\n-r /etc/passwd\n]",
        "numpy\r-r /etc/passwd",
        "numpy\x00",
        "numpy\u2028-r",
    ),
    "an option or a comment is no part of a path": (
        "./lib --hash=sha256:00",
        "./lib -r other.txt",
        "lib @ ./lib --index-url https://index.example/simple",
        "./lib #comment",
        "-r ../other.txt",
        "--index-url https://index.example/simple",
        "torch git+https://git.example/tool",
        "tool @ https://files.example/a b.whl",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_malformed_requirements_are_rejected(why):
    for text in REFUSED[why]:
        with pytest.raises(UsageError) as caught:
            parse_requirement(text)
        assert caught.value.code == "requirement-malformed", text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lib @ file:lib", "./lib"),
        ("lib @ file:../lib", "./../lib"),
        ("file:lib", "./lib"),
        ("-e file:lib", "./lib"),
        ("lib @ file:./a%20%23b", "./a #b"),
        ("lib @ file:a%23b", "./a#b"),
        ("lib @ file:///srv/lib", "/srv/lib"),
        ("lib @ ./lib#egg=x", "./lib"),
        ("lib @ https://h.example/lib", None),
    ],
)
def test_relative_file_urls_are_parsed_as_paths(text, path):
    assert parse_requirement(text).path == path


@pytest.mark.parametrize(
    ("typed", "likely"),
    [
        # conda writes these two.
        ("torch=2.9", "torch==2.9"),
        ("torch[opt]=2.9.*", "torch[opt]==2.9.*"),
        ("pytorch >=2.9", "torch>=2.9"),
        # Only a folder on this machine can be editable.
        (f"-e {REPOSITORY}", REPOSITORY),
    ],
)
def test_malformed_requirement_suggests_the_correct_form(typed, likely):
    with pytest.raises(UsageError) as caught:
        parse_requirement(typed)
    assert caught.value.hint == f"Write {likely} instead of {typed}"
    assert (parse_requirement(likely).url is not None) is (likely == REPOSITORY)


@pytest.mark.heavy
def test_markers_are_parsed_in_several_threads():
    # Garbage collection during parsing lets other threads run.
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
    map_concurrently(parse, range(8))
    gc.set_threshold(700)
    sys.setswitchinterval(0.005)


MARKERS = {
    "": True,
    "sys_platform == 'win32'": False,
    "platform_machine == 'aarch64' and python_version < '3.12'": True,
    "python_version >= '3.12'": False,
    # METADATA, and poetry.lock of Poetry 2.
    'extra == "gpu"': True,
    'extra == "GPU"': True,
    '"gpu" == extra': True,
    'extra == "docs"': False,
    'extra == "gpu" and extra == "fast"': True,
    'extra != "gpu" or sys_platform == "win32"': False,
    'extra == "cpu" or extra == "gpu" and sys_platform == "linux"': True,
    # uv.lock: the length and name of the project precede the extra or group.
    "extra == 'extra-5-paper-gpu' and extra != 'extra-5-paper-cpu'": True,
    "extra == 'extra-11-gpu-install-gpu'": True,
    "extra == 'group-5-paper-docs'": True,
    "extra == 'group-5-paper-gpu'": False,
}


@pytest.mark.parametrize(("marker", "expected"), MARKERS.items())
def test_markers_hold_for_target_python_and_extras(marker, expected):
    environment = marker_environment("linux", "aarch64", "3.11")

    assert marker_holds(marker, environment, ["gpu", "fast"], ["docs"]) is expected


@pytest.mark.parametrize(
    "url",
    [
        "https://h.example/d-1.0-py3-none-any.whl",
        "git+https://h.example/d.git@v1.0",
        "./d",
    ],
)
def test_url_ends_at_a_semicolon(url):
    parsed = parse_requirement(f"d @ {url}; python_version > '3'")
    assert (parsed.url, str(parsed.marker)) == (url, 'python_version > "3"')


def test_query_is_no_part_of_a_name():
    url = "http://h.example/x_y-1.0-py3-none-any.whl?x=1"
    assert parse_requirement(url).name == "x-y"


def test_marker_without_a_variable_is_malformed():
    with pytest.raises(UsageError, match="does not compare a variable"):
        parse_requirement("numpy; 'a' in 'abc'")
