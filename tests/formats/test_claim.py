"""Claims of an output: one process at a time, taken over from one that has ended."""

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
from aptool.formats.location import ObjectPath, location

# Claims, tells so, and waits to be killed.
OWNER = """
import sys
from aptool.formats.claim import Claim
from aptool.formats.location import location
Claim(location(sys.argv[1]), "x.run").take()
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["disk", "s3"])
def path(request, tmp_path):
    folder = location(tmp_path) if request.param == "disk" else ObjectPath(request.getfixturevalue("bucket"))
    return folder / "claim"


@pytest.fixture
def owner(path):
    """Another process that has claimed the output."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


def test_claimed_while_the_block_runs(path):
    with claimed(path, "x.run") as mine:
        mine.check()
        assert holds(path, mine.token)
        assert not holds(path, "another")

    assert not path.exists()
    assert not holds(path, mine.token)


def test_a_running_process_keeps_its_claim(path, owner):
    expected = (
        f"x.run: being written by process {owner.pid} on .*, since 20.*; expected one command at a time"
    )
    with pytest.raises(InputError, match=expected), claimed(path, "x.run"):
        pytest.fail("claimed twice")


def test_the_claim_of_a_killed_process_is_taken_over_and_said(path, owner, caplog):
    owner.kill()
    owner.wait()

    with caplog.at_level(logging.INFO), claimed(path, "x.run") as mine:
        mine.check()

    [line] = caplog.messages
    assert line.startswith(f"x.run: process {owner.pid} on ")
    assert line.endswith("has ended: its output is taken over")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[1]", b"{" * 5000, b'{"process": {}}', b'{"process": "../x\\n", "since": "\\ud800"}'],
)
def test_a_damaged_claim_is_taken_over(path, data, monkeypatch):
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.1)
    for machine in (b"", b', "machine": "' + claims._machine().encode() + b'"}'):
        store, key = claims.store_of(path)
        store.create(key, data.removesuffix(b"}") + machine if machine and data.endswith(b"}") else data)
        with claimed(path, "x.run") as mine:
            mine.check()


def test_a_process_id_given_to_another_process_is_not_its_owner(path):
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
        first.release()  # not its own any more
        mine.check()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(claims, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(claims, "RENEWAL_SECONDS", 0.05)


def on_another_machine(path, monkeypatch):
    """What a process of another machine would find here."""
    monkeypatch.setattr(claims, "_machine", lambda: "another machine")
    return claimed(path, "x.run")


def test_a_renewed_claim_of_another_machine_is_kept(path, monkeypatch, impatient):
    with claimed(path, "x.run") as first:
        with (
            pytest.raises(InputError, match="being written by"),
            on_another_machine(path, monkeypatch),
        ):
            pytest.fail("claimed twice")
        first.check()


def test_a_claim_of_another_machine_that_is_not_renewed_is_taken_over(path, monkeypatch, impatient):
    first = Claim(path, "x.run")
    first.take()  # without the thread that renews it

    with on_another_machine(path, monkeypatch) as mine:
        mine.check()
        first.renew()  # too late
        mine.check()


def test_of_many_that_take_over_one_succeeds(path, owner):
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


def test_a_file_that_is_no_claim_is_taken_over(path, impatient):
    store, key = claims.store_of(path)
    store.create(key, b"\xff not JSON")

    with claimed(path, "x.run") as mine:
        mine.check()
