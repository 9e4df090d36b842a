import json
from io import FileIO, TextIOWrapper
from itertools import product

from gpuinstall.base.threads import side_by_side
from gpuinstall.cli.terminal import Terminal


def test_what_threads_say_at_once_are_lines_of_their_own_without_a_buffer_too(
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
        )  # what PYTHONUNBUFFERED makes of stdout
        side_by_side(commands, range(8))

    events = [
        json.loads(line)
        for line in (tmp_path / "events").read_text("utf-8").splitlines()
    ]
    said = sorted(tuple(map(int, event["argv"][1:])) for event in events)
    assert said == list(product(range(8), range(200)))
