# ruff: noqa: ANN001, ANN201
"""The program of the fused kernel in Triton's language; ``attentive_fused`` plans and launches it.

With TRITON_INTERPRET=1 it runs on CPU tensors. The interpreter multiplies bf16 as integers: CAST converts
numbers to fp32 before products.
"""

import triton
import triton.language as tl


@triton.jit
def join(
    projected,  # (N, c) rows of Qᵀ U
    states,  # (N, c) fp32 states of questions
    question_offsets,  # (n + 1,) int64
    answers,  # (R, c) states of answers, in the precision of the products
    blocks,  # (4, B) int32: first row and number of tokens of the answer, first pair, number of pairs
    pair_question,  # (P,) int32
    pair_position,  # (P,) int32 index of the score in ``scores``
    scores,  # (P,) fp32
    sharpness,
    c,
    PAIRS: tl.constexpr,
    SLOTS: tl.constexpr,
    L: tl.constexpr,
    K: tl.constexpr,
    CAST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Score one answer with up to PAIRS of its questions, each of up to SLOTS tokens.

    The last token of a text is repeated as padding, which changes no maximum. G is a tile in registers; only
    its maxima are used. r_q and r_a are never written: their inner product and squared lengths are summed
    over blocks of K features.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    a_begin = tl.load(blocks + program).to(tl.int64)
    length = tl.load(blocks + programs + program)
    first = tl.load(blocks + 2 * programs + program)
    count = tl.load(blocks + 3 * programs + program)

    pair = tl.arange(0, PAIRS)
    is_pair = pair < count
    question = tl.load(pair_question + first + pair, mask=is_pair, other=0)
    q_begin = tl.load(question_offsets + question)
    tokens = (tl.load(question_offsets + question + 1) - q_begin).to(tl.int32)  # (PAIRS,)
    slot = tl.arange(0, SLOTS)
    rows = q_begin[:, None] + tl.minimum(slot[None, :], tokens[:, None] - 1)  # (PAIRS, SLOTS)
    flat = tl.reshape(rows, (PAIRS * SLOTS,))
    position = tl.arange(0, L)
    a_rows = a_begin + tl.minimum(position, length - 1)  # (L,)

    G = tl.zeros((PAIRS * SLOTS, L), dtype=tl.float32)  # eq. 13 before its tanh
    for k in range(0, c, K):
        feature = k + tl.arange(0, K)
        Q = tl.load(projected + flat[:, None] * c + feature[None, :], mask=feature[None, :] < c, other=0.0)
        A = tl.load(answers + a_rows[None, :] * c + feature[:, None], mask=feature[:, None] < c, other=0.0)
        if CAST:
            Q, A = Q.to(tl.float32), A.to(tl.float32)
        G = tl.dot(Q, A, G, input_precision=PRECISION)

    cube = tl.reshape(G, (PAIRS, SLOTS, L))
    # tanh(x) = 1 - 2 / (1 + exp(2x)) for every x, and tanh increases: eq. 14 and 15.
    g_q = 1 - 2 / (1 + tl.exp(2 * tl.max(cube, 2)))  # (PAIRS, SLOTS)
    g_a = 1 - 2 / (1 + tl.exp(2 * tl.max(cube, 1)))  # (PAIRS, L)
    # Eq. 16; a cosine does not depend on the divisor.
    w_q = tl.where(slot[None, :] < tokens[:, None], tl.exp(sharpness * g_q), 0.0)
    w_a = tl.where(position[None, :] < length, tl.exp(sharpness * g_a), 0.0)

    dots = tl.zeros((PAIRS,), dtype=tl.float32)
    qq = tl.zeros((PAIRS,), dtype=tl.float32)
    aa = tl.zeros((PAIRS,), dtype=tl.float32)
    flat_w = tl.reshape(w_q, (PAIRS * SLOTS,))
    for k in range(0, c, K):
        feature = k + tl.arange(0, K)
        inside = feature[None, :] < c
        Q = tl.load(states + flat[:, None] * c + feature[None, :], mask=inside, other=0.0)
        A = tl.load(answers + a_rows[:, None] * c + feature[None, :], mask=inside, other=0.0)
        if CAST:
            A = A.to(tl.float32)
        r_q = tl.sum(tl.reshape(Q * flat_w[:, None], (PAIRS, SLOTS, K)), 1)  # eq. 17: (PAIRS, K)
        r_a = tl.dot(w_a.to(A.dtype), A, input_precision=PRECISION)  # eq. 18: (PAIRS, K)
        dots += tl.sum(r_q * r_a, 1)
        qq += tl.sum(r_q * r_q, 1)
        aa += tl.sum(r_a * r_a, 1)
    lengths = tl.maximum(tl.sqrt(qq), 1e-8) * tl.maximum(tl.sqrt(aa), 1e-8)
    target = tl.load(pair_position + first + pair, mask=is_pair, other=0)
    tl.store(scores + target, dots / lengths, mask=is_pair)  # eq. 11
