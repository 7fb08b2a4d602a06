"""Run commands on a slow or failing object store, and compare the objects with those of an undisturbed run.

A proxy in front of an S3 server on loopback delays or refuses requests, as determined by the seed. In some
trials, the command is also killed after a time and run again.
"""

import argparse
import os
import random
import re
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

import s3
from disturb import SIGNALS, Disturbance
from run import Child, load
from scenes import Scene, store_scenes

from aptool.formats.outputs import MANIFEST

KINDS = ("failing", "slow", "killed", "killed while failing")
_STATUSES = (500, 503, 429)
AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, Signature=x"


class Faults:
    """The faults that the proxy injects."""

    def __init__(self, kind: str, random_: random.Random) -> None:
        self._kind = kind
        self._random = random_
        self._lock = threading.Lock()
        self.number = 0

    def before(self, method: str, path: str) -> int | None:
        """The status of a refused request, or None to forward the request."""
        with self._lock:
            chance = self._random.random()
            self.number += chance < 0.1
        if chance >= 0.1:
            return None
        if self._kind == "slow":
            time.sleep(30 * chance)  # up to 3 s
            return None
        return _STATUSES[int(1000 * chance) % 3] if "failing" in self._kind else None


def objects(url: str, bucket: str) -> dict[str, bytes]:
    """All objects of a bucket. Plain HTTP, as the threads of the commands' client do not survive a fork."""
    root = f"{url}/{bucket.removeprefix('s3://')}"

    def get(address: str) -> bytes:
        request = urllib.request.Request(address, headers={"Authorization": AUTHORIZATION})
        with urllib.request.urlopen(request, timeout=60) as answer:
            data: bytes = answer.read()
            return data

    names = re.findall(r"<Key>(.*?)</Key>", get(f"{root}?list-type=2").decode())
    names = [name for name in names if not name.endswith(MANIFEST)]
    # The name of the history of a training has a hash of its content, which includes times.
    plain = {name: re.sub(r"history-[0-9a-f]{16}", "history", name) for name in names}
    return {plain[name]: get(f"{root}/{urllib.parse.quote(name)}") for name in names}


def trial(
    scene: Scene, url: str, expected: dict[str, bytes], kind: str, random_: random.Random, work: Path
) -> str:
    """Run a command on a store with faults; return the exit codes as text.

    Raises:
        AssertionError: the command fails, or the bucket has wrong objects.
    """
    bucket = "/".join(scene.arguments[-1].split("/")[:3])
    codes = []
    if kind.startswith("killed"):
        what = Disturbance("late", random_.randrange(1, 3000), random_.choice(SIGNALS))
        codes.append(Child(scene, work, what).wait())
    last = Child(scene, work, Disturbance("none"))
    codes.append(last.wait())
    words = last.words()
    assert codes[-1] == 0, f"ended with {codes}: {words[-3:]}"
    assert not any("Traceback" in line for line in words), words[-3:]
    stored = objects(url, bucket)
    assert stored.keys() == expected.keys(), f"other objects: {sorted(stored.keys() ^ expected.keys())[:5]}"
    other = [
        name
        for name in expected
        if not name.endswith((".yml", ".json", ".jsonl")) and stored[name] != expected[name]
    ]
    assert not other, f"other bytes: {other[:3]}"
    return " ".join(map(str, codes))


def main() -> int:
    """Run the trials from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=40)
    given = parser.parse_args()
    totals: Counter[str] = Counter()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, s3.server() as url, s3.proxy(url) as proxy:
        os.environ.update(s3.CREDENTIALS, AWS_ENDPOINT_URL=proxy.url)
        base = Path(name)
        load(base / "world")
        quiet: dict[str, dict[str, bytes]] = {}
        for number in range(given.trials):
            random_ = random.Random(f"{given.seed}/{number}")
            kind = KINDS[number % len(KINDS)]
            bucket = s3.new_bucket(url)
            scene = random_.choice(store_scenes(base / "world", bucket))
            if scene.name not in quiet:
                still = s3.new_bucket(url)
                (first,) = [
                    other for other in store_scenes(base / "world", still) if other.name == scene.name
                ]
                assert Child(first, base / "work", Disturbance("none")).wait() == 0
                quiet[scene.name] = objects(url, still)
            faults = Faults(kind, random_)
            proxy.before = faults.before
            totals[kind] += 1
            try:
                ended = trial(scene, url, quiet[scene.name], kind, random_, base / "work")
                print(f"{number}: {scene.name}, {kind}, {faults.number} faults: {ended}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{number}: {scene.name}, {kind}: FAILED: {error}", flush=True)
            proxy.before = lambda method, path: None
    print(f"seed {given.seed}: {sum(totals.values())} trials on a store, {failed} failed: {dict(totals)}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
