"""Scoring after an earlier driver: complete, incomplete and outdated parts, and a running driver."""

import signal

import pytest
from scene import UNITS, sha256
from slow import scored

# The point where the driver is killed, and the number of complete parts for the next driver.
PHASES = {
    "beginning": {0},
    "scoring": {3, 4, 5, 6},  # each worker may complete one or two more units
    "before joining": {UNITS},
    "completing": {UNITS},
    "removing": {UNITS},
}


@pytest.mark.parametrize("phase", PHASES)
def test_scoring_resumes_after_a_killed_driver(address, cluster, anywhere, driver, phase):
    """The next driver resumes from the complete parts."""
    first = driver(**anywhere.arguments(address, phase=phase, seconds=0.3))
    output, _ = first.communicate(timeout=600)
    assert first.returncode == -signal.SIGKILL, output
    # A file under the final name is complete.
    if phase in ("completing", "removing"):
        assert sha256(anywhere.output) == anywhere.expected
    else:
        assert not anywhere.output.exists()
    assert phase == "beginning" or anywhere.parts.exists()

    result = anywhere.score(cluster)

    assert result.resumed in PHASES[phase]
    anywhere.assert_complete()
    assert len(set(scored(anywhere.notes))) >= (0 if phase == "beginning" else UNITS)
