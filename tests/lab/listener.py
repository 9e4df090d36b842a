"""A reporter that remembers what was said."""

from gpuinstall.base.reporter import Reporter


class Listener(Reporter):
    """Shows nothing, and keeps it."""

    def __init__(self):
        self.warnings: list[str] = []
        self.waits: list[str] = []
        self.notices: list[str] = []
        self.steps: list[str] = []

    def warn(self, text: str):
        """Keep a warning."""
        self.warnings.append(text)

    def wait(self, text: str):
        """Keep what is waited for."""
        self.waits.append(text)

    def notice(self, label: str, text: str):
        """Keep a line with its label."""
        self.notices.append(f"{label} {text}")

    def step(self, label: str, text: str, seconds: float | None = None):  # noqa: ARG002
        """Keep a line with its label."""
        self.steps.append(f"{label} {text}")
