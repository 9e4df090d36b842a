"""The lab's fixtures, for every folder of tests."""

pytest_plugins = ["tests.lab.fixtures", "tests.lab.index_fixtures"]
