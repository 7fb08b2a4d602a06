"""Units that cannot be scored: one line names them, and the parts of other units are kept."""

import re
import shutil

import pytest
from slow import ONE_CORE, executor_of, scored

from aptool.errors import AptoolError
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.run import score_files


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


@pytest.fixture
def before_workers(monkeypatch):
    """Replaces the first task of a run: the function of a test is called after the planning."""

    def replace(act):
        monkeypatch.setattr("aptool.cluster.score.first_task", lambda *given: act())

    return replace


def test_pools_that_workers_do_not_see_are_named(cluster, scene, before_workers):
    path = scene.pools / "5.pools.parquet"
    before_workers(path.unlink)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster, workers=1)

    expected = f": {path}: file not found; expected a path that every node sees"
    assert re.fullmatch(rf"node \S+ \(\w+\){re.escape(expected)}", str(error.value))


def test_model_that_workers_do_not_see_is_named(cluster, scene, model_folder, before_workers):
    folder = scene.notes / "model"
    shutil.copytree(model_folder, folder)
    before_workers(lambda: shutil.rmtree(folder))
    executor = executor_of(cluster, ONE_CORE, workers=1)

    with pytest.raises(AptoolError) as error:
        score_files(scene.units, ModelSystem(str(folder), "cpu"), scene.output, executor)

    assert re.match(rf"node \S+ \(\w+\): {folder}", str(error.value))
    assert "\n" not in str(error.value)
