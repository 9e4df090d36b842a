"""``python -m tools.workflows ROOT JOB...``: run the blocks of Linux jobs of a workflow in order in another root.

ROOT is a system such as debootstrap makes, with python3, its venv module, make, gcc and git. The commit is cloned into
it for each job, as a runner would; of this machine the root gets only its certificates.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from time import monotonic

import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "test.yml"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def main() -> None:
    """Run the jobs; exit with the status of the first block that fails."""
    root, jobs = Path(sys.argv[1]), sys.argv[2:]
    if CERTIFICATES.is_file():
        shutil.copy2(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
    for name in jobs:
        clone = root / "runner" / name
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        for step in yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"][name]["steps"]:
            if "run" in step:
                run(root, name, step["run"])


def run(root: Path, job: str, block: str) -> None:
    """Run one block as a runner does, and say how long it took."""
    start = monotonic()
    script = f"cd /runner/{job}\n{block}"
    settings = [
        "HOME=/root",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "LC_ALL=C.UTF-8",
        "CI=true",
        f"SSL_CERT_FILE={CERTIFICATES}",
    ]
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    command = ["chroot", str(root), "env", "-i", *settings, *shell]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = (done.stdout or done.stderr).strip().rpartition("\n")[2]
    sys.stdout.write(f"{job}: {block}: exit {done.returncode}, {monotonic() - start:.0f} s: {last}\n")
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    main()
