"""The page of the paper's equations, each beside the code that computes it, taken from the code itself."""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mkdocs_gen_files

import aptool
from aptool.models.attention import AttentivePooling
from aptool.models.encoders import BiLstmEncoder, CnnEncoder
from aptool.models.pooling import MaxPooling
from aptool.models.similarity import Cosine, Dot, unit
from aptool.training.losses import hardest, hinge
from aptool.training.optimization import learning_rate

ROOT = Path(aptool.__file__).parents[1]

INTRODUCTION = """\
Equations are numbered as in [Attentive Pooling Networks](https://arxiv.org/abs/1602.03609). A question has
M words, an answer L; a state has c features. States are columns in the paper and rows in the code: `Q`
there is Qᵀ here. Texts of several lengths lie one after another (`Ragged`), or padded with a mask. These
functions are the definition, which training computes. The scorer computes the same scores faster
([how](architecture.md#each-text-is-encoded-once)); tests compare the two. The
[preset](reference/presets.md) `ap-cnn-paper` has the values of the paper's Table 2; [what the paper leaves
open](systems.md#from-the-equation-to-the-code) is an option."""

# Title, equations, what to know, the code.
SECTIONS: list[tuple[str, str, str, list[Callable[..., Any]]]] = [
    (
        "Convolution",
        """\
(1)  Q = W¹ Z^q + b¹         W¹ (c, k d),  Z^q (k d, M)
(2)  A = W¹ Z^a + b¹""",
        "Column m of Z^q is the k word embeddings around word m of the question, zero vectors outside the"
        " text. There is no nonlinearity. Questions and answers share the weights.",
        [CnnEncoder.forward, CnnEncoder.windows],
    ),
    (
        "LSTM in both directions",
        """\
(3)  i_t = σ(W_i r_t + U_i h_{t-1} + b_i)
(4)  f_t = σ(W_f r_t + U_f h_{t-1} + b_f)
(5)  o_t = σ(W_o r_t + U_o h_{t-1} + b_o)
(6)  C̃_t = tanh(W_m r_t + U_m h_{t-1} + b_m)
(7)  C_t = i_t * C̃_t + f_t * C_{t-1}
(8)  h_t = o_t * tanh(C_t)""",
        "torch's LSTM is these six equations (its two biases add up to one). A state is the hidden "
        "vectors of both directions, c = 2 H.",
        [BiLstmEncoder.__init__, BiLstmEncoder._states],
    ),
    (
        "Max pooling",
        """\
(9)   [r^q]_j = tanh(max_m Q_{j,m})
(10)  [r^a]_j = tanh(max_l A_{j,l})""",
        "QA-CNN and QA-biLSTM. The paper's 1 < m < M is read as 1 ≤ m ≤ M.",
        [MaxPooling.represent],
    ),
    (
        "Score",
        "(11)  s(q, a) = r^q · r^a / (‖r^q‖ ‖r^a‖)",
        "Vectors are scaled to unit length once each; a zero vector has the score 0.",
        [unit, Dot.pairs, Cosine.prepare_questions],
    ),
    (
        "Loss",
        "(12)  L = max{0, m − s(q, a⁺) + s(q, a⁻)}",
        "Of 50 sampled answers the one with the highest score is a⁻.",
        [hinge, hardest],
    ),
    (
        "Attentive pooling",
        """\
(13)  G = tanh(Qᵀ U A)
(14)  [g^q]_m = max_l G_{m,l}
(15)  [g^a]_l = max_m G_{m,l}
(16)  [σ^q]_m = exp([g^q]_m) / Σ_i exp([g^q]_i),  σ^a in the same way
(17)  r^q = Q σ^q
(18)  r^a = A σ^a""",
        "AP-CNN and AP-biLSTM. The paper's equations 14 and 15 name the upper limits of the maxima the "
        "other way round; its text says that g^q has M elements and g^a L.",
        [AttentivePooling.forward, AttentivePooling.attention_weights],
    ),
    (
        "Learning rate",
        "λ_t = λ / t",
        "The rate of epoch t (section 5.3), `training.schedule=inverse`; that of QA-CNN is constant.",
        [learning_rate],
    ),
]


def source(function: Callable[..., Any]) -> str:
    """The code of a function, without its docstring, under the place where it is."""
    lines = textwrap.dedent(inspect.getsource(function)).rstrip()
    if documentation := function.__doc__:
        start = lines.index('"""')
        end = lines.index('"""', start + 3) + 3
        assert documentation[:20].strip() in lines[start:end], function
        lines = lines[:start].rstrip() + lines[end:]
    module = Path(inspect.getsourcefile(function) or "").relative_to(ROOT)
    return f"`{module}`, `{function.__qualname__}`:\n\n```python\n{lines}\n```"


def main() -> None:
    """Writes the page."""
    parts = ["# The paper's equations", INTRODUCTION]
    for title, equations, remark, functions in SECTIONS:
        parts += [f"## {title}", f"```text\n{equations}\n```", remark, *map(source, functions)]
    with mkdocs_gen_files.open("equations.md", "w") as page:
        page.write("\n\n".join(parts) + "\n")


main()
