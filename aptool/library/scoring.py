"""The public functions `score` and `bm25_run`."""

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from aptool.errors import UsageError
from aptool.formats.ids import check_one_word
from aptool.formats.trec import check_run_output
from aptool.library.arguments import (
    PRECISIONS,
    PathLike,
    Precision,
    check_choice,
    check_device,
    check_integer,
    check_path,
    check_text,
    check_type,
)
from aptool.library.encoded_texts import check_encoded, filling
from aptool.library.pools import Pools
from aptool.library.run import Run, run_of_scores
from aptool.library.where import Address, Where
from aptool.scoring.baselines import BASELINES, BaselineLoader
from aptool.scoring.record import ScoredRun
from aptool.scoring.score import AnySystem, Executor, score_in_memory
from aptool.scoring.score import score as score_units
from aptool.scoring.systems import System

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from aptool.library.model import Model

logger = logging.getLogger(__name__)


def score(
    pools: Pools | PathLike | Iterable[PathLike],
    model: "Model | System | PathLike",
    output: PathLike,
    executor: Executor | None = None,
    *,
    answers: PathLike | None = None,
    tag: str | None = None,
    device: str = "auto",
    precision: Precision = "auto",
    tokens_per_batch: int | None = None,
    kind: str = "auto",
    encoded: PathLike | None = None,
    fill: bool = False,
    cluster: Address = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    wait: float | None = None,
) -> ScoredRun:
    """Score pools into a TREC run file, as ``aptool score`` does, one row group in memory at a time.

    Call it again with the same arguments to resume after an interruption.

    Args:
        pools: ``Pools``, or files, folders, globs or URLs of pools.
        model: a model folder or a name on the Hugging Face hub (see `load`); a `Model` or another system;
            ``"bm25"`` (see `bm25_run`) or ``"random"`` (scores from the ids, with seed 0), to which
            ``device``, ``precision``, ``tokens_per_batch`` and ``kind`` do not apply. A folder with the name
            of a system is ``"./bm25"``.
        output: the run file; gzip if the name ends in ``.gz``.
        executor: executor of the row groups, such as a ``ClusterExecutor``; None is ``cluster``.
        answers: file of the answers that the pools share; None is ``answers.parquet`` next to the pools.
        tag: the name of the run in the file, one word; None is the preset of the model.
        device: device of a model folder; see `load`. ``cuda`` is all GPUs of the machine.
        precision: precision of the encoder of a model folder; see `load`.
        tokens_per_batch: number of tokens per batch of a model folder, which bounds memory; None is 8,192 on
            a CPU and 262,144 on a GPU.
        kind: checkpoint type of a model folder, if it cannot be detected; see `load`.
        encoded: folder of a store of encoded answers (see `encode`), which are not encoded again; requires
            fp32.
        fill: whether to encode missing answers and add them to the store; otherwise they are an error.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset); None is this process.
        workers: number of worker processes of the cluster; None is as many as the cluster has room for.
        gpus_per_worker: GPUs per worker, may be fractional; None is 1 on a cluster with GPUs, otherwise 0.
        wait: seconds to wait for cluster resources; None is no limit.

    Returns:
        Counts of the job: ``pairs``, ``truncated`` (answers), ``units`` (row groups), ``resumed`` (row groups
        of an earlier call) and more.

    Raises:
        AptoolError: an input or the output is invalid, or the cluster could not score all pairs.

    Example:
        >>> result = aptool.score("data/wikiqa/dev.pools.parquet", "models/wikiqa", "dev.run")
        >>> result.pairs
        120
        >>> aptool.Run.load("dev.run")
        Run('ap-cnn': 20 questions, 120 candidates)
    """
    path = check_path("output", output)
    check_run_output(path)
    if tag is not None:
        check_one_word("tag", check_text("tag", tag))
    check_choice("precision", precision, PRECISIONS)
    if tokens_per_batch is not None:
        check_integer("tokens_per_batch", tokens_per_batch, 1)
    if not isinstance(pools, Pools):
        pools = Pools.load(pools, answers=answers)
    elif answers is not None:
        raise UsageError("answers: expected None with Pools; pass the file to Pools.load")
    store = check_encoded(encoded, fill, precision)
    if store is not None and isinstance(model, System):
        raise UsageError("encoded: requires a model folder or a Model, not another system")
    baseline = model if isinstance(model, str) and model in BASELINES else None
    if baseline is not None:
        if store is not None:
            raise UsageError(f"encoded: expected None with {baseline}, which does not encode answers")
        given = {"device": device not in ("auto", "cpu"), "precision": precision != "auto"}
        given |= {"kind": kind != "auto", "tokens_per_batch": tokens_per_batch is not None}
        _log_baseline(baseline, [name for name, is_given in given.items() if is_given])
    elif not (_is_model(model) or isinstance(model, System)):
        model = check_path("model", model, "a model folder (str or os.PathLike) or a Model")
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    if executor is not None and cluster is not None:
        raise UsageError("cluster: expected None with an executor")
    with filling(store, fill), pools.on_disk() as files, where.connected() as connected:
        executor = executor if executor is not None else connected.executor()
        system: AnySystem
        if baseline is not None:
            system = BaselineLoader(baseline)
        elif isinstance(model, System):
            system = model
        elif _is_model(model) and executor is None:
            system = model.system(files, store, fill)
        else:
            from aptool.scoring.model_system import ModelLoader

            folder, kind = (model.folder, "auto") if _is_model(model) else (model, kind)
            system = ModelLoader(
                str(folder), device, precision, tokens_per_batch, kind=kind, encoded=store, fill=fill
            )
        return score_units(files.units, system, path, executor, tag=tag, answers=files.answers)


def bm25_run(pools: Pools) -> Run:
    """Score pools with BM25 (Lucene's variant, k1 = 1.2, b = 0.75).

    Document frequencies are counted over the distinct answers of the pools. ``aptool.score(pools, "bm25",
    "bm25.run")`` writes the same run to a file.

    Args:
        pools: the pools to score.

    Returns:
        A run with the tag ``bm25``.

    Raises:
        AptoolError: the pools are invalid.

    Example:
        >>> pool = "who wrote it?", {"a": "Nobody knows.", "b": "She wrote it."}
        >>> aptool.bm25_run(aptool.Pools.from_dict({"q1": pool})).to_polars()["answer_id"].to_list()
        ['b', 'a']
    """
    check_type("pools", pools, Pools, "Pools")
    with pools.on_disk() as files:
        return run_of_scores(*score_in_memory(files.units, BaselineLoader("bm25"), answers=files.answers))


def _is_model(value: object) -> "TypeIs[Model]":
    """Whether a value is a ``Model``, without importing that class for a path."""
    module = sys.modules.get("aptool.library.model")
    return module is not None and isinstance(value, module.Model)


def _log_baseline(name: str, ignored: list[str]) -> None:
    if ignored:
        logger.info(f"{name} needs no model: {', '.join(ignored)} ignored")
    if Path(name).exists():
        logger.info(f"{name}: the untrained system; for the model folder write ./{name}")
