"""Metrics of workers, as Prometheus scrapes them from each node."""

import re
import urllib.request
from collections import Counter

from scene import UNITS, wait_for

SAMPLE = re.compile(r'ray_(aptool_\w+)_total\{.*worker="([^"]+)".*\} (\S+)')


def scraped():
    """The value of each metric on all nodes, by name, node and worker."""
    import ray  # reads the environment of the fixtures

    values = Counter()
    for node in ray.nodes():
        if node["Alive"]:
            url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                for line in answer.read().decode().splitlines():
                    if sample := SAMPLE.match(line):
                        values[sample[1], node["NodeID"], sample[2]] += float(sample[3])
    return values


def test_metrics_count_the_work_of_each_worker(cluster, scene):
    before = scraped()

    scored = scene.score(cluster, seconds=0.2)

    def added():
        totals = Counter()
        for (name, _, _), value in (scraped() - before).items():
            totals[name] += value
        return totals

    wait_for(lambda: added()["aptool_units"] == UNITS)  # nodes report every 10 s
    assert added()["aptool_pairs"] == scored.pairs
    assert added()["aptool_unit_seconds"] >= 0.2 * UNITS
    assert added()["aptool_bad_rows"] == added()["aptool_retries"] == added()["aptool_failed_units"] == 0
    for _, node, worker in scraped() - before:
        assert re.fullmatch(rf"127\.0\.0\.1 \({node[:8]}\):\d+", worker)
