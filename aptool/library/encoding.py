"""Encoding of answers into a store, on this machine or a cluster."""

from collections.abc import Iterable

from aptool.formats.atomic import check_apart
from aptool.formats.location import ObjectPath
from aptool.formats.storage import expand
from aptool.library.arguments import (
    PathLike,
    check_choice,
    check_device,
    check_integer,
    check_list,
    check_path,
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
    """Encodes answers into a store, as ``aptool encode`` does; ``score`` and ``Model.run`` read them there.

    What the store has already is not encoded again, so a call that was interrupted is continued by another.

    Args:
        texts: answers files or pools files: paths, folders, globs or URLs.
        model: a model folder, of aptool or of another library, or its name on the Hugging Face hub; or a
            ``Model``, whose folder is read again.
        output: folder of the store; answers are added to one that is there.
        executor: what encodes; None is ``cluster``.
        answers: texts of shared answers of pools; None is ``answers.parquet`` beside them.
        precision: what numbers are stored in: ``fp32``, which changes no score, ``fp16`` or ``int8``. None is
            that of the store, ``fp32`` of a new one.
        device: what encodes; see ``load``.
        tokens_per_batch: tokens encoded at one time; None is 8,192, on a GPU 262,144.
        kind: what a model folder of another library holds, where it could be several things; see ``load``.
        cluster: see ``score``.
        workers: number of worker processes of the cluster; None is as many as there is room for.
        gpus_per_worker: GPUs per worker; may be fractional. None is 1 on a cluster with GPUs, else 0.
        wait: seconds to wait for nodes or resources of the cluster; None is without end.

    Returns:
        ``texts``, how many of them were ``encoded``, their ``tokens``, ``size`` in bytes, ``seconds``.

    Raises:
        AptoolError: an input or the store is not what it should be, or there is no room for it.
    """
    folder = check_path("output", output)
    single = isinstance(texts, str | ObjectPath) or not isinstance(texts, Iterable)
    several = [texts] if single else texts
    paths = [check_path("texts", one) for one in check_list("texts", several, "at least one path")]
    if precision is not None:
        check_choice("precision", precision, PRECISIONS)
    if tokens_per_batch is not None:
        check_integer("tokens_per_batch", tokens_per_batch, 1)
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    files = expand(paths, ".parquet")
    check_apart(folder, files)
    source = model.folder if isinstance(model, Model) else check_path("model", model)
    with where.connected() as place:
        return encode_files(
            files,
            folder,
            model=str(source),
            kind=kind,
            answers=None if answers is None else check_path("answers", answers),
            precision=precision,
            device=device,
            tokens_per_batch=tokens_per_batch,
            run=executor if executor is not None else place.encoder(),
        )
