"""A reporter that records messages."""

from gpuinstall.base.advice import Hint
from gpuinstall.base.reporter import Reporter


class Listener(Reporter):
    """A reporter that records messages instead of printing."""

    def __init__(self):
        self.warnings: list[str] = []
        self.waits: list[str] = []
        self.notices: list[str] = []
        self.steps: list[str] = []

    def warn(self, text: str, *fixes: Hint):
        """Record a warning with its fixes."""
        self.warnings.append(" ".join((text, *map(str, fixes))))

    def wait(self, text: str):
        """Record a wait."""
        self.waits.append(text)

    def notice(self, label: str, text: str):
        """Record a labeled line."""
        self.notices.append(f"{label} {text}")

    def step(self, label: str, text: str, seconds: float | None = None):  # noqa: ARG002
        """Record a labeled line."""
        self.steps.append(f"{label} {text}")
