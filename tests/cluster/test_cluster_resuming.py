"""Scoring after an earlier driver: complete, incomplete, corrupt and outdated parts, and a running driver."""

import signal

import pytest
from aptool.formats.location import store_of
from scene import UNITS, pools_of, sha256, wait_for
from slow import scored

from aptool.errors import InputError


def overwrite(path, data):
    store, key = store_of(path)
    store.delete([key])
    store.create(key, bytes(data))


# The point where the driver is killed, and the number of complete parts for the next driver.
PHASES = {
    "beginning": {0},
    "scoring": {3, 4, 5, 6},  # each worker may complete one or two more units
    "before merging": {UNITS},
    "merging": {UNITS},
    "completing": {UNITS},
    "removing": {UNITS - 2},
}


@pytest.mark.parametrize("phase", PHASES)
def test_scoring_resumes_after_a_killed_driver(address, cluster, anywhere, driver, phase):
    """The next driver resumes from the complete parts."""
    first = driver(**anywhere.arguments(address, phase=phase, seconds=0.3))
    output, _ = first.communicate(timeout=600)
    assert first.returncode == -signal.SIGKILL, output
    # A file under the final name is complete.
    if phase == "removing":
        assert sha256(anywhere.output) == anywhere.expected
    else:
        assert not anywhere.output.exists()
    assert anywhere.parts.exists()

    result = anywhere.score(cluster)

    assert result.resumed in PHASES[phase]
    anywhere.assert_complete()
    assert len(set(scored(anywhere.notes))) >= (0 if phase == "beginning" else UNITS)


def test_incomplete_parts_are_scored_again(cluster, anywhere):
    """One part is truncated, and one still has its temporary name."""
    paths = anywhere.make_parts()
    data = paths[0].read_bytes()
    overwrite(paths[0], data[: len(data) // 2])
    overwrite(anywhere.parts / f".{paths[1].name}.abcd_123.part", paths[1].read_bytes())
    paths[1].unlink()

    result = anywhere.score(cluster)

    anywhere.assert_complete()
    assert result.resumed == UNITS - 2
    assert len(scored(anywhere.notes)) == 2


def test_corrupt_part_is_scored_again(cluster, anywhere):
    """One byte of a score differs."""
    path = anywhere.make_parts()[3]
    content = bytearray(path.read_bytes())
    content[content.index(b"0.") + 2] ^= 1
    overwrite(path, content)

    result = anywhere.score(cluster)

    anywhere.assert_complete()
    assert result.resumed == UNITS - 1
    assert len(scored(anywhere.notes)) == 1


def test_parts_of_a_replaced_input_are_not_used(cluster, anywhere):
    """Parts of the previous input are not used."""
    anywhere.make_parts()
    before = anywhere.expected
    pools_of("dev", anywhere.pools)

    result = anywhere.score(cluster)

    anywhere.assert_complete()
    assert anywhere.expected != before
    assert result.resumed == 0
    assert len(scored(anywhere.notes)) == UNITS


def test_second_driver_is_refused(address, cluster, anywhere, driver):
    """The second driver ends with an error of one line, and changes nothing."""
    first = driver(**anywhere.arguments(address, seconds=0.5, workers=1))
    wait_for(lambda: len(scored(anywhere.notes)) >= 2)

    with pytest.raises(InputError, match=f"being written by process {first.pid} on .*; expected one command"):
        anywhere.score(cluster, workers=1)

    output, _ = first.communicate(timeout=600)
    assert first.returncode == 0, output
    anywhere.assert_complete()
    assert len(scored(anywhere.notes)) == UNITS
