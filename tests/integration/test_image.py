"""A real image of several locks, started on eleven hosts: an ordinary user, a read-only root, no network."""

import pytest

from tests.lab.driver import build
from tests.lab.image import HOSTS, Container, call, lack, open_yard, started, volume_in

pytestmark = [pytest.mark.root, pytest.mark.heavy, pytest.mark.network]
NAME = "gpuinstall-test-any"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where images are made; skipped, with what is missing, where none can be."""
    if missing := lack():
        pytest.skip(missing)
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="module")
def image(folder):
    """The image, mounted."""
    yard = open_yard(folder)
    with yard.index:
        yard.make_base()
        yard.make_locks()
        yard.make_image(NAME)
    (folder / "work").mkdir()
    container = Container.of(NAME, folder / "work", build(folder / "libraries"))
    yield container
    container.remove()
    call("buildah", "rmi", NAME)


def test_each_host_takes_the_environment_that_fits_it_or_is_told_why_none_does(image, folder):
    came = {}
    for host, start in started(image, folder / "volumes"):
        came[host.name] = start.status or start.out.split()[0]
        assert start.status == 0 or start.err.startswith("error: "), start.err
    assert came == {host.name: host.expected for host in HOSTS}


def test_kernels_run_at_the_first_start_on_a_host_alone(image, folder):
    volume = volume_in(folder / "volumes", "kept")
    first, second = (image.start(HOSTS[4], "id", "-u", volume=volume) for _ in range(2))
    assert (first.out, second.out) == ("1000", "1000")
    assert "Verified" in first.err
    assert "Verified" not in second.err
