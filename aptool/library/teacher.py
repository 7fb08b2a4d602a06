"""A teacher that is a model: its scores of the training pools as a run file, made once."""

import hashlib
import logging

from aptool.formats.collection import Collection
from aptool.formats.location import PathOrUrl, location
from aptool.formats.run_folder import is_run
from aptool.library.scoring import score
from aptool.models.checkpoints.read import load_any

logger = logging.getLogger(__name__)


def teacher_run(teacher: PathOrUrl, collection: Collection, output: PathOrUrl, device: str = "auto") -> str:
    """The run file of a teacher.

    Args:
        teacher: a run file, or a model, which scores the pools of the split ``train``.
        collection: the collection to train on.
        output: the model to be trained; the scores of a teacher are beside it, in
            ``OUTPUT.teacher-KEY.run``, by a key of the teacher and the collection.
        device: of the teacher.

    Raises:
        AptoolError: there is neither such a file nor such a model, or it cannot score the pools.
    """
    if is_run(teacher):
        return str(teacher)
    fingerprint = load_any(teacher).fingerprint
    key = hashlib.sha256(f"{fingerprint} {collection.fingerprint}".encode()).hexdigest()[:12]
    run = location(f"{location(output)}.teacher-{key}.run")
    if not run.is_file():
        logger.info(f"{teacher} scores the training pools: {run}")
        answers = None if collection.answers is None else str(collection.answers)
        score(str(collection.pools("train")), str(teacher), str(run), answers=answers, device=device)
    return str(run)
