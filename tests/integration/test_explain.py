"""``gpuinstall explain`` as a person and a program meet it."""

import base64
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.uv import uv_in_words
from tests.frozen import GPUINSTALL
from tests.lab.bounded import run
from tests.lab.forked import gpuinstall

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
MACHINE = {
    "schema": "gpuinstall.machine/1",
    "os": "linux",
    "arch": "x86_64",
    "gpus": [{"compute_capability": "12.0"}],
}


def explain(*words, text=None):
    return gpuinstall("explain", *map(str, words), text=text or "")


def document(*words, text=None):
    done = explain("--json", *words, text=text)
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["command"], found["status"], found["exit_code"], found["errors"]) == (
        "explain",
        "success",
        0,
        [],
    )
    return found["data"]


def test_a_file_is_read_and_its_cause_written_as_the_document_says():
    (cause, *_) = document(LOGS / "F49.txt")["causes"]
    assert cause.keys() == {"id", "title", "confidence", "evidence", "fix"}
    assert cause["id"] == "F49"
    assert cause["evidence"].startswith("ImportError: ")
    assert "unset LD_LIBRARY_PATH" in cause["fix"][0]


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the memory")
@pytest.mark.parametrize(("size", "kind"), [(100_000_000, "lines"), (50_000_000, "one line")])
def test_a_log_of_a_hundred_megabytes_and_a_line_of_fifty_are_read_in_seconds_and_little_memory(
    tmp_path, size, kind
):
    steps = "".join(
        f"10:00:{n % 60:02} epoch {n // 100} cuda:0 step {n} loss 0.{n}\n" for n in range(200_000)
    )
    noise = (
        steps
        if kind == "lines"
        else base64.b64encode(random.Random(1).randbytes(3_000_000)).decode()
    )
    log = noise * (size // len(noise) + 1)
    (tmp_path / "log").write_text(f"{log}{NO_KERNEL}{noise[:100_000]}", encoding="utf-8")
    ended = run([*GPUINSTALL, "explain", "--json", "log"], os.environ, tmp_path, seconds=30)
    # Noise may name a newer card by chance.
    assert json.loads(ended.out)["data"]["causes"][0]["id"] in {"F37", "F38"}
    assert (tmp_path / "log").stat().st_size > size
    assert ended.peak < 100_000_000


@pytest.mark.parametrize("words", [(), ("-",)])
def test_stdin_is_read(words):
    assert document(*words, text=f"step 1\n{NO_KERNEL}\n")["causes"][0]["id"] == "F37"


def test_the_argument_is_the_text_where_it_names_no_file():
    assert document(NO_KERNEL)["causes"][0]["id"] == "F37"
    assert document("x" * 5000 + NO_KERNEL)["causes"][0]["id"] == "F37"


def test_a_number_is_the_failure_that_it_names():
    texts = {
        "F38": "F38",
        "f38": "F38",
        "F03": "F03",
        "F3": "F03",
        "[F38]": "F38",
        "error: no build has code for RTX 5090   [F38]": "F38",
        "No code for this GPU   [F37, 80% sure]": "F37",
    }
    explained = {text: [cause["id"] for cause in document(text)["causes"]] for text in texts}
    assert {text: ids for text, ids in explained.items() if ids != [texts[text]]} == {}
    assert document("F999") == {"causes": []}

    heading, *rows = explain("F38").out.splitlines()
    assert heading.endswith("[F38]")
    assert [label for row in rows if (label := row[2:8].strip())] == ["why", "do"]


def test_the_machine_that_it_comes_from_decides(tmp_path):
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE))
    assert document(NO_KERNEL, "--machine", tmp_path / "machine.json")["causes"][0]["id"] == "F38"


def test_nothing_recognised_is_no_error_and_says_what_to_send():
    assert document("hello") == {"causes": []}
    done = explain("hello")
    assert done.status == 0
    assert done.out.splitlines()[0] == "gpuinstall does not recognise a failure in this text."
    assert "gpuinstall doctor " in done.out


def test_a_person_reads_evidence_reason_and_fix():
    labels = [line[2:7].strip() for line in explain(LOGS / "F49.txt").out.splitlines()[1:]]
    assert [label for label in labels if label] == ["seen", "why", "do"]


def test_a_file_that_does_not_exist_is_not_taken_for_the_text(tmp_path):
    for path in (tmp_path / "build", "none.log", "logs/none"):
        done = explain(path)
        assert (done.status, done.err.splitlines()[0]) == (2, f"error: no such file: {path}")
    assert document("https://download.pytorch.org/whl/cu134/torch/")["causes"] == []


def steps(name, count):
    return "".join(
        f"{name}\tRun\t2026-11-20T07:00:{n % 60:02}.0Z step {n} passed\n" for n in range(count)
    )


def test_of_several_failures_in_a_log_the_first_comes_first(tmp_path):
    (tmp_path / "ci.log").write_text(
        f"{steps('build', 100)}build\tRun\t2026-11-20T07:01:00.0Z OSError: [Errno 28] No space left on device\n"
        f"{steps('test', 200)}test\tRun\t2026-11-20T07:03:00.0Z {NO_KERNEL} on a Tesla P100\n"
    )
    causes = {cause["id"]: cause for cause in document(tmp_path / "ci.log")["causes"]}
    assert min(causes[name]["confidence"] for name in ("F70", "F37")) > 0.8, (
        "neither is an alternative to the other"
    )
    headings = [
        line for line in explain(tmp_path / "ci.log").out.splitlines() if line.endswith(":")
    ]
    assert headings[:2] == ["first:", "then:"]


def test_a_notebook_is_read_in_the_order_in_which_its_cells_ran(tmp_path):
    def cell(count, source, *outputs):
        return {
            "cell_type": "code",
            "execution_count": count,
            "source": [source],
            "outputs": list(outputs),
        }

    full = {
        "output_type": "stream",
        "text": ["Collecting torch\n", "OSError: [Errno 28] No space left on device\n"],
    }
    absent = {
        "output_type": "error",
        "traceback": ["\x1b[31mModuleNotFoundError\x1b[0m: No module named 'triton'"],
    }
    cells = [
        {"cell_type": "markdown", "source": "# A model"},
        cell(7, "import triton", absent),
        cell(None, "x"),
    ]
    cells.append(cell(2, "!pip install torch", full))
    (tmp_path / "model.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    (tmp_path / "torn.ipynb").write_text("{")

    lines = explain(tmp_path / "model.ipynb").out.splitlines()
    assert [lines.index("first:") + 1, lines.index("then:") + 1] == [
        next(number for number, line in enumerate(lines) if mark in line)
        for mark in ("[F70", "[F68")
    ]
    assert (
        explain(tmp_path / "torn.ipynb").err
        == f"error: {tmp_path / 'torn.ipynb'} is not a Jupyter notebook\n"
    )
    for text in (
        "[" * 200_000,
        '{"cells": [{"execution_count": 1e400, "source": "", "outputs": []}]}',
    ):
        (tmp_path / "strange.ipynb").write_text(text)
        strange = explain(tmp_path / "strange.ipynb")
        assert (strange.status, strange.err.splitlines()[0][-25:]) == (
            2,
            "is not a Jupyter notebook",
        )


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_a_paste_in_a_terminal_is_read_to_its_end():
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*GPUINSTALL, "explain"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        os.write(ours, f"Traceback:\n\n{NO_KERNEL}\n".encode() + b"\x04")
        out, err = run.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert err.decode().startswith("Paste the error, then press Ctrl-D")
    assert "[F37, " in out.decode()


def test_what_only_looks_like_a_gpu_fault_is_said_and_is_no_cause():
    data = document(LOGS / "healthy-out-of-memory.txt")
    assert data["causes"] == []
    assert [other["id"] for other in data["lookalikes"]] == ["out-of-memory"]
    assert "expandable_segments" in explain(LOGS / "healthy-out-of-memory.txt").out


def test_the_utf_16_of_powershell_is_read(tmp_path):
    (tmp_path / "log.txt").write_text(NO_KERNEL, encoding="utf-16")
    assert document(tmp_path / "log.txt")["causes"][0]["id"] == "F37"


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="no file that cannot be read (/proc/self/mem)"
)
def test_a_file_that_cannot_be_read_is_not_taken_for_the_text():
    done = explain("/proc/self/mem")
    assert (done.status, done.err) == (
        2,
        "error: /proc/self/mem cannot be read: Input/output error\n",
    )


@pytest.mark.parametrize("words", [("x", "--machine", "absent.json"), ("--machine", "-")])
def test_a_machine_that_cannot_be_read_is_a_usage_error(words):
    done = explain(*words)
    assert done.status == 2
    assert done.err.startswith("error: ")


def test_the_environment_that_is_named_stands_in_every_command(tmp_path):
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (cause, *_) = document(
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.2 as it may crash",
        "--venv",
        tmp_path / "env",
    )["causes"]
    assert cause["fix"][0].startswith(
        f"{uv_in_words()} pip install --python {tmp_path}/env/bin/python 'numpy<2'"
    )


def test_neither_torch_nor_requests_is_imported():
    done = process.run(
        [sys.executable, "-X", "importtime", "-m", "gpuinstall", "explain", NO_KERNEL]
    )
    imported = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert imported.isdisjoint({"requests", "torch", "rich", "pynvml"})
