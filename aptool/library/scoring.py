"""Scoring of pools into a run file, on this machine or a cluster."""

import logging
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from aptool.errors import UsageError
from aptool.formats.ids import check_one_word
from aptool.formats.ir_metadata import check_run_output
from aptool.library.arguments import (
    PRECISIONS,
    PathLike,
    Precision,
    check_choice,
    check_device,
    check_integer,
    check_path,
    check_text,
)
from aptool.library.encoded_texts import check_encoded, filling
from aptool.library.pools import Pools
from aptool.library.where import Address, Where
from aptool.scoring.baselines import BASELINES, BaselineLoader
from aptool.scoring.record import ScoredRun
from aptool.scoring.score import AnySystem, Executor
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
    """Scores pools into a TREC run file, as ``aptool score`` does, without holding them in memory.

    Called again after an interruption, it continues with the row groups that are not scored yet.

    Args:
        pools: ``Pools``, or files, folders, globs or URLs.
        model: a model folder, of aptool or of another library, or its name on the Hugging Face hub; a
            ``Model`` or another system; ``"bm25"`` (see ``bm25_run``) or ``"random"`` (scores that depend on
            the ids alone, with the seed 0). A folder of such a name is ``"./bm25"``. The arguments below
            that describe a model have no effect on these two.
        output: the run file; gzip if its name ends in ``.gz``.
        executor: what scores the row groups, such as a ``ClusterExecutor``; None is ``cluster``.
        answers: texts of shared answers; None is ``answers.parquet`` beside the pools.
        tag: the run's name in the file, one word; None is the model's preset.
        device: what a model folder is loaded on; see ``load``. ``cuda`` is all GPUs of the machine,
            ``cuda:1`` one of them.
        precision: what texts are encoded in; see ``load``. Of a model folder.
        tokens_per_batch: tokens encoded at one time; fewer take less memory. None is 8,192, on a GPU 262,144.
            Of a model folder.
        kind: what a model folder of another library holds, where it could be several things; see ``load``.
        encoded: folder of a store of answers that the model has encoded (``encode``): they are read there and
            not encoded again. Texts are encoded in fp32 then.
        fill: encode answers that the store lacks, and add them; otherwise they are an error.
        cluster: the address of a Ray cluster, True for that of RAY_ADDRESS (else ``auto``); None is this
            process.
        workers: number of worker processes of the cluster; None is as many as there is room for.
        gpus_per_worker: GPUs per worker; may be fractional. None is 1 on a cluster with GPUs, else 0.
        wait: seconds to wait for nodes or resources of the cluster; None is without end.

    Returns:
        How the run file was made: ``pairs``, ``truncated`` answers, ``units`` (row groups), ``resumed`` ones
        and more.

    Raises:
        AptoolError: an input or the output is not what it should be, or the cluster could not score all of
            it.
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
        raise UsageError("answers: expected none, as Pools know their own; pass them to Pools.load")
    store = check_encoded(encoded, fill, precision)
    if store is not None and isinstance(model, System):
        raise UsageError("encoded: expected a model folder or a Model; a system has its own answers")
    baseline = model if isinstance(model, str) and model in BASELINES else None
    if baseline is not None:
        if store is not None:
            raise UsageError(f"encoded: expected none with {baseline}, which encodes no answers")
        given = {"device": device not in ("auto", "cpu"), "precision": precision != "auto"}
        given |= {"kind": kind != "auto", "tokens_per_batch": tokens_per_batch is not None}
        _log_baseline(baseline, [name for name, is_given in given.items() if is_given])
    elif not (_is_model(model) or isinstance(model, System)):
        model = check_path("model", model, "a model folder (str or os.PathLike) or a Model")
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    if executor is not None and cluster is not None:
        raise UsageError("cluster: expected none, as an executor is given")
    with filling(store, fill), pools.on_disk() as files, where.connected() as place:
        executor = executor if executor is not None else place.executor()
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


def _is_model(value: object) -> "TypeIs[Model]":
    """Whether a value is a ``Model``, without importing that class for a path."""
    module = sys.modules.get("aptool.library.model")
    return module is not None and isinstance(value, module.Model)


def _log_baseline(name: str, ignored: list[str]) -> None:
    if ignored:
        logger.info(f"{name} needs no model: {', '.join(ignored)} ignored")
    if Path(name).exists():
        logger.info(f"{name}: the untrained system; for the model folder write ./{name}")
