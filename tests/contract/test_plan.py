"""``gpuinstall plan`` as a whole process: its document, its words, its exit status."""

import json
import subprocess
import sys

import pytest

from tests.lab.forked import gpuinstall

GTX_1080 = ("--gpu", "GTX 1080", "--driver", "580.95.05")
A100 = {
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "driver": {"version": "535.183.01", "cuda": "12.2"},
    "gpus": [{"index": 0, "name": "NVIDIA A100", "uuid": "GPU-1", "compute_capability": "8.0"}],
}


def plan(*arguments, **kwargs):
    """The document that ``plan --json`` prints."""
    done = gpuinstall("plan", *arguments, "--json", **kwargs)
    document = json.loads(done.out)
    assert document["exit_code"] == done.status
    return document


def test_a_machine_comes_from_a_file_from_stdin_and_out_of_an_envelope(tmp_path):
    file = tmp_path / "a100.json"
    file.write_text(json.dumps(A100))
    bare = plan("--machine", str(file))

    assert bare["data"]["build"]["torch"] == "2.14.1"
    assert plan("--machine", "-", text=json.dumps(A100)) == bare
    assert plan("--machine", "-", text=json.dumps({"gpuinstall": 1, "data": A100})) == bare


def test_a_person_reads_the_choice_the_reason_the_index_and_where_to_read_more():
    done = gpuinstall("plan", *GTX_1080)
    title, reason, index, more = done.out.splitlines()

    assert title.startswith("torch 2.14.1+cu126 · Python 3.")
    assert "GTX 1080 (sm_61)" in title
    assert "the newest torch with code for sm_61" in reason
    assert index.split() == ["index", "https://download.pytorch.org/whl/cu126"]
    assert "--all shows the" in more


def test_all_shows_every_build_that_was_passed_over():
    table = gpuinstall("plan", *GTX_1080, "--all").out
    passed_over = plan(*GTX_1080)["data"]["rejected"]

    assert f"{len(passed_over)} builds were rejected" in table
    assert sum(line.startswith(("1.", "2.")) for line in table.splitlines()) == len(passed_over)


def test_programs_are_said_not_to_have_been_looked_at():
    (warning,) = plan("torch", "torchvision", "triton", "vllm==0.9.1", *GTX_1080)["data"][
        "warnings"
    ]

    assert warning["code"] == "programs-not-looked-at"
    assert warning["message"].startswith("vllm was not resolved: plan --live resolves it")


def test_requirements_come_from_files_too(tmp_path):
    (tmp_path / "base.txt").write_text("torchvision  # pictures\n")
    (tmp_path / "requirements.txt").write_text("# ours\n\n-r base.txt\ntorch<2.14\n")

    assert plan("-r", "requirements.txt", *GTX_1080, cwd=tmp_path)["data"]["build"][
        "requirements"
    ] == [
        "torch==2.13.0+cu126",
        "torchvision==0.28.0+cu126",
    ]


@pytest.mark.parametrize("content", ["--no-index\n", "-r missing.txt\n", "torch ==\n"])
def test_a_requirements_file_that_cannot_be_followed_is_exit_2(tmp_path, content):
    (tmp_path / "requirements.txt").write_text(content)

    assert plan("-r", "requirements.txt", *GTX_1080, cwd=tmp_path)["exit_code"] == 2


def test_a_projects_settings_are_held_and_the_command_line_comes_first(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gpuinstall]\nrequirements = ["torch<2.14"]\npython = "3.11"\ntorch-index = "https://index.example/whl"\n'
    )
    configured = plan(*GTX_1080, cwd=tmp_path)["data"]["build"]
    said = plan("torch", "--python", "3.12", *GTX_1080, cwd=tmp_path)["data"]["build"]

    assert (configured["torch"], configured["python"]) == ("2.13.0", "3.11")
    assert configured["index"] == "https://index.example/whl/cu126"
    assert (said["torch"], said["python"]) == ("2.14.1", "3.12")


def test_a_torch_index_is_checked_and_shown_without_its_credentials(tmp_path):
    named = plan(
        "--torch-index", "https://somebody:secret@index.example/whl/", *GTX_1080, cwd=tmp_path
    )

    assert named["data"]["build"]["index"] == "https://index.example/whl/cu126"
    assert plan("--torch-index", "nowhere", *GTX_1080, cwd=tmp_path)["exit_code"] == 2


def test_no_selected_gpu_is_no_silent_cpu_build():
    document = plan(*GTX_1080, "--gpus", "")

    assert (document["exit_code"], document["errors"][0]["code"]) == (2, "no-such-gpu")


def test_without_a_driver_the_newest_is_assumed_and_what_older_ones_give_is_shown():
    done = gpuinstall("plan", "--gpu", "GTX 1080")

    assert "driver 580 is assumed, the newest that drives GeForce GTX 1080" in done.out
    assert done.out.splitlines()[-1] == "  driver 450–520 gives torch 2.7.1+cu118"
    document = plan("--gpu", "RTX 5090", "--gpu", "V100")
    assert [row["first"] for row in document["data"]["drivers"]] == [570, 575]
    assert document["data"]["reasons"][-1]["code"] == "driver-assumed"


HEAVY = {
    "asyncio",
    "concurrent.futures",
    "csv",
    "ctypes",
    "decimal",
    "email",
    "gpuinstall.catalog.failures",
    "gpuinstall.lock.lock",
    "gpuinstall.machine.probe",
    "gpuinstall.sources.session",
    "gpuinstall.sources.web",
    "hashlib",
    "http.client",
    "logging",
    "packaging.markers",
    "packaging.requirements",
    "packaging.specifiers",
    "packaging.tags",
    "packaging.utils",
    "pynvml",
    "random",
    "requests",
    "rich",
    "socket",
    "ssl",
    "subprocess",
    "tempfile",
    "urllib.request",
    "zipfile",
}


@pytest.mark.parametrize(
    "arguments",
    [["plan", "--json", "--gpu", "GTX 1080", "--driver", "580"], ["--help"], ["plan", "--help"]],
)
def test_nothing_heavy_is_imported_for_a_plan(tmp_path, arguments):
    code = (
        "import sys; from gpuinstall.cli.main import run_command_line; "
        f"run_command_line({arguments}); "
        f"print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stderr == "[]\n"


def test_hardly_anything_is_imported_for_a_command_that_run_has_checked(tmp_path):
    code = (
        "import sys; before = set(sys.modules); import gpuinstall.__main__; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    imported = done.stdout.split()

    assert [name for name in imported if name.startswith("gpuinstall.")] == [
        "gpuinstall.__main__",
        "gpuinstall.base",
        "gpuinstall.base.version",
    ]
    assert not {"contextlib", "json", "pathlib", "re", "typing"}.intersection(imported)
