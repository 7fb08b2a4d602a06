"""ColBERT models of PyLate have the same scores in PyLate and in aptool.

PyLate needs older versions of transformers and sentence-transformers than the other tests. Run this file in a
separate environment.
"""

import pytest
import torch
from networks import REASON, write_network

from aptool.models.checkpoints import load_any
from aptool.models.ragged import Ragged

pytest.importorskip("transformers", reason=REASON)
models = pytest.importorskip("pylate.models", reason="compares with PyLate: pip install pylate")

QUESTIONS = ["where is the market", "river bridge?", "violin"]
ANSWERS = ["the river is near the bridge ?", "market", "the silver hammer with the violin is the forest"]


@pytest.mark.parametrize(
    "options",
    [
        {"do_query_expansion": False, "skiplist_words": ["?", "the"]},
        {"query_length": 14, "skiplist_words": ["?"]},
        {"query_length": 14, "attend_to_expansion_tokens": True, "document_length": 9, "skiplist_words": []},
        {"query_prefix": "", "document_prefix": "", "query_length": 12, "skiplist_words": ["is"]},
    ],
)
@pytest.mark.filterwarnings("default")
def test_scores_equal_those_of_pylate(tmp_path, options):
    torch.manual_seed(1)
    network = write_network(tmp_path / "bert")
    names = {"mask_token": "[MASK]"}
    made = models.ColBERT(
        str(network),
        embedding_size=8,
        device="cpu",
        tokenizer_kwargs=names,
        **{"document_length": 60, "query_length": 20, **options},
    )
    made.save(str(tmp_path / "colbert"), create_model_card=False)
    library = models.ColBERT(str(tmp_path / "colbert"), device="cpu")
    Q = library.encode(QUESTIONS, is_query=True, convert_to_tensor=True, show_progress_bar=False)
    A = library.encode(ANSWERS, is_query=False, convert_to_tensor=True, show_progress_bar=False)
    expected = torch.stack([torch.stack([(q @ a.T).amax(1).sum() for a in A]) for q in Q])

    model = load_any(tmp_path / "colbert")
    limits = model.recipe.text
    with torch.inference_mode():
        questions = model.tokenizer.encode(QUESTIONS, limits.max_question_tokens, "question")
        answers = model.tokenizer.encode(ANSWERS, limits.max_answer_tokens)
        states = (model.ranker.encode(Ragged.of(some)) for some in (questions, answers))
        actual = model.ranker.score_matrix(*states)

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
