"""The lab's fixtures and hypothesis' profile, for every folder of tests."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.lab.fixtures", "tests.lab.index_fixtures"]

settings.register_profile(
    "gpuinstall",
    deadline=None,  # a busy machine is no failure
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,  # every clone tries the same examples
)
settings.load_profile("gpuinstall")
