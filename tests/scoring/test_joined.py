"""Row groups that share answers are scored together, and have the scores of row groups scored alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import recorded
from tiny import SYSTEMS, ranker, row, write_pools

from aptool.cluster import worker as worker_module
from aptool.cluster.worker import ScoringJob, Worker, start_attempt
from aptool.config import load_recipe
from aptool.errors import AptoolError
from aptool.formats.claim import DRIVER, Claim
from aptool.formats.pools import list_units, write_answers
from aptool.models.build import build_ranker
from aptool.models.model import save_model
from aptool.models.ragged import MIN_ROWS, product
from aptool.scoring import pipeline
from aptool.scoring import score as scoring
from aptool.scoring.cores import one_core_per_thread
from aptool.scoring.kernels import pair_scorer_for
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.parts import parts_folder, plan
from aptool.text.tokenizer import WordTokenizer

WORDS = [f"w{number}" for number in range(200)]
ANSWERS, GROUPS, POOLS = 40, 5, 30  # shared answers, row groups, pools per row group


@pytest.fixture
def pools(tmp_path, monkeypatch):
    """Pools of shared answers in five row groups, the answers of the last one in few of its pools."""
    generator = np.random.default_rng(0)

    def text(most):
        return " ".join(generator.choice(WORDS, generator.integers(1, most)))

    monkeypatch.chdir(tmp_path)
    write_answers(tmp_path / "answers.parquet", [(f"a{number}", text(60)) for number in range(ANSWERS)])
    groups = []
    for group in range(GROUPS):
        rows = []
        for number in range(POOLS if group < GROUPS - 1 else 2):
            size = int(generator.integers(1, ANSWERS))
            candidates = generator.choice(ANSWERS, size, replace=False)
            rows.append(row(f"q{group}-{number}", text(9), [(f"a{i}", None) for i in candidates]))
        groups.append(rows)
    return list_units([write_pools("test.pools.parquet", *groups)])


def system(name):
    size = "encoder.features=48" if name.endswith("cnn") else "encoder.hidden=24"
    recipe = load_recipe(name, [size, "vectors.source=random"])
    torch.manual_seed(0)
    model = build_ranker(recipe, len(WORDS) + 2, 20).eval()
    metadata = {"collection": "x", "fingerprint": "x", "seed": 0, "best_epoch": 0, "dev": {}}
    save_model("model", model, WordTokenizer.from_words(WORDS), recipe, metadata, [])
    return ModelSystem("model", "cpu")


def run(pools, system, monkeypatch, most, output="out.run"):
    """Score with at most ``most`` pairs together; return the bytes of the run and the sizes of the groups."""
    sizes = []
    score = pipeline.score
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "JOINED_PAIRS", most)
        patched.setattr(
            pipeline,
            "score",
            lambda units, *rest: sizes.append(len(units)) or score(units, *rest),
        )
        scored = scoring.score_files(pools, system, output)
    return Path(output).read_bytes(), sizes, scored


@pytest.mark.parametrize("name", ["ap-cnn", "ap-bilstm"])
def test_joined_row_groups_have_the_bytes_of_single_ones(name, pools, monkeypatch):
    model = system(name)

    alone, single, scored = run(pools, model, monkeypatch, 1)
    joined, together, scored_together = run(pools, model, monkeypatch, 1 << 20, "joined.run")
    two, twos, _ = run(pools, model, monkeypatch, 1500, "two.run")
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - min(threads, 2))
    try:
        other_threads, _, _ = run(pools, model, monkeypatch, 1 << 20, "threads.run")
    finally:
        torch.set_num_threads(threads)

    # Few pairs per answer: the last row group is scored by question.
    assert (single, together, twos) == ([1] * GROUPS, [4, 1], [2, 2, 1])
    assert joined == alone
    assert two == alone
    assert other_threads == alone
    assert (scored.units, scored.pairs, scored.truncated) == (
        scored_together.units,
        scored_together.pairs,
        scored_together.truncated,
    )


def test_a_resumed_run_has_the_bytes_of_a_complete_one(pools, monkeypatch):
    model = system("ap-cnn")
    complete, _, _ = run(pools, model, monkeypatch, 1 << 20)
    written = []
    write_part = scoring.write_part

    def dying(*part):
        if len(written) == 2:
            raise KeyboardInterrupt
        write_part(*part)
        written.append(part)

    with monkeypatch.context() as patched:
        patched.setattr(scoring, "write_part", dying)
        with pytest.raises(KeyboardInterrupt):
            scoring.score_files(pools, model, "resumed.run")
    resumed, groups, scored = run(pools, model, monkeypatch, 1 << 20, "resumed.run")

    assert (scored.resumed, groups) == (2, [2, 1])
    assert resumed == complete


@pytest.mark.parametrize("name", ["qa-cnn", "qa-bilstm"])
def test_other_systems_score_one_row_group_at_a_time(name, pools, monkeypatch):
    _, groups, _ = run(pools, system(name), monkeypatch, 1 << 20)

    assert groups == [1] * GROUPS


def test_progress_counts_joined_row_groups(pools, monkeypatch):
    with recorded() as reports:
        _, _, scored = run(pools, system("ap-cnn"), monkeypatch, 1 << 20)

    counts = [done for done, *_ in reports.updates["score"]]
    assert counts == sorted(counts)
    assert counts[-1] == scored.pairs


@given(rows=st.integers(1, 2 * MIN_ROWS), width=st.integers(1, 70), columns=st.integers(2, 70))
@settings(max_examples=60)
def test_a_row_of_a_product_does_not_depend_on_the_number_of_rows(rows, width, columns):
    generator = torch.Generator().manual_seed(rows + 100 * width)
    left = torch.randn(300, width, generator=generator)
    right = torch.randn(width, columns, generator=generator)

    with one_core_per_thread(torch.device("cpu"), 1):
        assert torch.equal(product(left[:rows], right), product(left, right)[:rows])


@given(st.data())
@settings(max_examples=60)
def test_sets_of_pairs_that_are_grouped_by_answer_are_so_together(data):
    kernel = pair_scorer_for(ranker(SYSTEMS[1]).pooling)
    pair_answer = st.lists(st.integers(0, 5), min_size=1, max_size=30).map(np.array)
    grouped = pair_answer.filter(kernel.groups_by_answer)
    sets = data.draw(st.lists(grouped, min_size=2, max_size=4))

    assert kernel.groups_by_answer(np.concatenate(sets))


def test_pairs_are_grouped_by_answer_where_answers_are_shared():
    kernel = pair_scorer_for(ranker(SYSTEMS[1]).pooling)

    assert not kernel.groups_by_answer(np.arange(100))
    assert kernel.groups_by_answer(np.tile(np.arange(100), 2))


def worker(pools, output):
    """A worker of a cluster, and the parts of the pools by number."""
    model = system("ap-cnn")
    scorer = model.open()
    claim = Claim(parts_folder(output) / DRIVER, output)
    claim.take()
    job = ScoringJob(model, "cpu", scorer.fingerprint, claim.path.parent, claim.token, None)
    return Worker(job), dict(enumerate(plan(pools, scorer, output, "tag")))


def sizes_of_groups(monkeypatch):
    """A list that gets the number of units of each group that a worker scores."""
    sizes, score = [], worker_module.score
    monkeypatch.setattr(
        worker_module, "score", lambda units, *rest: sizes.append(len(units)) or score(units, *rest)
    )
    return sizes


def test_a_worker_of_a_cluster_joins_the_units_of_a_batch(pools, monkeypatch):
    """The parts have the bytes of units that are scored one by one."""
    alone, parts = worker(pools, "alone.run")
    for number, part in parts.items():
        alone.score({number: part})
    joined, others = worker(pools, "joined.run")
    sizes = sizes_of_groups(monkeypatch)
    records = joined.score(others)

    assert sizes == [4, 1]
    assert [record.number for record in records] == list(range(GROUPS))
    assert [record.pairs for record in records] == [part.pairs for part in parts.values()]
    assert all(record.core_seconds > 0 and not record.error for record in records)
    for number, part in parts.items():
        assert part.path.read_bytes() == others[number].path.read_bytes()


def test_an_error_of_a_joined_unit_is_an_error_of_this_unit(pools, monkeypatch):
    """The row group is scored alone with the others, as is one whose worker was lost."""
    open_worker, parts = worker(pools, "out.run")
    start_attempt(parts[0], "score")  # by a lost worker
    write = worker_module.write_part

    def fails(part, *rest):
        if part is parts[2]:
            raise AptoolError("no finite score")
        write(part, *rest)

    monkeypatch.setattr(worker_module, "write_part", fails)
    sizes = sizes_of_groups(monkeypatch)
    records = open_worker.score(parts)

    assert sizes == [1, 3, 1, 1, 1, 1]
    assert {record.number: record.error for record in records} == {
        number: "no finite score" if number == 2 else "" for number in parts
    }
    assert [record.attempts for record in records if record.number < 2] == [2, 1]
    assert [part.path.exists() for part in parts.values()] == [True, True, False, True, True]
