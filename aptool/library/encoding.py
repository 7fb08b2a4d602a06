"""The public function `encode`."""

from collections.abc import Iterable

from aptool.formats.atomic import check_apart
from aptool.formats.storage import expand
from aptool.library.arguments import (
    PathLike,
    check_choice,
    check_device,
    check_integer,
    check_path,
    check_paths,
)
from aptool.library.model import Model
from aptool.library.where import Address, Where
from aptool.scoring.answer_store import PRECISIONS, StoredPrecision
from aptool.scoring.encode import EncodeBackend, Encoded
from aptool.scoring.encode import encode as encode_files


def encode(
    texts: PathLike | Iterable[PathLike],
    model: Model | PathLike,
    output: PathLike,
    executor: EncodeBackend | None = None,
    *,
    answers: PathLike | None = None,
    precision: StoredPrecision | None = None,
    device: str = "auto",
    tokens_per_batch: int | None = None,
    kind: str = "auto",
    cluster: Address = None,
    workers: int | None = None,
    gpus_per_worker: float | None = None,
    wait: float | None = None,
) -> Encoded:
    """Encode answers into a store for `score` and `Model.run`, as ``aptool encode`` does.

    Answers that the store contains are not encoded again, so a second call resumes an interrupted one.

    Args:
        texts: answers files or pools files: paths, folders, globs or URLs.
        model: a model folder or a name on the Hugging Face hub (see `load`), or a `Model`, whose folder is
            loaded again.
        output: folder of a new store, or of an existing store to extend.
        executor: executor of the encoding; None is ``cluster``.
        answers: file of the answers that the pools share; None is ``answers.parquet`` next to the pools.
        precision: data type of the stored vectors: ``fp32`` (exact scores), ``fp16`` or ``int8``; None is the
            type of an existing store, or ``fp32``.
        device: device of the encoder; see `load`.
        tokens_per_batch: number of tokens per batch; None is 8,192 on a CPU and 262,144 on a GPU.
        kind: checkpoint type of a model folder, if it cannot be detected; see `load`.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset); None is this process.
        workers: number of worker processes of the cluster; None is as many as the cluster has room for.
        gpus_per_worker: GPUs per worker, may be fractional; None is 1 on a cluster with GPUs, otherwise 0.
        wait: seconds to wait for cluster resources; None is no limit.

    Returns:
        ``texts`` (number of answers), ``encoded`` (number of new answers), ``tokens`` (of new answers),
        ``size`` in bytes and ``seconds``.

    Raises:
        AptoolError: an input or the store is invalid, or the disk is full.

    Example:
        >>> pools = "data/wikiqa/dev.pools.parquet"
        >>> result = aptool.encode(pools, "models/wikiqa", "encoded/wikiqa")
        >>> result.texts == result.encoded
        True
        >>> aptool.score(pools, "models/wikiqa", "dev.run", encoded="encoded/wikiqa").pairs
        120
    """
    folder = check_path("output", output)
    paths = check_paths("texts", texts)
    if precision is not None:
        check_choice("precision", precision, PRECISIONS)
    if tokens_per_batch is not None:
        check_integer("tokens_per_batch", tokens_per_batch, 1)
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    files = expand(paths, ".parquet")
    check_apart(folder, files)
    source = model.folder if isinstance(model, Model) else check_path("model", model)
    with where.connected() as connected:
        return encode_files(
            files,
            folder,
            model=str(source),
            kind=kind,
            answers=None if answers is None else check_path("answers", answers),
            precision=precision,
            device=device,
            tokens_per_batch=tokens_per_batch,
            run=executor if executor is not None else connected.encoder(),
        )
