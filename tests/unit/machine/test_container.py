"""Detection of containers, jobs, and image builds."""

import pytest

from gpuinstall.machine.container import read_container, select_own_mounts
from tests.lab.recorded import recording
from tests.unit.machine.made import variables

OVERLAY = "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n"
DISK = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"


def cgroup(text):
    return {"/proc/self/cgroup": f"{text}\n"}


def mounts(text):
    return {"own-mounts.txt": text}


DOCKERENV = {"/.dockerenv": ""}


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({}, None),
        (DOCKERENV, "docker"),
        (mounts(OVERLAY), "docker"),
        (cgroup("12:devices:/docker/4c01db0b339c"), "docker"),
        (cgroup("0::/buildkit/7f0a"), "docker"),
        ({"/run/.containerenv": 'engine="podman-4.9.3"\n'}, "podman"),
        (cgroup("0::/machine.slice/libpod-4c01.scope"), "podman"),
        (DOCKERENV | variables(KUBERNETES_SERVICE_HOST="10.0.0.1"), "kubernetes"),
        (DOCKERENV | cgroup("11:memory:/kubepods/burstable/pod1"), "kubernetes"),
        (variables(APPTAINER_CONTAINER="/images/torch.sif"), "apptainer"),
        (variables(SINGULARITY_CONTAINER="/images/torch.sif"), "apptainer"),
        (cgroup("0::/lxc.payload.web/init.scope"), "lxc"),
        (
            mounts("9 8 0:40 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n"),
            "lxc",
        ),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "lxc"),
        # A virtual machine created from an image keeps these files.
        (DOCKERENV | mounts(DISK), None),
    ],
)
def test_container_engine_is_detected(tmp_path, files, container):
    assert read_container(recording(tmp_path, files)).engine == container


def test_docker_mounts_of_other_containers_are_ignored():
    theirs = "90 27 0:61 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n"
    assert select_own_mounts(DISK + theirs).splitlines() == DISK.splitlines()


@pytest.mark.parametrize(
    "variable", ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"]
)
def test_scheduler_job_is_detected_from_its_variable(tmp_path, variable):
    info = read_container(recording(tmp_path, **{variable: "4711"}))
    assert (info.job, info.has_shared_bus) == (variable, True)


def test_ci_and_login_nodes_are_detected(tmp_path):
    assert read_container(recording(tmp_path / "ci", CI="true")).signs == (
        "a CI runner",
    )
    login = recording(tmp_path / "login", {"slurm.txt": "/usr/bin/sbatch"})
    assert read_container(login).signs == ("Slurm's commands",)
