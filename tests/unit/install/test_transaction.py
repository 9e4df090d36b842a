"""An environment is changed where it lies: what a change does not name is not touched, whatever happens meanwhile."""

import json
import os
import shutil
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from gpuinstall.base import process
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import replace
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.install import journal as journals
from gpuinstall.install import transaction
from gpuinstall.install.file_change import placed_files, plan_change
from gpuinstall.install.hold import hold, take_back
from gpuinstall.install.journal import Owner, read_journal
from gpuinstall.install.transaction import changing, replace_environment
from tests.lab.cases import mostly_heavy
from tests.lab.listener import Listener
from tests.lab.wheels import record

SITE = "lib/python3.12/site-packages"
ALPHA_1 = {"alpha/__init__.py": "one", "alpha/old.py": "old", "../../../bin/alpha": "1"}
ALPHA_2 = {"alpha/__init__.py": "two", "alpha/new/x.py": "x", "../../../share/a": "2"}
# A file becomes a folder, and a folder a file.
ALPHA_1 |= {"alpha/data": "d", "alpha/more/x.py": "m", "alpha/more/y/z.json": "z"}
ALPHA_2 |= {"alpha/data/x.json": "x", "alpha/data/y/z.py": "z", "alpha/more": "m"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An environment with alpha 1 and beta 1, a file of the user's, and what Python has compiled."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = EnvironmentPaths(tmp_path / ".venv")
    put(place.root, "alpha-1", ALPHA_1)
    put(place.root, "beta-1", {"beta.py": "b"})
    write(place.root / SITE / "alpha" / "__pycache__" / "old.cpython-312.pyc", "old")
    write(place.root / "notes.txt", "mine")
    return place


@pytest.fixture
def site(place):
    return place.root / SITE


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    os.utime(path, ns=(10**18, 10**18))


def put(root, package, files):
    """Put a package there as an installer does."""
    for name, text in files.items():
        write(root / SITE / name, text)
    name = f"{package}.dist-info/RECORD"
    data = {file: text.encode() for file, text in files.items()}
    write(root / SITE / name, record(data, name).decode())


def tree(place):
    """What lies in the environment, but for what Python compiles."""
    found = {}
    for path in sorted(place.root.rglob("*")):
        if not path.is_dir() and path.suffix != ".pyc":
            found[path.relative_to(place.root).as_posix()] = path.read_text()
    return found


def planned(place, comes=("alpha-2", ALPHA_2), goes=("alpha",)):
    staging = place.work / "staging-0123abcd"
    shutil.rmtree(staging, ignore_errors=True)
    arriving: tuple[InstalledPackage, ...] = ()
    if comes:
        put(staging, *comes)
        arriving = read_packages([staging / SITE])
    return plan_change(
        place,
        comes=placed_files(arriving, staging, place),
        after={package.name: package.version for package in arriving},
        leaving=[
            one for one in read_packages(place.packages_folders) if one.name in goes
        ],
        own=(),
    )


def change(place, *arguments):
    """Make a change, and commit it; return what was said."""
    listener = Listener()
    with changing(planned(place, *arguments), listener):
        pass
    return listener


def begun(place):
    """Make a change, and die before it is committed."""
    change = planned(place)
    transaction._begin(change)
    transaction._apply(change)
    # Of a process that is no more.
    begun_by(place, process=1, start="never")


def begun_by(place, **facts):
    """Have the change that is under way be another run's."""
    journal = read_journal(place.current_change, place)
    assert journal
    owner = replace(Owner.this_run(), **facts)
    journals.write_journal(replace(journal, owner=owner), place, place.current_change)


def back(place, *, takes_over=False):
    """Take the last change back; return what was said."""
    listener = Listener()
    take_back(place, listener, takes_over=takes_over)
    return listener


def heal_now(place):
    """Hold the environment for a moment; return what was said."""
    listener = Listener()
    with hold(place, listener):
        pass
    return listener


def refusal(action, *arguments):
    with pytest.raises(UsageError) as refused:
        action(*arguments)
    return refused.value


def contents(place):
    return {
        name: text for name, text in tree(place).items() if ".dist-info" not in name
    }


def test_a_change_touches_what_it_names_alone(place):
    notes = (place.root / "notes.txt").stat().st_ino
    change(place)
    assert contents(place) == {
        "notes.txt": "mine",
        "share/a": "2",
        f"{SITE}/alpha/__init__.py": "two",
        f"{SITE}/alpha/data/x.json": "x",
        f"{SITE}/alpha/data/y/z.py": "z",
        f"{SITE}/alpha/more": "m",
        f"{SITE}/alpha/new/x.py": "x",
        f"{SITE}/beta.py": "b",
    }
    assert (place.root / "notes.txt").stat().st_ino == notes
    for emptied in (f"{SITE}/alpha/__pycache__", "bin"):
        assert not (place.root / emptied).exists()


def test_a_package_goes_with_its_empty_folders(place, site):
    change(place, None)
    assert contents(place) == {"notes.txt": "mine", f"{SITE}/beta.py": "b"}
    assert not (site / "alpha").exists()


def test_a_change_that_fails_is_put_back(place):
    before = tree(place)
    with pytest.raises(ZeroDivisionError), changing(planned(place), Reporter()):
        raise ZeroDivisionError
    assert tree(place) == before
    assert not place.current_change.exists()
    assert not (place.root / "share").exists()


@pytest.mark.parametrize("has_links", [True, False])
def test_the_last_change_goes_back_and_forth(place, monkeypatch, has_links):
    if not has_links:
        # Files are copied then.
        refused = Mock(side_effect=PermissionError(1, "Operation not permitted"))
        monkeypatch.setattr(os, "link", refused)
    first = tree(place)
    change(place)
    second = tree(place)
    for number, expected in enumerate((first, second, first)):
        back(place)
        (place.root / f"new-{number}").write_text("mine")
        now = tree(place)
        assert {name: now[name] for name in now if "new-" not in name} == expected
    assert all((place.root / f"new-{number}").exists() for number in range(3))


def test_a_file_becomes_a_folder_and_a_folder_a_file_and_back(place, site):
    write(site / "alpha/more/__pycache__/x.cpython-312.pyc", "compiled")
    assert change(place).notices == []
    assert (site / "alpha/more").read_text() == "m"
    write(site / "alpha/data/y/__pycache__/z.cpython-312.pyc", "compiled")
    assert change(place, ("alpha-1", ALPHA_1)).notices == []
    assert (site / "alpha/data").read_text() == "d"


def test_a_file_comes_to_no_folder_that_holds_something_of_the_users(place, site):
    write(site / "alpha/more/mine.txt", "mine")
    before = tree(place)
    with pytest.raises(InstallationError, match="cannot be written"):
        change(place)
    assert tree(place) == before


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        ("alpha/data/mine.txt", ["alpha/data"]),
        ("alpha/data/x.json", ["alpha/data/x.json", "alpha/data"]),
        ("alpha/more", ["alpha/more", "alpha/more/x.py"]),
    ],
)
def test_what_is_in_the_way_of_what_a_killed_run_has_removed_stays_and_is_named(
    place, site, name, stays
):
    begun(place)
    write(site / name, "mine, since")
    [notice] = heal_now(place).notices
    assert notice.startswith("Stays")
    assert all(one in notice for one in stays)
    assert (site / name).read_text() == "mine, since"
    assert (site / "alpha/old.py").read_text() == "old"
    assert not place.current_change.exists()


def test_files_beside_the_compiled_ones_stay(place, site):
    mine = {"notes.txt", "mine.cpython-312.pyc"}
    for name in mine:
        write(site / "alpha" / "__pycache__" / name, "mine")
    change(place, None)
    assert {path.name for path in (site / "alpha").rglob("*.*")} == mine


def test_a_file_of_two_packages_stays_with_the_other(place, site):
    put(place.root, "gamma-1", {"alpha/old.py": "old"})
    # What helps to pass over a large package may be no text.
    (site / "gamma-1.dist-info/top_level.txt").write_bytes(b"caf\xe9\n")
    (site / "alpha/old.py").write_text("edited")
    assert change(place, None).notices == []
    assert (site / "alpha/old.py").read_text() == "edited"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("alpha/old.py", "edited, and longer"),
        ("alpha/old.py", "new"),
        ("alpha/new/x.py", "mine"),
    ],
)
def test_a_file_that_the_user_has_changed_or_written_is_kept(place, site, name, text):
    path = site / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    [notice] = change(place).notices
    [kept] = place.kept_files.glob(f"*/{SITE}/{name}")
    assert kept.read_text() == text
    assert name in notice
    assert str(place.kept_files) in notice


@pytest.mark.parametrize("link", [f"{SITE}/alpha", "share", "bin"])
@pytest.mark.parametrize("comes", [("alpha-2", ALPHA_2), None])
def test_nothing_behind_a_link_is_written_or_removed(place, tmp_path, link, comes):
    checkout = tmp_path / "checkout"
    if (place.root / link).exists():
        (place.root / link).rename(checkout)
    else:
        checkout.mkdir()
    (checkout / "a").write_text("mine")
    (place.root / link).symlink_to(checkout)
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    if link == "share" and comes is None:
        change(place, comes)
    else:
        error = refusal(planned, place, comes)
        assert (error.code, error.exit_code) == ("leads-outside", 2)
        assert f"rm {place.root / link}   # the link alone" in (error.hint or "")
    assert before == {path: path.read_bytes() for path in before}


def test_a_linked_file_goes_alone_and_is_kept(place, site, tmp_path):
    (tmp_path / "mine.py").write_text("mine")
    path = site / "alpha" / "old.py"
    path.unlink()
    path.symlink_to(tmp_path / "mine.py")
    change(place)
    assert (tmp_path / "mine.py").read_text() == "mine"
    [kept] = place.kept_files.glob(f"*/{SITE}/alpha/old.py")
    assert kept.is_symlink()


def test_a_record_that_names_a_file_outside_removes_nothing_there(place, tmp_path):
    put(place.root, "evil-1", {"evil.py": "e", "../../../../thesis.txt": "theirs"})
    change(place, None, ("evil",))
    assert (tmp_path / "thesis.txt").read_text() == "theirs"
    assert f"{SITE}/evil.py" not in tree(place)


def test_files_that_other_folders_share_are_not_written_into(place, site, tmp_path):
    other = tmp_path / "other.py"
    os.link(site / "alpha" / "__init__.py", other)
    change(place)
    assert other.read_text() == "one"


def newcomer(place, text="newer"):
    """A whole environment that is to take the place."""
    staging = place.work / "staging-89abcdef"
    shutil.rmtree(staging, ignore_errors=True)
    put(staging, "alpha-3", {"alpha/__init__.py": text})
    return staging


@pytest.mark.parametrize("is_there", [False, True])
def test_an_empty_place_takes_an_environment(place, is_there):
    shutil.rmtree(place.root)
    if is_there:
        place.root.mkdir()
    replace_environment(place, newcomer(place), Reporter())
    assert contents(place) == {f"{SITE}/alpha/__init__.py": "newer"}
    assert not place.last_change.exists()


def test_a_replaced_environment_is_kept_whole_and_comes_back(place):
    first = tree(place)
    change(place)
    back(place)
    replace_environment(place, newcomer(place), Reporter())
    assert contents(place) == {f"{SITE}/alpha/__init__.py": "newer"}
    (place.root / "since.txt").write_text("mine")
    notices = back(place).notices
    assert tree(place) == first
    assert any("since.txt" in notice for notice in notices)
    back(place)
    assert tree(place)["since.txt"] == "mine"
    # A further change ends that step, and keeps the older environment.
    notices = change(place).notices
    [kept] = place.kept_files.glob("*/.venv/notes.txt")
    assert kept.read_text() == "mine"
    assert any(str(kept.parent) in notice for notice in notices)


@contextmanager
def dying(moment):
    """Let what is done die at one of the calls that change a file system; yield the counter of them."""
    calls = [0]

    def counted(real):
        def call(*arguments, **options):
            calls[0] += 1
            if calls[0] == moment:
                raise KeyboardInterrupt
            if calls[0] > moment:
                # What is dead cleans nothing up either.
                raise SystemExit
            return real(*arguments, **options)

        return call

    with (
        suppress(KeyboardInterrupt, SystemExit),
        pytest.MonkeyPatch.context() as patched,
    ):
        for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "link"):
            patched.setattr(os, name, counted(getattr(os, name)))
        patched.setattr(Owner, "is_alive", property(lambda _owner: False))
        yield calls


def rebuild(place):
    replace_environment(place, newcomer(place), Reporter())


PARTS = {"change": change, "heal": heal_now, "back": back, "rebuild": rebuild}


@pytest.mark.parametrize("part", mostly_heavy(PARTS, {"change", "rebuild"}))
def test_a_run_that_dies_at_any_call_leaves_the_old_state_or_the_new(
    place, tmp_path, tmp_path_factory, part
):
    """And the next one dies at another call; nothing of the user's is missing after the third."""
    first = tree(place)
    if part == "back":
        change(place)
    if part == "rebuild":
        newcomer(place)
    begins = PARTS[part]
    if part == "heal":
        begun(place)
    start = tree(place)
    copy = tmp_path_factory.mktemp("copy") / "start"
    shutil.copytree(tmp_path, copy, symlinks=True)
    states, wrong = set(), []
    for moment in range(1, 400):
        shutil.rmtree(tmp_path)
        shutil.copytree(copy, tmp_path, symlinks=True)
        with dying(moment) as calls:
            begins(place)
        if calls[0] < moment:
            break
        if place.root.exists():
            (place.root / "since.txt").write_text("mine")
        with dying(moment % 7 + 1):
            heal_now(place)
        with dying(10**9):
            heal_now(place)
        now = tree(place)
        notes = [*place.root.rglob("notes.txt"), *place.work.rglob("notes.txt")]
        if now.pop("since.txt", "mine") != "mine" or not notes:
            wrong.append(moment)
        states.add(json.dumps(now))
    assert moment > 5
    assert wrong == []
    (place.root / "since.txt").unlink(missing_ok=True)
    if part in {"change", "rebuild"}:
        begins(place)
    after = start if part == "back" else tree(place)
    allowed = {json.dumps(first), json.dumps(after)}
    assert states <= allowed


def test_what_is_written_while_a_change_is_killed_stays_and_is_named(place, site):
    begun(place)
    (site / "alpha" / "new" / "x.py").write_text("mine, since")
    (site / "alpha" / "old.py").write_text("mine too")
    notices = heal_now(place).notices
    now = tree(place)
    assert now[f"{SITE}/alpha/new/x.py"] == "mine, since"
    assert now[f"{SITE}/alpha/old.py"] == "mine too"
    assert now[f"{SITE}/alpha/__init__.py"] == "one"
    [stays] = [notice for notice in notices if notice.startswith("Stays")]
    assert "alpha/new/x.py" in stays
    assert "alpha/old.py" in stays


def test_what_another_installer_has_changed_since_is_left_alone(place, site):
    begun(place)
    shutil.rmtree(site / "alpha-2.dist-info")
    put(place.root, "alpha-3", {"alpha/__init__.py": "three"})
    before = tree(place)
    listener = heal_now(place)
    assert tree(place) == before
    [kept] = listener.notices
    assert kept.endswith("alpha came or changed since")
    assert listener.steps == []
    assert [*place.kept_files.glob(f"*/change/before/{SITE}/alpha/old.py")]


def test_the_way_back_leaves_alone_what_another_installer_has_changed_since(
    place, site
):
    change(place, ("alpha-2", ALPHA_2), ("alpha", "beta"))
    shutil.rmtree(site / "alpha-2.dist-info")
    put(place.root, "alpha-3", {"alpha/__init__.py": "three"})
    listener = back(place)
    now = contents(place)
    assert now[f"{SITE}/alpha/__init__.py"] == "three"
    assert now[f"{SITE}/beta.py"] == "b"
    assert "alpha came or changed since" in listener.warnings[0]


def test_files_that_lost_their_bytes_with_the_power_are_put_back(place):
    before = tree(place)
    begun(place)
    for name in ("share/a", f"{SITE}/alpha/__init__.py", f"{SITE}/alpha/new/x.py"):
        (place.root / name).write_text("")
    heal_now(place)
    assert tree(place) == before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes with a path")
def test_a_pipe_that_took_the_place_of_a_file_has_no_bytes_and_stays(place):
    begun(place)
    pipe = place.root / "share/a"
    pipe.unlink()
    os.mkfifo(pipe)
    heal_now(place)
    assert pipe.is_fifo()


def test_a_change_of_another_host_is_named_and_put_back_only_if_told(
    place, monkeypatch
):
    before = tree(place)
    begun(place)
    changed = tree(place)
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    error = refusal(heal_now, place)
    assert error.code == "change-elsewhere"
    command = f"gpuinstall env rollback --venv {quoted(place.venv)} --replace"
    assert error.hint == f"{command}   # if it does not"
    assert "process 1 on" in error.message
    assert tree(place) == changed != before
    back(place, takes_over=True)
    assert tree(place) == before


def test_nobody_puts_back_what_a_living_run_changes(place):
    begun(place)
    parent = os.getppid()
    begun_by(place, process=parent, start=journals._start(parent))
    before = tree(place)
    with pytest.raises(InstallationError, match="is still in use by process"):
        heal_now(place)
    assert tree(place) == before


def test_a_journal_that_this_user_did_not_write_undoes_nothing(place):
    begun(place)
    file = place.current_change / "journal.json"
    file.write_text(file.read_text().replace("alpha", "notes"))
    before = tree(place)
    assert refusal(heal_now, place).code == "others-change"
    assert tree(place) == before


def test_nothing_is_changed_that_nobody_could_vouch_for(place, tmp_path, monkeypatch):
    (tmp_path / "full").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "full"))
    before = tree(place)
    with pytest.raises(InstallationError, match="cannot be written"):
        change(place)
    assert tree(place) == before
    assert not place.current_change.exists()


def test_without_a_change_there_is_nothing_to_take_back(place):
    assert refusal(back, place).code == "no-previous"


def test_the_change_of_a_run_that_was_waited_for_is_taken_back(place):
    before = tree(place)
    with ExitStack() as other:
        other.enter_context(hold(place, Reporter()))
        other.enter_context(changing(planned(place), Reporter()))
        assert place.is_unfinished

        class Waiting(Listener):
            def wait(self, text):
                super().wait(text)
                other.close()

        take_back(place, Waiting(), takes_over=False)
    assert tree(place) == before


def test_a_journal_is_on_the_disk_before_the_first_file_moves(place, monkeypatch):
    seen = []

    def sync(number):
        seen.append(str(Path(f"/proc/self/fd/{number}").readlink()))

    monkeypatch.setattr(os, "fsync", sync)
    for name in ("_apply", "sync_file_system"):
        monkeypatch.setattr(transaction, name, lambda _, name=name: seen.append(name))
    change(place)
    applied = seen.index("_apply")
    assert any(path.startswith(str(place.scratch)) for path in seen[:applied])
    assert seen[applied - 1] == str(place.work)
    assert "sync_file_system" in seen[applied:]
    assert seen[-1] == str(place.work)


MOUNTED = """
import os, sys
from pathlib import Path
from unittest.mock import patch
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import UsageError
from tests.unit.install.test_transaction import SITE, change, planned, put
place = EnvironmentPaths(Path(sys.argv[1]) / ".venv")
name = sys.argv[2]
put(place.root, "alpha-1", {"alpha/__init__.py": "one", "alpha/data/d": "d"})
put(place.root, "beta-1", {"beta.py": "b"})
source = Path(sys.argv[1]) / "source"
target = place.root / SITE / name
if target.is_dir():
    source.mkdir()
    (source / "d").write_text("mine")
else:
    source.write_text("mine")
assert os.system(f"mount --bind {source} {target}") == 0
change(place, None, ("beta",))
for comes in (None, ("alpha-2", {"alpha/__init__.py": "two", "alpha/data/d": "2"})):
    try:
        planned(place, comes)
    except UsageError as error:
        print(error.code, error.hint.partition(" ")[0])
print((source / "d" if source.is_dir() else source).read_text())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mounts as Linux has them")
@pytest.mark.parametrize("name", ["alpha/data", "alpha/__init__.py"])
def test_nothing_mounted_is_written_or_removed(tmp_path, name):
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or not process.run([*namespace, "true"]).ok:
        pytest.skip("no namespaces here")
    done = process.run(
        [*namespace, sys.executable, "-c", MOUNTED, str(tmp_path), name],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert done.out == "leads-outside umount\n" * 2 + "mine\n", done.err
