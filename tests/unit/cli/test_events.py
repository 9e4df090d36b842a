import json
from io import FileIO, TextIOWrapper
from itertools import product

from gpuinstall.base.threads import map_concurrently
from gpuinstall.cli.terminal import Terminal


def test_events_from_threads_are_separate_lines(
    tmp_path,
):
    def commands(thread):
        for number in range(200):
            terminal.show_command(["python", str(thread), str(number)])

    with TextIOWrapper(
        FileIO(tmp_path / "events", "w"), "utf-8", write_through=True
    ) as out:
        terminal = Terminal(
            out=out, as_events=True
        )  # The stream that PYTHONUNBUFFERED affects.
        map_concurrently(commands, range(8))

    events = [
        json.loads(line)
        for line in (tmp_path / "events").read_text("utf-8").splitlines()
    ]
    said = sorted(tuple(map(int, event["argv"][1:])) for event in events)
    assert said == list(product(range(8), range(200)))
