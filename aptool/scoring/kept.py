"""What a model keeps of an answer until its questions come: the bytes that ``aptool encode`` stores."""

import numpy as np

from aptool.formats.collection import Collection
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.models.model import LoadedModel
from aptool.scoring.kernels import pair_scorer_for
from aptool.scoring.tokenized import PoolTokenizer
from aptool.text.forms import pooled_rows
from aptool.text.tokenizer import Tokens

_BYTES_PER_NUMBER = 4  # fp32


def bytes_per_answer(model: LoadedModel, answers: Tokens) -> float | None:
    """Mean bytes that are kept of answers in fp32; None of a model that reads both texts together."""
    ranker = model.ranker
    if ranker.encoder.output_kind == "ids" or not len(answers):
        return None
    lengths = pooled_rows(answers.ids, answers.offsets)[1]
    rows = pair_scorer_for(ranker.pooling).kept_rows(lengths)
    return float(np.mean(rows)) * ranker.state_size * _BYTES_PER_NUMBER


def bytes_on_split(model: LoadedModel, collection: Collection, split: str) -> float | None:
    """``bytes_per_answer`` of the answers of a split's first row group.

    Raises:
        InputError: a file cannot be read.
    """
    units = list_units([collection.pools(split)])
    shared = read_answers(collection.answers) if collection.answers else None
    tokenizer = PoolTokenizer(model.tokenizer, model.recipe.text)
    return bytes_per_answer(model, tokenizer.tokenize(read_pools(units[0], shared)).answers)
