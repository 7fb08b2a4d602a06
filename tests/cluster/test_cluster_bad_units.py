"""Units that cannot be scored: one line names them, and the parts of other units are kept."""

import pytest
from slow import scored

from aptool.errors import AptoolError


def make_trouble(scene, question, fault):
    (scene.notes / "trouble").write_text(f"{question} {fault}")


def assert_resumes(cluster, scene):
    """Check that the run continues with the parts of the other units."""
    kept = len(list(scene.parts.glob("*.run")))
    assert kept >= 1
    (scene.notes / "trouble").unlink(missing_ok=True)
    assert scene.score(cluster).resumed == kept
    scene.assert_complete()


def test_unit_that_kills_its_workers_ends_the_run(cluster, scene):
    """A worker exits in the middle of a unit, as if the kernel had killed it for its memory."""
    make_trouble(scene, "test-q6", "exit")  # in the fourth unit

    with pytest.raises(AptoolError) as error:
        scene.score(cluster, workers=1)

    assert "\n" not in str(error.value)
    assert "The actor died unexpectedly" in str(error.value)
    assert "a smaller --tokens-per-batch takes less memory" in str(error.value)
    assert "run the same command again" in str(error.value)
    assert [question for _, question in scored(scene.notes)].count("test-q6") == 4
    assert_resumes(cluster, scene)


def test_worker_that_always_dies_when_it_opens_the_system_ends_the_run(cluster, scene):
    make_trouble(scene, "open", "exit")

    with pytest.raises(AptoolError, match="The actor died unexpectedly") as error:
        scene.score(cluster, workers=1)

    assert "\n" not in str(error.value)
    assert scored(scene.notes) == []
    (scene.notes / "trouble").unlink()
    scene.score(cluster)
    scene.assert_complete()


@pytest.mark.parametrize("fault", ["memory", "limit"])
def test_unit_without_enough_memory_is_named(cluster, scene, fault):
    make_trouble(scene, "test-q6", fault)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster, workers=1)

    assert str(error.value).startswith(f"{scene.pools}/3.pools.parquet: row group 0: out of memory on node")
    assert "\n" not in str(error.value)
    assert "a smaller --tokens-per-batch takes less memory" in str(error.value)
    assert_resumes(cluster, scene)


def damage(pools):
    """Overwrite the pages of a row group; the footer, which the driver reads, is intact."""
    import pyarrow.parquet as pq

    group = pq.read_metadata(pools).row_group(0).column(0)
    content = bytearray(pools.read_bytes())
    begin = group.dictionary_page_offset or group.data_page_offset
    content[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    pools.write_bytes(content)


def test_unreadable_row_group_is_named(cluster, scene):
    path = scene.pools / "5.pools.parquet"
    damage(path)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster, workers=1)

    assert f"{path}: row group 0: " in str(error.value)
    assert "expected a readable Parquet file" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(scene.parts.glob("*.run"))
