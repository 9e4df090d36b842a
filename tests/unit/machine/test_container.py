"""What a process was put into, by the traces that each engine leaves."""

import pytest

from gpuinstall.machine.container import own_mounts, read_container
from tests.lab.recorded import recording

OVERLAY = "1 0 0:50 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n"
DISK = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"


@pytest.mark.parametrize(
    ("files", "variables", "container"),
    [
        ({}, {}, None),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"own-mounts.txt": OVERLAY}, {}, "docker"),
        ({"/proc/self/cgroup": "12:devices:/docker/4c01db0b339c\n"}, {}, "docker"),
        ({"/proc/self/cgroup": "0::/buildkit/7f0a\n"}, {}, "docker"),
        ({"/run/.containerenv": 'engine="podman-4.9.3"\n'}, {}, "podman"),
        ({"/proc/self/cgroup": "0::/machine.slice/libpod-4c01.scope\n"}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        (
            {
                "/proc/self/cgroup": "11:memory:/kubepods/burstable/pod1\n",
                "/.dockerenv": "",
            },
            {},
            "kubernetes",
        ),
        ({}, {"APPTAINER_CONTAINER": "/images/torch.sif"}, "apptainer"),
        ({}, {"SINGULARITY_CONTAINER": "/images/torch.sif"}, "apptainer"),
        ({"/proc/self/cgroup": "0::/lxc.payload.web/init.scope\n"}, {}, "lxc"),
        (
            {
                "own-mounts.txt": "9 8 0:40 /proc/cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw\n"
            },
            {},
            "lxc",
        ),
        ({"/run/systemd/container": "systemd-nspawn\n"}, {}, "lxc"),
        ({"/.dockerenv": "", "own-mounts.txt": DISK}, {}, None),
    ],
)
def test_an_engine_is_known_by_its_traces(tmp_path, files, variables, container):
    assert read_container(recording(tmp_path, files, **variables)).engine == container


def test_other_peoples_containers_on_a_host_say_nothing_of_this_process():
    theirs = "90 27 0:61 / /var/lib/docker/overlay2/x/merged rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A\n"
    assert own_mounts(DISK + theirs).splitlines() == DISK.splitlines()


@pytest.mark.parametrize(
    "variable", ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"]
)
def test_a_job_shares_the_bus(tmp_path, variable):
    info = read_container(recording(tmp_path, **{variable: "4711"}))
    assert (info.job, info.shares_the_bus) == (variable, True)


def test_a_builder_is_known_by_its_signs(tmp_path):
    assert read_container(recording(tmp_path / "ci", CI="true")).signs == (
        "a CI runner",
    )
    login = recording(tmp_path / "login", {"slurm.txt": "/usr/bin/sbatch"})
    assert read_container(login).signs == ("Slurm's commands",)
