"""The limits of programs that servers may hold up."""

import sys

import pytest

from gpuinstall.base import process
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.patience import Patience, read_patience
from tests.lab.pace import within

PATIENCE = Patience(silence=0.005)
SLEEPS = "import time; time.sleep(60)"


def test_a_program_that_takes_too_long_is_ended():
    with (
        within(10),
        pytest.raises(
            InstallationError, match=r"was ended: not finished after 2 s"
        ) as caught,
    ):
        process.run([sys.executable, "-c", SLEEPS], patience=PATIENCE)
    assert caught.value.code == "too-slow"


@pytest.mark.parametrize("said", ["soon", "0", "-1", "inf", "nan"])
def test_patience_is_a_number_above_nothing(said):
    with pytest.raises(UsageError, match="GPUINSTALL_SILENCE"):
        read_patience({"GPUINSTALL_SILENCE": said})


def test_uv_is_told_our_patience_unless_it_was_told_another():
    told = Patience(silence=7).variables({"UV_HTTP_RETRIES": "9"})
    assert (told["UV_HTTP_TIMEOUT"], told["UV_HTTP_RETRIES"]) == ("7", "9")
