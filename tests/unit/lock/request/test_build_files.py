from typing import Any

from gpuinstall.lock.request.project import compute_build_files_digest
from tests.lab.parsed import required

STATIC = '[project]\nname = "a"\ndependencies = ["numpy"]\n'
X = '[project]\nname = "a"\noptional-dependencies.x = ["numpy"]\n'
EXTRAS = f'{STATIC}dynamic = ["optional-dependencies"]\n'
DYNAMIC = '[project]\nname = "a"\ndynamic = ["dependencies"]\n'
NESTED = STATIC.replace('"a"', '"b"')
OUTER = STATIC.replace("numpy", "b") + '[tool.uv.sources]\nb = { path = "lib" }\n'
BASE = ("reqs/base.txt", ("six", "six\nidna"))
WHEEL = "a-1-py3-none-any.whl"

CASES: list[tuple[Any, ...]] = [
    # Requirement, changed file, contents before and after, whether the digest changes, another file.
    ("-e .", "setup.py", ("setup(a)\n", "setup(b)\n"), True),
    ("-e .", "setup.py", ("setup(a)\n", "setup(a)\r\n"), False),
    ("-e .", "setup.cfg", ("[options]\n", "[options]\na = b\n"), True),
    ("-e .", "pyproject.toml", (DYNAMIC, f"{DYNAMIC}[tool.builder]\n"), True),
    ("-e .", "pyproject.toml", (STATIC, STATIC.replace("numpy", "rich")), False),
    ("-e .", "pyproject.toml", (STATIC, STATIC.replace('"a"', '"b"')), True),
    ("-e .[x]", "pyproject.toml", (X, X.replace("numpy", "rich")), True),
    ("-e .[dev]", "pyproject.toml", (EXTRAS, f"{EXTRAS}[tool.builder]\n"), True),
    ("./my lib", "my lib/setup.py", ("setup(a)\n", "setup(b)\n"), True),
    (
        "lib @ ./lib",
        "lib/pyproject.toml",
        (STATIC, STATIC.replace("numpy", "rich")),
        True,
    ),
    (
        "lib @ ./lib",
        "lib/pyproject.toml",
        (STATIC, f"{STATIC}[tool.formatter]\n"),
        True,
    ),
    ("numpy", "setup.py", ("setup(a)\n", "setup(b)\n"), False),
    ("-e .", "README.md", ("a\n", "b\n"), False),
    (f"./{WHEEL}", WHEEL, ("a", "b"), True),
    (f"./{WHEEL}", WHEEL, ("a", "a"), False),
    # Files that a build file refers to.
    (
        "-e .",
        *BASE,
        True,
        ("setup.py", 'setup(install_requires=open("reqs/base.txt").read())'),
    ),
    (
        "-e .",
        *BASE,
        True,
        ("setup.cfg", "[options]\ninstall_requires = file: reqs/base.txt"),
    ),
    (
        "-e .",
        *BASE,
        True,
        (
            "pyproject.toml",
            f'{DYNAMIC}[tool.setuptools.dynamic]\ndependencies = {{ file = "reqs/base.txt" }}\n',
        ),
    ),
    # Projects that a requested project requires by path.
    (
        "-e .",
        "lib/pyproject.toml",
        (NESTED, NESTED.replace("numpy", "rich")),
        True,
        ("pyproject.toml", OUTER),
    ),
]


def test_digest_changes_only_with_build_files(tmp_path):
    wrong = []
    for number, (requirement, name, texts, is_other, *beside) in enumerate(CASES):
        folder = tmp_path / str(number)
        for below in "my lib", "lib", "reqs":
            (folder / below).mkdir(parents=True)
        digests = set[str]()
        for text in texts:
            for file, contents in (name, text), *beside:
                (folder / file).write_text(contents, encoding="utf-8", newline="")
            digests.add(compute_build_files_digest(required(requirement), folder))
        has_rule = not is_other or "" not in digests
        if not has_rule or (len(digests) > 1) != is_other:
            wrong.append((requirement, name, digests))
    assert wrong == []


def test_unreadable_archive_is_passed_to_uv(tmp_path):
    (tmp_path / WHEEL).touch(0)
    assert isinstance(compute_build_files_digest(required(f"./{WHEEL}"), tmp_path), str)


def test_digest_is_empty_without_local_source_builds(tmp_path):
    (tmp_path / "pyproject.toml").write_text(STATIC, "utf-8")
    requirements = required("torch", "https://files.example/a-1.tar.gz", "./gone")
    assert compute_build_files_digest(requirements, tmp_path) == ""
