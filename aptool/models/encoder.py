"""What an encoder is: states of texts, and where its tokenizer and its first weights come from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from torch import Tensor, nn

from aptool.config import Recipe
from aptool.models.ragged import Ragged
from aptool.text.tokenizer import TextTokenizer

# Token ids and rows (R,) of their tokens in, the states (R, c) of those tokens out.
Encode = Callable[[Ragged, Tensor], Tensor]


class Shape(NamedTuple):
    """What an encoder is built for beside its options; ``config.json`` keeps it.

    Attributes:
        words: tokens that have an id.
        dim: d, numbers in the vector of a token.
        backbone: the pretrained network that it reads with, if it has one, as that network describes itself.
    """

    words: int
    dim: int
    backbone: dict[str, Any] | None = None


class Corpus(NamedTuple):
    """What a system may be made from before it is trained.

    Attributes:
        texts: every text of the training split once.
        every: all texts of all splits.
        seed: of what is drawn.
        cache: a folder to keep in what took long to make.
    """

    texts: list[str]
    every: Callable[[], Iterator[str]]
    seed: int
    cache: Path | None = None


class Initialization(NamedTuple):
    """How a system begins.

    Attributes:
        tokenizer: of its texts.
        recipe: with what has turned out, such as the size of the vectors.
        shape: what the encoder is built for.
        load_weights: gives the ranker that was built its first weights; returns how many tokens did not start at
            random.
        causal: a text's first state knows its first token alone.
    """

    tokenizer: TextTokenizer
    recipe: Recipe
    shape: Shape
    load_weights: Callable[[nn.Module], int]
    causal: bool = False


class Encoder(nn.Module, ABC):
    """What every encoder offers."""

    Options: ClassVar[type]
    Tokenizer: ClassVar[type[TextTokenizer]]
    # What its states are: vectors that are pooled, or ids, for a pooling that does the reading itself.
    output_kind: ClassVar[Literal["vectors", "ids"]] = "vectors"
    size: int  # c, features per state
    shape: Shape

    @classmethod
    def built(cls, shape: Shape, options: Any) -> Self:
        """The encoder with fresh weights."""
        raise NotImplementedError

    @classmethod
    def check(cls, recipe: Recipe, options: Any) -> None:
        """Finds out before any work whether there is what the encoder needs.

        Raises:
            AptoolError: there is not.
        """

    @classmethod
    def source(cls, recipe: Recipe) -> str:
        """What the first weights come from: a file, a folder, a name on a hub, or how they are made."""
        raise NotImplementedError

    @classmethod
    def init(cls, recipe: Recipe, options: Any, corpus: Corpus) -> Initialization:
        """The tokenizer, and the first weights of a system with this encoder.

        Raises:
            InputError: what the recipe names is not there, or not what it should be.
        """
        raise NotImplementedError

    @abstractmethod
    def forward(self, tokens: Ragged) -> Ragged:
        """States of token ids.

        Args:
            tokens: ids, values (N,) int64.

        Returns:
            States, values (N, c), of the same sequences. A state depends on its own text alone.
        """

    def inference_encoder(self, tokens: int | None = None) -> Encode:
        """``forward`` for inference with the weights as they stand now, after whatever work pays off once.

        ``tokens`` says how many will be encoded, where that is known: for few, little pays off.

        It gives the states of the tokens asked for, in the order asked for, so that whoever needs them
        in another layout has them written there at once. A text's states must come out the same to the bit
        whichever texts are encoded along with it: scores are then the same however work is cut up.
        """
        return lambda tokens, rows: self(tokens).values.index_select(0, rows)
