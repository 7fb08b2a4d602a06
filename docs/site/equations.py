"""The page of the paper's equations, each next to the code that computes it."""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mkdocs_gen_files
from latex2mathml.converter import convert

import aptool
from aptool.models.attention import AttentivePooling
from aptool.models.encoders import BiLstmEncoder, CnnEncoder
from aptool.models.pooling import Cosine, Dot, MaxPooling, unit
from aptool.training.loop import learning_rate
from aptool.training.losses import hardest, hinge

ROOT = Path(aptool.__file__).parents[1]

INTRODUCTION = """\
Equations are numbered as in [Attentive Pooling Networks](https://arxiv.org/abs/1602.03609). A question has
M words, an answer L; a state has c features. States are columns in the paper and rows in the code: Q
in the paper is Qᵀ in the code. A batch of texts is concatenated (`Ragged`), or padded with a mask. These
functions define the score and are used in training. Scoring computes the same scores faster
([how](architecture.md#scoring)); tests compare the two. The
[preset](reference/presets.md) `ap-cnn-paper` has the values of the paper's Table 2; [what the paper leaves
open](systems.md#the-papers-systems) is an option."""

# Title, equations (number or "", LaTeX), remark, functions.
SECTIONS: list[tuple[str, list[tuple[str, str]], str, list[Callable[..., Any]]]] = [
    (
        "Convolution",
        [("1", r"Q = W^1 Z^q + b^1"), ("2", r"A = W^1 Z^a + b^1")],
        "W<sup>1</sup> is (c, k d), Z<sup>q</sup> (k d, M). Column m of Z<sup>q</sup> "
        "is the k word embeddings around word m of the question, zero vectors outside the text. There is no "
        "nonlinearity. Questions and answers share the weights.",
        [CnnEncoder.forward, CnnEncoder.windows],
    ),
    (
        "LSTM in both directions",
        [
            ("3", r"i_t = \sigma(W_i r_t + U_i h_{t-1} + b_i)"),
            ("4", r"f_t = \sigma(W_f r_t + U_f h_{t-1} + b_f)"),
            ("5", r"o_t = \sigma(W_o r_t + U_o h_{t-1} + b_o)"),
            ("6", r"\tilde{C}_t = \tanh(W_m r_t + U_m h_{t-1} + b_m)"),
            ("7", r"C_t = i_t * \tilde{C}_t + f_t * C_{t-1}"),
            ("8", r"h_t = o_t * \tanh(C_t)"),
        ],
        "torch's LSTM is these six equations (its two biases add up to one). A state is the hidden "
        "vectors of both directions, c = 2 H.",
        [BiLstmEncoder.__init__, BiLstmEncoder._states],
    ),
    (
        "Max pooling",
        [
            ("9", r"[r^q]_j = \tanh\left(\max_{1 \le m \le M} Q_{j,m}\right)"),
            ("10", r"[r^a]_j = \tanh\left(\max_{1 \le l \le L} A_{j,l}\right)"),
        ],
        "QA-CNN and QA-biLSTM. The paper's 1 < m < M is read as 1 ≤ m ≤ M.",
        [MaxPooling.represent],
    ),
    (
        "Score",
        [("11", r"s(q, a) = \frac{r^q \cdot r^a}{\Vert r^q \Vert \, \Vert r^a \Vert}")],
        "Vectors are scaled to unit length once each; a zero vector has the score 0.",
        [unit, Dot.pairs, Cosine.prepare_questions],
    ),
    (
        "Loss",
        [("12", r"L = \max\{0, m - s_\theta(q, a^+) + s_\theta(q, a^-)\}")],
        "Of 50 sampled answers, a⁻ is the one with the highest score.",
        [hinge, hardest],
    ),
    (
        "Attentive pooling",
        [
            ("13", r"G = \tanh(Q^T U A)"),
            ("14", r"[g^q]_m = \max_{1 \le l \le L} G_{m,l}"),
            ("15", r"[g^a]_l = \max_{1 \le m \le M} G_{m,l}"),
            ("16", r"[\sigma^q]_m = \frac{e^{[g^q]_m}}{\sum_{1 \le i \le M} e^{[g^q]_i}}"),
            ("17", r"r^q = Q \sigma^q"),
            ("18", r"r^a = A \sigma^a"),
        ],
        "AP-CNN and AP-biLSTM; σ<sup>a</sup> is computed like σ<sup>q</sup>. The paper's equations "
        "14 and 15 exchange the upper limits of the maxima; its text says that g<sup>q</sup> has M elements "
        "and g<sup>a</sup> L.",
        [AttentivePooling.forward, AttentivePooling.attention_weights],
    ),
    (
        "Learning rate",
        [("", r"\lambda_t = \frac{\lambda}{t}")],
        "The rate of epoch t (section 5.3), `training.schedule=inverse`; that of QA-CNN is constant.",
        [learning_rate],
    ),
]


def typeset(number: str, latex: str) -> str:
    """An equation as MathML, which browsers typeset without a script; its number is its anchor."""
    anchor = f' id="equation-{number}"' if number else ""
    label = f"<span>({number})</span>" if number else "<span></span>"
    return f'<div class="equation"{anchor}>{convert(latex, display="block")}{label}</div>'


def source(function: Callable[..., Any]) -> str:
    """The code of a function, without its docstring, after its module and name."""
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
        lines = "\n".join(typeset(*equation) for equation in equations)
        parts += [f"## {title}", lines, remark, *map(source, functions)]
    with mkdocs_gen_files.open("equations.md", "w") as page:
        page.write("\n\n".join(parts) + "\n")


main()
