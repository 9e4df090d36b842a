"""What the pages for a cluster give to copy, on a real Slurm cluster of three nodes: each has its own environment."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import pytest

from gpuinstall import process
from gpuinstall.uv import uv
from tests.frozen import GPUINSTALL
from tests.lab.clone import ROOT
from tests.lab.nodes import A100, H100, V100
from tests.lab.releases import LINUX, catalog_index
from tests.lab.slurm_cluster import BASE, NEEDS_CLUSTER, SlurmCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [*NEEDS_CLUSTER, pytest.mark.network]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
DRIVERS = {"n1": H100, "n2": A100, "n3": V100}
BOTH = ["n1 2.14.1+cu130", "n2 2.14.1+cu126"]
TRAIN = "import os, torch; print(os.uname().nodename, torch.__version__)\n"
LMOD = "/usr/share/lmod/8*/init/sh"
ENVIRONMENT_MODULES = "/usr/share/modules/init/sh"


@dataclass(frozen=True)
class Site:
    """A cluster with a project that all nodes see, and the recipes in it."""

    cluster: SlurmCluster
    jupyter: Path
    """The program of a user's own Jupyter, which is in no lock."""

    def run(self, *lines: str, status: int = 0) -> process.Finished:
        """Run lines of shell on the login node, where gpuinstall is on PATH."""
        variables = {**self.cluster.variables, "PATH": "/mnt/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        done = self.cluster.ended(self.cluster.start("\n".join(lines), variables))
        assert done.status == status, done.out + done.err
        return done

    def add(self, recipe: str, path: str) -> None:
        """Write a file of the documentation into what all nodes share, for the folder of the project there."""
        text = (ROOT / "docs" / "recipes" / recipe).read_text(encoding="utf-8")
        file = self.cluster.share / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("/shared/", "/mnt/"), encoding="utf-8")
        file.chmod(0o755)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real ipykernel and what it needs, as the nodes have no network."""
    folder = tmp_path_factory.mktemp("wheels")
    platform = ["--platform", "manylinux_2_28_x86_64", "--python-version", PYTHON]
    words = ["-m", "pip", "download", "-q", "--only-binary", ":all:", *platform]
    done = process.run([sys.executable, *words, "-d", folder, "ipykernel"], seconds=300)
    assert done.ok, done.err
    return folder


@pytest.fixture(scope="module")
def jupyter(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jupyter")
    source = ["--no-index", "--find-links", str(wheels)]
    for words in (
        ["venv", "-q", "--python", sys.executable, str(folder)],
        ["pip", "install", "-q", "--python", str(folder), *source, "jupyter-client"],
    ):
        done = process.run([uv(), *words], seconds=300)
        assert done.ok, done.err
    return folder / "bin" / "jupyter"


@pytest.fixture(scope="module")
def site(wheels: Path, jupyter: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The project of the pages: two locks, and an environment of each, made on a login node without a GPU."""
    index = tmp_path_factory.mktemp("index")
    catalog_index(index, ["2.14.1"], platforms=[LINUX], pythons=[PYTHON])
    for stand_in in (index / "simple").glob("typing_extensions-*"):
        stand_in.unlink()
    for wheel in wheels.iterdir():
        wheel.rename(index / "simple" / wheel.name)
    prolog = tmp_path_factory.mktemp("site") / "prolog"
    prolog.write_text(PROLOG, encoding="utf-8")
    prolog.chmod(0o755)
    with SlurmCluster(BASE, DRIVERS, index, configuration=f"Prolog={prolog}\n") as cluster:
        program = cluster.share / "bin" / "gpuinstall"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {GPUINSTALL[0]} {GPUINSTALL[1]} "$@"\n')
        program.chmod(0o755)
        (cluster.share / "project" / "train.py").write_text(TRAIN)
        site = Site(cluster, jupyter)
        site.run(
            "set -e",
            "scontrol update NodeName=n1 AvailableFeatures=h100 ActiveFeatures=h100",
            "scontrol update NodeName=n2 AvailableFeatures=a100 ActiveFeatures=a100",
            "scontrol update NodeName=n3 AvailableFeatures=v100 ActiveFeatures=v100",
            "gpuinstall lock torch ipykernel --target cu126 --target cu130",
            "gpuinstall sync --target cu126 --venv .venv-cu126",
            "gpuinstall sync --target cu130 --venv .venv-cu130",
        )
        yield site


PROLOG = """\
#!/bin/sh
# Slurm gives a prolog no PATH.
/mnt/bin/gpuinstall node verify --prolog --root /var/tmp/gpuinstall-0 >> /mnt/prolog.$(/bin/hostname) 2>&1 || true
"""


@pytest.mark.parametrize(
    ("program", "recipe", "file"),
    [
        (LMOD, "module.lua", "lua/torch/1.lua"),
        (ENVIRONMENT_MODULES, "module.tcl", "tcl/torch/1"),
    ],
    ids=["Lmod", "Environment Modules"],
)
def test_a_module_loaded_on_the_login_node_gives_each_node_its_own(
    site: Site, program: str, recipe: str, file: str
) -> None:
    site.add("module-python", "project/bin/python")
    site.add(recipe, file)
    folder = Path("/mnt", file).parents[1]

    done = site.run(
        f". {program}",
        f"module use {folder}",
        "module load torch && srun -w n[1-2] --gres=gpu:1 python train.py",
    )

    assert sorted(done.out.splitlines()) == BOTH


def test_a_kernel_of_a_real_jupyter_runs_in_the_environment_of_its_node(site: Site) -> None:
    site.add("kernel.json", "jupyter/kernels/torch/kernel.json")

    # A busy machine is no failure: Jupyter gives up after a minute.
    jupyter = f"{quote(str(site.jupyter))} run --RunApp.kernel_timeout=300"
    done = site.run(
        "export JUPYTER_DATA_DIR=/mnt/jupyter",
        f"srun -w n[1-2] --gres=gpu:1 {jupyter} --kernel=torch train.py",
    )

    assert sorted(done.out.splitlines()) == BOTH


def test_a_task_prolog_gives_each_task_the_environment_of_its_node(site: Site) -> None:
    site.add("task-prolog", "task-prolog")

    done = site.run("srun -w n[1-2] --task-prolog=/mnt/task-prolog python train.py")

    assert sorted(done.out.splitlines()) == BOTH


def test_a_batch_job_goes_where_a_lock_runs(site: Site) -> None:
    features = "--feature h100=9.0 --feature a100=8.0 --feature v100=7.0"

    done = site.run(
        "set -e",
        f"gpuinstall export needs --for slurm {features} --lock pylock.cu130.toml -o needs.txt",
        "(echo '#!/bin/sh'; cat needs.txt; echo gpuinstall run --any python train.py) > job.sh",
        "for job in 1 2 3 4; do sbatch --wait --exclusive --output job-$job.out job.sh & done; wait",
        "cat job-*.out",
    )

    nodes = {line for line in done.out.splitlines() if line.startswith("n")}
    assert nodes == set(BOTH)


@pytest.mark.parametrize("start", ["gpuinstall run --any", "--task-prolog=/mnt/task-prolog"])
def test_a_node_where_no_lock_runs_ends_with_the_reason(site: Site, start: str) -> None:
    site.add("task-prolog", "task-prolog")

    done = site.run(f"srun -w n3 {start} python train.py", status=3)

    assert "no lock here runs on Tesla V100-SXM2-32GB, driver 470.256.02" in done.out + done.err
    assert "CUDA 12.x needs driver 525.60.13 or newer" in done.out + done.err


def test_a_prolog_says_what_it_knows_and_drains_no_node(site: Site) -> None:
    site.run("srun -w n[1-3] true")

    said = [(site.cluster.share / f"prolog.{node}").read_text() for node in DRIVERS]
    assert [text.splitlines()[-1] for text in said] == ["Prolog      no proof yet"] * 3
    assert site.run("sinfo --noheader --format=%T").out == "idle\n"
