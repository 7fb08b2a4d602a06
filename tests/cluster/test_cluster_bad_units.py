"""Row groups that cannot be scored."""

import pytest
from scene import UNITS
from slow import scored

from aptool.errors import AptoolError


def make_trouble(scene, question, fault):
    (scene.notes / "trouble").write_text(f"{question} {fault}")


def test_unit_that_kills_its_workers_is_named(cluster, scene):
    """A worker exits in the middle of a unit, as if the kernel had killed it for its memory."""
    make_trouble(scene, "test-q6", "exit")  # the fourth row group

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 3: 4 workers were lost while scoring it" in str(error.value)
    assert "smaller --tokens-per-batch" in str(error.value)
    assert f"{UNITS - 1} of {UNITS} row groups are scored and kept" in str(error.value)
    # Four attempts, and possibly one by an idle worker.
    assert [question for _, question in scored(scene.notes)].count("test-q6") in (4, 5)
    (scene.notes / "trouble").unlink()
    assert scene.score(cluster).resumed == UNITS - 1
    scene.assert_complete()


@pytest.mark.parametrize("fault", ["memory", "limit"])
def test_unit_without_enough_memory_is_named(cluster, scene, fault):
    make_trouble(scene, "test-q6", fault)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 3: out of memory on node" in str(error.value)
    assert "a smaller --tokens-per-batch takes less memory" in str(error.value)
    assert len(list(scene.parts.glob("*.part"))) == UNITS - 1
    (scene.notes / "trouble").unlink()
    assert scene.score(cluster).resumed == UNITS - 1
    scene.assert_complete()


def damage(pools, row_group):
    """Overwrite the pages of a row group; the footer, which the driver reads, is intact."""
    import pyarrow.parquet as pq

    group = pq.read_metadata(pools).row_group(row_group).column(0)
    content = bytearray(pools.read_bytes())
    begin = group.dictionary_page_offset or group.data_page_offset
    content[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    pools.write_bytes(content)


def test_unreadable_row_group_is_named(cluster, scene):
    damage(scene.pools, 5)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 5: " in str(error.value)
    assert "expected a readable Parquet file" in str(error.value)
    assert f"{UNITS - 1} of {UNITS} row groups are scored and kept" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(list(scene.parts.glob("*.part"))) == UNITS - 1
