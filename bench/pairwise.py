"""A plain reference implementation that scores pair by pair; the tests compare the scorer with it.

Every pair is padded to the longest pair of its batch, and both of its texts are encoded, also if a text
occurs in several pairs. The code is independent of ``aptool.scoring``; weights are read from a state dict.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.models.build import Ranker
from aptool.text.tokenizer import Tokens


@torch.inference_mode()
def score_pairwise(
    ranker: Ranker,
    questions: Tokens,
    answers: Tokens,
    pair_question: np.ndarray,
    pair_answer: np.ndarray,
    batch: int = 64,
) -> np.ndarray:
    """(P,) float32 scores of pairs, in batches of ``batch``; both texts of every pair are encoded."""
    weights = ranker.state_dict()
    device = next(iter(weights.values())).device
    parts = []
    for start in range(0, len(pair_question), batch):
        q, q_mask = (part.to(device) for part in _padded(questions, pair_question[start : start + batch]))
        a, a_mask = (part.to(device) for part in _padded(answers, pair_answer[start : start + batch]))
        Q, A = _encode(weights, q, q_mask), _encode(weights, a, a_mask)
        pool = _attentive if "pooling.U" in weights else _max
        r_q, r_a = pool(weights, Q, q_mask, A, a_mask)
        parts.append(F.cosine_similarity(r_q, r_a).cpu().numpy())
    return np.concatenate(parts)


def _padded(tokens: Tokens, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    """(n, T) token ids padded with 0, and the (n, T) mask of tokens."""
    texts = [
        torch.from_numpy(tokens.ids[tokens.offsets[row] : tokens.offsets[row + 1]]).long() for row in rows
    ]
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    lengths = torch.tensor([len(text) for text in texts])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def _encode(weights: dict[str, Tensor], ids: Tensor, mask: Tensor) -> Tensor:
    """(n, T, c) states."""
    embedded = F.embedding(ids, weights["encoder.embedding.weight"])  # (n, T, d)
    if "encoder.convolution.weight" in weights:
        return _convolve(weights, embedded)
    left = _lstm(weights, "encoder.forwards", embedded, mask)
    right = _lstm(weights, "encoder.backwards", embedded, mask, backwards=True)
    return torch.cat([left, right], dim=2)


def _convolve(weights: dict[str, Tensor], embedded: Tensor) -> Tensor:
    d = embedded.shape[2]
    W, b = weights["encoder.convolution.weight"], weights["encoder.convolution.bias"]
    k = W.shape[1] // d
    kernel = W.view(-1, k, d).transpose(1, 2)  # (c, d, k)
    padded = F.pad(embedded.transpose(1, 2), ((k - 1) // 2, k // 2))
    return F.conv1d(padded, kernel, b).transpose(1, 2)


def _lstm(
    weights: dict[str, Tensor], name: str, embedded: Tensor, mask: Tensor, backwards: bool = False
) -> Tensor:
    """(n, T, H) hidden states, with explicit gates (eq. 3 to 8)."""
    W, U = weights[f"{name}.weight_ih_l0"], weights[f"{name}.weight_hh_l0"]
    bias = weights[f"{name}.bias_ih_l0"] + weights[f"{name}.bias_hh_l0"]
    n, T, _ = embedded.shape
    h = embedded.new_zeros(n, U.shape[1])
    cell = torch.zeros_like(h)
    states: list[Tensor] = [h] * T
    for t in reversed(range(T)) if backwards else range(T):
        i, f, candidate, o = (embedded[:, t] @ W.T + h @ U.T + bias).chunk(4, dim=1)
        here = mask[:, t, None]
        cell = torch.where(here, i.sigmoid() * candidate.tanh() + f.sigmoid() * cell, cell)
        h = torch.where(here, o.sigmoid() * cell.tanh(), h)
        states[t] = h
    return torch.stack(states, dim=1)


def _max(
    weights: dict[str, Tensor], Q: Tensor, q_mask: Tensor, A: Tensor, a_mask: Tensor
) -> tuple[Tensor, Tensor]:
    r_q = Q.masked_fill(~q_mask[..., None], -torch.inf).amax(1).tanh()
    return r_q, A.masked_fill(~a_mask[..., None], -torch.inf).amax(1).tanh()


def _attentive(
    weights: dict[str, Tensor], Q: Tensor, q_mask: Tensor, A: Tensor, a_mask: Tensor
) -> tuple[Tensor, Tensor]:
    G = (Q @ weights["pooling.U"] @ A.transpose(1, 2)).tanh()  # (n, M, L)
    G = G.masked_fill(~(q_mask[:, :, None] & a_mask[:, None, :]), -2)  # below every tanh
    sigma_q = G.amax(2).masked_fill(~q_mask, -torch.inf).softmax(1)  # (n, M)
    sigma_a = G.amax(1).masked_fill(~a_mask, -torch.inf).softmax(1)  # (n, L)
    return (sigma_q[:, None] @ Q).squeeze(1), (sigma_a[:, None] @ A).squeeze(1)
