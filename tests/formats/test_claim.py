"""Claims of an output: one process at a time, and takeover from an ended process."""

import json
import logging
import os
import subprocess
import sys
import threading

import pytest

from aptool.errors import InputError
from aptool.formats import claim as claims
from aptool.formats.claim import Claim, SupersededError, claimed, holds
from aptool.paths import Url, location

# Claims an output, prints a line and waits to be killed.
OWNER = """
import sys
from aptool.formats.claim import Claim
from aptool.paths import location
Claim(location(sys.argv[1]), "x.run").take()
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["disk", "s3"])
def path(request, tmp_path):
    folder = location(tmp_path) if request.param == "disk" else Url(request.getfixturevalue("bucket"))
    return folder / "claim"


@pytest.fixture
def owner(path):
    """A running process that has claimed the output."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


def test_claim_exists_while_the_block_runs(path):
    with claimed(path, "x.run") as mine:
        mine.check()
        assert holds(path, mine.token)
        assert not holds(path, "another")

    assert not path.exists()
    assert not holds(path, mine.token)


def test_running_process_keeps_its_claim(path, owner):
    expected = (
        f"x.run: being written by process {owner.pid} on .*, since 20.*; expected one command at a time"
    )
    with pytest.raises(InputError, match=expected), claimed(path, "x.run"):
        pytest.fail("claimed twice")


def test_claim_of_a_killed_process_is_taken_over_with_a_log_line(path, owner, caplog):
    owner.kill()
    owner.wait()

    with caplog.at_level(logging.INFO), claimed(path, "x.run") as mine:
        mine.check()

    [line] = caplog.messages
    assert line.startswith(f"x.run: process {owner.pid} on ")
    assert line.endswith("has ended: its output is taken over")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"tok',
        b'{"token": \xff',
        b'{"token": ' * 5000,
        b'{"token": 1, "process": {}}',
        b'{"token": 1, "process": "../x\\n", "since": "\\ud800"}',
    ],
)
def test_damaged_claim_is_taken_over(path, data, monkeypatch):
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.1)
    for machine in (b"", b', "machine": "' + claims._machine().encode() + b'"}'):
        store, key = claims.store_of(path)
        store.create(key, data.removesuffix(b"}") + machine if machine and data.endswith(b"}") else data)
        with claimed(path, "x.run") as mine:
            mine.check()


def test_reused_process_id_is_not_the_owner(path):
    first = Claim(path, "x.run")
    first.take()
    record = json.loads(path.read_bytes())
    assert record["process"] == os.getpid()
    rewritten = json.dumps(record | {"started": "1"}).encode()
    store, key = claims.store_of(path)
    assert store.swap(key, rewritten, store.read_versioned(key)[1])

    with claimed(path, "x.run") as mine:
        mine.check()
        with pytest.raises(SupersededError, match=r"x\.run: another run .* has taken over"):
            first.check()
        first.release()  # another process owns it
        mine.check()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(claims, "RENEWAL_SECONDS", 0.05)


def on_another_machine(path, monkeypatch):
    """Simulate that this process is on another machine."""
    monkeypatch.setattr(claims, "_machine", lambda: "another machine")
    return claimed(path, "x.run")


def test_renewed_claim_of_another_machine_is_kept(path, monkeypatch, impatient):
    with claimed(path, "x.run") as first:
        with (
            pytest.raises(InputError, match="being written by"),
            on_another_machine(path, monkeypatch),
        ):
            pytest.fail("claimed twice")
        first.check()


def test_expired_claim_of_another_machine_is_taken_over(path, monkeypatch, impatient):
    first = Claim(path, "x.run")
    first.take()  # without the thread that renews it

    with on_another_machine(path, monkeypatch) as mine:
        mine.check()
        first.renew()  # too late
        mine.check()


def test_only_one_of_many_takeovers_succeeds(path, owner):
    owner.kill()
    owner.wait()
    taken, refused = [], []

    def take():
        mine = Claim(path, "x.run")
        try:
            mine.take()
            taken.append(mine)
        except InputError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (len(taken), len(refused)) == (1, 5)
    taken[0].check()


@pytest.mark.parametrize("content", [b"my notes\n", b"\xff not JSON", b"[1]", b'{"name": "a driver"}\n'])
def test_file_that_is_not_a_claim_is_refused_and_unchanged(path, content):
    store, key = claims.store_of(path)
    store.create(key, content)

    expected = r"claim: not a claim that aptool wrote; expected the file elsewhere, or another output"
    with pytest.raises(InputError, match=expected), claimed(path, "x.run"):
        pytest.fail("claimed")

    assert path.read_bytes() == content
