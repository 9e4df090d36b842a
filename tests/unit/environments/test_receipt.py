import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall.catalog.authored import TABLES
from gpuinstall.environments import receipt
from gpuinstall.environments.receipt import Receipt, receipt_of
from gpuinstall.machine.container import JOBS


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which machine this is")
def test_a_catalogue_that_changes_voids_a_receipt(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = Receipt([], ["true"])
    kept.since = 2**80  # nothing has changed just now
    kept.keep(str(tmp_path), [], is_script=False)

    rows = Path(kept.file).read_text(encoding="utf-8").splitlines()
    stamped = [row.partition("\t")[2] for row in rows]
    assert str(TABLES) in stamped


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which machine this is")
def test_only_a_private_regular_receipt_starts_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ["sh", "-c", "echo started"]
    receipt = receipt_of(command)
    if receipt is None:
        pytest.skip("this kernel does not say when it was started")
    file = Path(receipt.file)
    file.parent.mkdir(parents=True)
    text = f"{receipt.state}\n{tmp_path}\n"
    kept = tmp_path / "kept"
    outcomes = {}
    for kind in ("regular", "link", "pipe", "endless", "readable by others", "too large"):
        file.unlink(missing_ok=True)
        kept.write_text(text)
        kept.chmod(0o600)
        match kind:
            case "regular":
                shutil.copy(kept, file)
            case "link":
                file.symlink_to(kept)
            case "pipe":
                os.mkfifo(file, 0o600)
            case "endless":
                file.symlink_to("/dev/zero")
            case "readable by others":
                shutil.copy(kept, file)
                file.chmod(0o644)
            case "too large":
                # Its last row is one of a file that is not there, which would be right.
                file.write_text(f"{text}\n\t{'/none' * 700_000}")
                file.chmod(0o600)
        script = f"from gpuinstall.environments.receipt import run_again; run_again({command}); print('checked')"
        words = [sys.executable, "-c", script]
        outcomes[kind] = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=60
        ).stdout.strip()
    assert outcomes == dict.fromkeys(outcomes, "checked") | {"regular": "started"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which machine this is")
def test_a_command_with_options_that_choose_anew_has_no_receipt():
    kept = {
        "python train.py": ["python", "train.py"],
        "--any python": ["python"],
        "--any --venv /opt/.venv --install python": ["python"],
        "--venv /opt/.venv python": None,
        "--any --no-proof python": None,
        "--any": None,
    }
    receipts = {words: receipt_of(words.split()) for words in kept}
    assert {words: receipt and receipt.command for words, receipt in receipts.items()} == kept


def test_a_job_is_known_to_receipts_as_to_the_probe():
    assert receipt._JOBS == JOBS
