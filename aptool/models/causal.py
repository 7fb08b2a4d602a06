"""Rerankers over causal language models: the score of a pair is read at its last token.

A pair is one text: a question and an answer within a template. The state of a token does not depend on later
tokens, so the states of a shared beginning are computed once for many pairs. Pairs are packed into one row:
embeddings, products and normalizations are computed for all tokens at once, attention within each pair.
"""

import copy
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from aptool.models.backbone import BatchedNetwork, lower_precision
from aptool.models.device import batch_sizes, send
from aptool.models.packed import PaddedTexts, attend_padded, causal_mask, pad_texts, use_attention
from aptool.models.pooling import Pooling, scores_of_outputs
from aptool.models.ragged import MIN_ROWS, Ragged, rows_of

# Networks whose attention ``attend`` computes. Other networks read batches of equal length, padded on a GPU.
_PACKED = ("gemma", "gemma3_text", "llama", "mistral", "qwen2", "qwen3")

# Name of ``attend`` in transformers.
_ATTENTION = "aptool_shared_prefix"


class Segments(NamedTuple):
    """Texts of equal length in a row, which continue the same prefix."""

    starts: np.ndarray  # (n,) int64 first token of each text
    sizes: np.ndarray  # (n,) int64 length of each text
    prefix: tuple[int, int]  # first token and length of the prefix; length 0 without a prefix


class LastTokenNetwork(BatchedNetwork):
    """A causal network with a head that reads the state of the last token of a text."""

    def __init__(self, network: Any, output: Literal["logits", "labels"]) -> None:
        super().__init__(network)
        self.output = output
        network.config.use_cache = False
        self.is_packed = self.pack()

    @override
    def pack(self) -> bool:
        if self.network.config.model_type not in _PACKED:
            return False
        use_attention(self.network, _ATTENTION, attend, _no_mask)
        return True

    def forward(self, prefixes: Ragged, texts: Ragged, parents: np.ndarray) -> Tensor:
        """(n, k) fp32 outputs at the last token of n texts; text i continues prefix ``parents[i]``.

        Only a packed network reads prefixes.
        """
        limit = batch_sizes(texts.values.device).network
        order = np.lexsort((texts.sizes, parents))
        outputs = []
        for rows in _rows(texts.sizes, parents, prefixes.sizes, order, limit):
            if self.is_packed:
                outputs.append(self._packed(prefixes, texts, rows, parents[rows]))
            else:
                outputs.append(self._batched(texts.select(rows)))
        return torch.cat(outputs)[send(np.argsort(order), texts.values.device)]

    def _packed(self, prefixes: Ragged, texts: Ragged, rows: np.ndarray, parents: np.ndarray) -> Tensor:
        """(n, k) outputs of texts in one row, after their prefixes; ``rows`` are grouped by parent."""
        present, parent = np.unique(parents, return_inverse=True)
        chosen, shared = texts.select(rows), prefixes.select(present)
        begin = chosen.spread(send(shared.sizes[parent], chosen.values.device))
        positions = torch.cat([shared.positions()[0], begin + chosen.positions()[0]])
        last = len(shared.values) + np.cumsum(chosen.sizes) - 1
        last = np.resize(last, max(len(last), MIN_ROWS))  # smaller products round differently
        outputs = self._outputs(
            send(last, positions.device),
            input_ids=torch.cat([shared.values, chosen.values])[None],
            position_ids=positions[None],
            **_plan(shared.sizes, chosen.sizes, parent, positions.device),
        )
        return outputs[: len(rows)]

    def _batched(self, texts: Ragged) -> Tensor:
        """(n, k) outputs of texts: one batch per length, or padded batches on a GPU."""
        order = np.argsort(texts.sizes, kind="stable")
        outputs = []
        for batch in self._batches(texts.sizes[order], share=False):
            part = texts.select(order[batch.members])
            inputs, slots = self._padded_inputs(part, batch.width)
            last = None if slots is None else slots[part.offsets[1:] - 1]
            outputs.append(self._outputs(last, **inputs)[: batch.size])
        return torch.cat(outputs)[send(np.argsort(order), texts.values.device)]

    def _outputs(self, last: Tensor | None, **inputs: Any) -> Tensor:
        """(n, k) fp32 outputs at n tokens.

        ``last`` has their indices in the tokens of all rows; None: the last token of each row.
        """
        inputs |= {"use_cache": False, "return_dict": True}
        if self.output == "logits":
            is_padded = last is not None and len(inputs["input_ids"]) > 1
            kept = 0 if is_padded else 1 if last is None else last  # 0: all, as rows end anywhere
            logits = self.network(logits_to_keep=kept, **inputs).logits.flatten(0, 1)
            return (logits[last] if is_padded else logits).float()
        states = self.network.base_model(**inputs).last_hidden_state
        outputs: Tensor = self.network.score(states[:, -1] if last is None else states.flatten(0, 1)[last])
        return outputs.float()


class CausalPooling(Pooling):
    """The score of a pair is read from a causal network at the last token of the joined texts."""

    kernel = "causal"
    input_kind = "ids"

    def __init__(
        self,
        network: LastTokenNetwork,
        *,
        max_tokens: int,
        suffix_length: int,
        question_first: bool,
        activation: str = "identity",
        relevant: int = 0,
    ) -> None:
        super().__init__()
        self.network = network
        self.relevant = relevant  # number of the relevant one of two outputs
        self.max_tokens = max_tokens  # of a pair
        self.suffix_length = suffix_length  # tokens at the end of an answer that truncation keeps
        self.question_first = question_first
        self.activation = activation

    @override
    def score_pairs(self, questions: Ragged, answers: Ragged) -> Tensor:
        answers = self._truncated(answers, questions.sizes)
        first, second = (questions, answers) if self.question_first else (answers, questions)
        count = len(first.sizes)
        both = Ragged.concatenate([first, second])
        joined = both.select(np.stack([np.arange(count), count + np.arange(count)], 1).reshape(-1))
        pairs = Ragged.of_sizes(joined.values, first.sizes + second.sizes)
        no_prefix = Ragged.of_sizes(pairs.values[:0], np.zeros(1, dtype=np.int64))
        outputs = self.network(no_prefix, pairs, np.zeros(count, dtype=np.int64))
        return scores_of_outputs(outputs, self.activation, self.relevant)

    def score_shared(self, questions: Ragged, answers: Ragged, pair_question: np.ndarray) -> Tensor:
        """(n,) scores of n answers, each with the question at ``pair_question``; a question is read once."""
        is_shared = np.bincount(pair_question).max() > 1
        if not (is_shared and self.question_first and self.network.is_packed):
            return self.score_pairs(questions.select(pair_question), answers)
        answers = self._truncated(answers, questions.sizes[pair_question])
        outputs = self.network(questions, answers, pair_question)
        return scores_of_outputs(outputs, self.activation, self.relevant)

    @override
    def in_bf16(self) -> "CausalPooling":
        pooling = copy.deepcopy(self)
        lower_precision(pooling.network.network)
        return pooling

    def _truncated(self, answers: Ragged, question_sizes: np.ndarray) -> Ragged:
        """Truncate answers (n) to the room that questions (n,) leave, before their suffix."""
        room = self.max_tokens - question_sizes
        if (answers.sizes <= room).all():
            return answers
        sizes = np.minimum(answers.sizes, room)
        ends = np.cumsum(answers.sizes)
        kept = np.minimum(self.suffix_length, sizes)
        starts = np.stack([ends - answers.sizes, ends - kept], 1).reshape(-1)
        counts = np.stack([sizes - kept, kept], 1).reshape(-1)
        rows = send(rows_of(starts, counts), answers.values.device)
        return Ragged.of_sizes(answers.values[rows], sizes)


def _no_mask(*arguments: Any, **options: Any) -> None:
    """Return no mask; ``attend`` computes its own masks."""


def _rows(
    sizes: np.ndarray, parents: np.ndarray, prefix_sizes: np.ndarray, order: np.ndarray, limit: int
) -> list[np.ndarray]:
    """Split texts in an order by parent into rows of about ``limit`` tokens, prefixes included."""
    is_first = np.concatenate([[True], np.diff(parents[order]) != 0])
    total = np.cumsum(sizes[order] + np.where(is_first, prefix_sizes[parents[order]], 0))
    row = (total - 1) // limit
    return np.split(order, np.flatnonzero(np.diff(row)) + 1)


def _plan(
    prefix_sizes: np.ndarray, sizes: np.ndarray, parents: np.ndarray, device: torch.device
) -> dict[str, Any]:
    """Return the arguments of ``attend`` for a row: prefixes first, then texts by parent and length."""
    begins = np.cumsum(prefix_sizes) - prefix_sizes
    starts = int(prefix_sizes.sum()) + np.cumsum(sizes) - sizes
    shared = np.flatnonzero(prefix_sizes)
    if device.type == "cuda":
        none = np.zeros_like(shared)
        first, lengths = (
            np.concatenate([begins[shared], starts]),
            np.concatenate([prefix_sizes[shared], sizes]),
        )
        prefixes = np.concatenate([none, begins[parents]]), np.concatenate([none, prefix_sizes[parents]])
        return {"padded_texts": pad_texts(first, lengths, device, prefixes)}
    plan = [Segments(begins[i : i + 1], prefix_sizes[i : i + 1], (0, 0)) for i in shared]
    changes = (np.diff(parents) != 0) | (np.diff(sizes) != 0)
    for group in np.split(np.arange(len(sizes)), np.flatnonzero(changes) + 1):
        parent = parents[group[0]]
        prefix = int(begins[parent]), int(prefix_sizes[parent])
        plan.append(Segments(starts[group], sizes[group], prefix))
    return {"segments": plan}


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    segments: Sequence[Segments] = (),
    padded_texts: Sequence[PaddedTexts] = (),
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within texts and to their prefix; for ``transformers.AttentionInterface``.

    Returns (1, N, h, d), and None instead of the weights. A token attends to ``sliding_window`` tokens, with
    itself; None: to all. Each of the h' heads of key and value (1, h', N, d) belongs to h / h' heads of the
    query (1, h, N, d).
    """
    if padded_texts:
        return attend_padded(query, key, value, padded_texts, scaling, True, sliding_window), None
    repeats = query.shape[1] // key.shape[1]
    queries, keys, values = (tensor[0].transpose(0, 1) for tensor in (query, key, value))  # (N, h, d)
    attended = torch.empty(queries.shape, dtype=query.dtype, device=query.device)
    for starts, sizes, (begin, length) in segments:
        width = int(sizes[0])
        rows = send((starts[:, None] + np.arange(width)).reshape(-1), query.device)
        q, k, v = (
            tensor.index_select(0, rows).unflatten(0, (len(starts), width))
            for tensor in (queries, keys, values)
        )
        if length:
            k, v = (
                torch.cat([states[begin : begin + length].expand(len(starts), -1, -1, -1), part], 1)
                for states, part in ((keys, k), (values, v))
            )
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))  # (n, h, length, d)
        if repeats > 1:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        window = sliding_window if sliding_window and sliding_window < length + width else None
        mask = causal_mask(width, length, window, query.device) if length or window else None
        output = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, scale=scaling)
        attended[rows] = output.transpose(1, 2).flatten(0, 1)
    return attended[None], None
