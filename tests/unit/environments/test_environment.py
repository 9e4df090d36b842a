from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.shell import quote_word
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import (
    NAME,
    Origin,
    create_hint_placeholders,
    find_added_packages,
    fingerprint,
    read_marker,
    read_origin,
    read_python_version,
)
from gpuinstall.environments.packages import InstalledPackage
from tests.lab.skips import needs_links
from tests.unit.install.environments import (
    MARKER,
    PYTHON,
    SCRIPTS,
    SITE,
    make_environment,
    write_files,
)


def test_malformed_environment_marker_is_ignored(tmp_path):
    assert read_marker(tmp_path) is None
    MARKER.write(tmp_path)
    assert read_marker(tmp_path) == MARKER
    schema = '{"schema": "gpuinstall.environment/1"}'
    for text in ("", "{}", "[]", "null", schema, '{"schema": "x"}'):
        (tmp_path / NAME).write_text(text, "utf-8")
        assert read_marker(tmp_path) is None


def test_python_version_is_read_from_files(tmp_path):
    uv = write_files(tmp_path / "uv", "lib/python3.13/site-packages/")
    (uv / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.13.2\n")
    venv = write_files(tmp_path / "venv", "lib/")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.9.18\n")
    rows = (
        (uv, "3.13.2"),
        (venv, "3.9.18"),
        (
            write_files(tmp_path / "conda", "conda-meta/python-3.12.4-h9_0.json"),
            "3.12.4",
        ),
        (write_files(tmp_path / "linux", "lib/python3.11/os.py"), "3.11"),
        (write_files(tmp_path / "windows", "python3.dll", "python312.dll"), "3.12"),
        (tmp_path / "absent", ""),
    )
    assert [(path, read_python_version(path)) for path, _ in rows] == [*rows]


@needs_links
def test_linked_environment_outside_a_project_is_unmanaged(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    MARKER.write(elsewhere)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".venv").symlink_to(elsewhere)
    (tmp_path / "beside").symlink_to(elsewhere)
    assert read_marker(tmp_path / "project" / ".venv") is None
    assert read_marker(tmp_path / "beside") == MARKER


def test_added_packages_are_found_by_canonical_name(tmp_path):
    site = make_environment(tmp_path / ".venv", "ours") / SITE
    for name in (
        "typing_extensions-4.15.0.dist-info",
        "numpy-2.3.4+label.dist-info",
        "Old.Egg-1.0-py3.12.egg-info",
        "pip-26.3.dist-info",
    ):
        write_files(site / name, "METADATA", "PKG-INFO")
    assert find_added_packages(tmp_path / ".venv") == (
        "numpy 2.3.4+label",
        "old-egg 1.0",
        "typing-extensions 4.15.0",
    )


def test_fix_depends_on_kind_of_environment(tmp_path):
    """Only virtual environments can be rebuilt."""
    ours = write_files(tmp_path / "ours", "pyvenv.cfg", PYTHON)
    MARKER.write(ours)
    venv = write_files(tmp_path / "venv", "pyvenv.cfg", PYTHON)
    conda = write_files(tmp_path / "conda", "conda-meta/history", PYTHON)
    embedded = write_files(tmp_path / "embedded", PYTHON, f"{SCRIPTS}/python312._pth")
    system = write_files(tmp_path / "usr", PYTHON)
    next_one = write_files(tmp_path / "ours.gpuinstall" / "staging-1", "pyvenv.cfg")
    first = write_files(tmp_path / "new.gpuinstall" / "staging-1", "pyvenv.cfg")
    into = {
        ours: (f" --venv {quote_word(ours)}", f" --venv {quote_word(ours)} --replace"),
        venv: (
            f" --into --venv {quote_word(venv)}",
            f" --venv {quote_word(venv)} --replace",
        ),
        conda: (f" --into --venv {quote_word(conda)}", None),
        embedded: (f" --into --venv {quote_word(embedded)}", None),
        system: (None, None),
    }
    new = tmp_path / "new"
    into[next_one] = into[ours]
    into[first] = (f" --venv {quote_word(new)}", f" --venv {quote_word(new)} --replace")
    words = {folder: create_hint_placeholders(interpreter(folder)) for folder in into}
    assert {at: (one.get("into"), one.get("anew")) for at, one in words.items()} == into


NONE = Machine("linux", "x86_64")
TWO = Machine("linux", "x86_64", gpus=(Gpu(0, uuid="GPU-a"), Gpu(1, uuid="GPU-b")))


RADEON = Machine(
    "linux",
    "x86_64",
    gpus=(Gpu(0, vendor="amd", architecture="gfx1201"),),
    makers={"amd": {"kernel": "6.12.1", "driver": "6.14"}},
)
CPU = Origin(for_cpu=True)
CASES = {
    "the CPU, beside GPUs": (("cpu", True, TWO, ()), TWO, CPU),
    "the CPU, which was proven": (("cpu", True, TWO, (0,)), TWO, CPU),
    "the CPU, without GPUs": (("cpu", True, NONE, ()), NONE, CPU),
    "all there was, and is": (("cpu", False, NONE, ()), NONE, CPU),
    "all that fitted": (("cpu", False, TWO, ()), TWO, Origin()),
    "GPUs that are elsewhere": (("cu126", False, NONE, ()), NONE, Origin()),
    "a GPU that the plan left out": (
        ("cu126", False, TWO, (1,)),
        TWO,
        Origin(gpus=(1,)),
    ),
    "another machine": (("cu126", False, NONE, (1,)), TWO, Origin()),
}
"""Marker fields, the current machine, and the expected origin."""


def test_machine_fingerprint_depends_on_chip_and_driver():
    chip = replace(RADEON, gpus=(Gpu(0, vendor="amd", architecture="gfx1100"),))
    driver = replace(RADEON, makers={"amd": {"kernel": "6.12.1", "driver": "6.16"}})
    assert len({*map(fingerprint, (RADEON, chip, driver))}) == 3


def test_environment_marker_determines_its_original_devices(tmp_path):
    assert read_origin(tmp_path, TWO) == Origin()
    wrong = {}
    for name, ((backend, is_for_cpu, machine, devices), here, origin) in CASES.items():
        replace(
            MARKER,
            backend=backend,
            machine=fingerprint(machine),
            verdict={"devices": [{"index": index} for index in devices]},
            is_for_cpu=is_for_cpu,
        ).write(tmp_path)
        found = read_origin(tmp_path, here)
        if found != origin:
            wrong[name] = found
    assert wrong == {}


def test_package_removed_by_another_tool_has_no_metadata(tmp_path):
    removed = InstalledPackage("alpha", "1.0", tmp_path / "alpha-1.0.dist-info")
    assert removed.find_metadata_files() == []


def test_compiled_files_are_found_without_parsing_rows(tmp_path):
    lines = ("a/b.so,sha256=x,1", "c.so.1.2,,", '"d.PYD",,', "e.so.py,,", "f.py,,")
    write_files(tmp_path, "RECORD", text="\n".join(lines))
    package = InstalledPackage("a", "1.0", tmp_path)
    assert package.find_native_files() == ["a/b.so", "c.so.1.2", "d.PYD"]
