"""`aptool encode --cluster`: a store that workers write and read."""

import pytest
from scene import write_row_groups
from tiny import labelled_pools

from aptool.formats.collection import CollectionWriter


@pytest.fixture
def command(run, tmp_path, model_folder):
    """A function that runs a command with the model in another process, and checks its exit code."""

    def start(name, inputs, output, *more):
        done = run("-m", "aptool", name, inputs, "--model", model_folder, "--output", output, *more)
        assert done.code == 0, done.err
        return done

    return start


def test_workers_share_a_store(command, tmp_path, address):
    pools = labelled_pools("test", 12)
    texts = {a: t for pool in pools for a, t in zip(pool.answer_ids, pool.texts, strict=True)}
    with CollectionWriter(tmp_path / "shared", name="shared", source="tests") as writer:
        writer.add_answers(texts.items())
        writer.add_split("test", [pool._replace(texts=None) for pool in pools])
    shared = tmp_path / "shared" / "test.pools.parquet"
    other = write_row_groups(tmp_path / "other.pools.parquet", "dev", 8, 2)

    first = command("encode", "shared/answers.parquet", "store", "--cluster", address)
    again = command("encode", shared, "store", "--cluster", address, "--workers", 1)
    command("score", shared, "alone.run")
    command("score", shared, "out.run", "--encoded", "store", "--cluster", address)
    command("score", other, "other.run")
    more = command("encode", other, "store", "--cluster", address)
    command("score", other, "read.run", "--encoded", "store")

    assert "12 answers, 12 encoded now" in first.out[0]
    assert "12 answers, 0 encoded now" in again.out[0]
    read = {name: (tmp_path / name).read_bytes() for name in ("alone.run", "out.run")}
    assert read["alone.run"] == read["out.run"]
    assert "0 encoded now" not in more.out[0]
    assert (tmp_path / "other.run").read_bytes() == (tmp_path / "read.run").read_bytes()
    assert not (tmp_path / "store" / "writer").exists()
