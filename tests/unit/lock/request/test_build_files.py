from gpuinstall.lock.request.project import build_files_digest

STATIC = '[project]\nname = "a"\ndependencies = ["numpy"]\n'
X = '[project]\nname = "a"\noptional-dependencies.x = ["numpy"]\n'
EXTRAS = f'{STATIC}dynamic = ["optional-dependencies"]\n'
DYNAMIC = '[project]\nname = "a"\ndynamic = ["dependencies"]\n'


def test_what_says_the_requirements_of_a_folder_counts(tmp_path):
    cases = [
        # The requirement, the file that is there, what it says and said before, whether the digest is another one.
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
    ]
    wrong = []
    for number, (requirement, name, texts, is_other) in enumerate(cases):
        folder = tmp_path / str(number)
        (folder / "my lib").mkdir(parents=True)
        (folder / "lib").mkdir()
        digests = set[str]()
        for text in texts:
            (folder / name).write_text(text, encoding="utf-8", newline="")
            digests.add(build_files_digest([requirement], folder))
        if (len(digests) > 1) != is_other:
            wrong.append((requirement, name, digests))
    assert wrong == []


def test_a_file_counts_that_a_build_file_names(tmp_path):
    names = {
        "setup.py": 'setup(install_requires=open("reqs/base.txt").read())',
        "setup.cfg": "[options]\ninstall_requires = file: reqs/base.txt",
        "pyproject.toml": f'{DYNAMIC}[tool.setuptools.dynamic]\ndependencies = {{ file = "reqs/base.txt" }}\n',
    }
    (tmp_path / "reqs").mkdir()
    unseen = []
    for name, text in names.items():
        (tmp_path / name).write_text(text, "utf-8")
        digests = set()
        for required in ("six", "six\nidna"):
            (tmp_path / "reqs/base.txt").write_text(required, "utf-8")
            digests.add(build_files_digest(["-e ."], tmp_path))
        (tmp_path / name).unlink()
        if len(digests) < 2:
            unseen.append(name)
    assert unseen == []


def test_an_archive_counts_by_its_contents(tmp_path):
    digests = []
    for contents in ("a", "b", "b"):
        (tmp_path / "a-1-py3-none-any.whl").write_text(contents)
        digests.append(build_files_digest(["./a-1-py3-none-any.whl"], tmp_path))
    assert digests[0] != digests[1] == digests[2]
    # uv says of it that it cannot be read.
    (tmp_path / "a-1-py3-none-any.whl").chmod(0)
    assert isinstance(build_files_digest(["./a-1-py3-none-any.whl"], tmp_path), str)


def test_nothing_is_recorded_where_nothing_is_built(tmp_path):
    (tmp_path / "pyproject.toml").write_text(STATIC, "utf-8")
    assert (
        build_files_digest(
            ["torch", "https://files.example/a-1.tar.gz", "./gone"], tmp_path
        )
        == ""
    )


def test_a_project_counts_that_a_requested_one_requires_by_its_path(tmp_path):
    text = STATIC.replace("numpy", "b") + '[tool.uv.sources]\nb = { path = "lib" }\n'
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    (tmp_path / "lib").mkdir()
    digests = set()
    for requires in ("numpy", "rich"):
        nested = STATIC.replace("numpy", requires).replace('"a"', '"b"')
        (tmp_path / "lib" / "pyproject.toml").write_text(nested, "utf-8")
        digests.add(build_files_digest(["-e ."], tmp_path))
    assert len(digests - {""}) == 2
