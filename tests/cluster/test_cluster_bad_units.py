"""Row groups that cannot be scored."""

import polars as pl
import pytest
from scene import UNITS
from slow import SlowSystem, scored

from aptool.errors import AptoolError
from aptool.scoring.parts import plan, write_part
from aptool.scoring.pipeline import read_task, score_task


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


def test_unreadable_row_group_is_named(cluster, scene):
    """The pages of one row group are overwritten; the footer, which the driver reads, is intact."""
    import pyarrow.parquet as pq

    group = pq.read_metadata(scene.pools).row_group(5).column(0)
    content = bytearray(scene.pools.read_bytes())
    begin = group.dictionary_page_offset or group.data_page_offset
    content[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    scene.pools.write_bytes(content)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 5: " in str(error.value)
    assert "expected a readable Parquet file" in str(error.value)
    assert f"{UNITS - 1} of {UNITS} row groups are scored and kept" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(list(scene.parts.glob("*.part"))) == UNITS - 1


def test_number_of_scores_per_pool_is_checked(scene):
    """A valid part in which one pair has moved to another pool."""
    from aptool.cluster.score import check_counts

    part = plan(scene.units, SlowSystem("/", 0), scene.output, "slow")[1]
    scene.parts.mkdir()
    quiet = SlowSystem(scene.notes, 0)
    frame = score_task(read_task(part.unit, quiet, None), quiet)
    write_part(part, frame, 0)
    check_counts([part])
    questions = frame["question_id"].to_list()
    moved = frame.with_columns(
        question_id=pl.Series([questions[-1] if n == 0 else name for n, name in enumerate(questions)]),
        answer_id=pl.Series([f"a{n}" for n in range(len(frame))]),
    )
    part.path.unlink()  # a complete part is not overwritten
    write_part(part, moved, 0)

    with pytest.raises(AptoolError, match=r"question 'test-q2': 5 scores: expected 6"):
        check_counts([part])
