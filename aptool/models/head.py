"""Cross-encoders with the classification head of their network."""

import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch import Tensor
from typing_extensions import override

from aptool.models.backbone import Classifier, lower_precision
from aptool.models.encoders import Encoder
from aptool.models.pooling import Activation, apply_activation
from aptool.models.pretrained import new_network
from aptool.models.ragged import Ragged
from aptool.models.transformer import PairPooling
from aptool.text.subwords import SpecialTokens


class HeadPooling(PairPooling):
    """The score of a pair is the output of the network's head."""

    @dataclass(frozen=True)
    class Options:
        """Options of ``head`` pooling, for training that starts from a cross-encoder.

        Attributes:
            activation: Function of the head's output.
        """

        activation: Activation = "identity"

    def __init__(
        self,
        network: Any,
        special: SpecialTokens,
        around: tuple[int, int],
        activation: str,
        max_tokens: int,
    ) -> None:
        """Wrap a network with its head.

        Args:
            network: the network.
            special: the special tokens of a pair.
            around: numbers of special tokens before and after a single text.
            activation: function of the head's output.
            max_tokens: maximum length of a pair.
        """
        super().__init__(special, *around)
        self.classifier = Classifier(network)
        self.activation = activation
        self.max_tokens = max_tokens

    @classmethod
    @override
    def for_encoder(cls, encoder: Encoder, options: Any) -> Self:
        backbone = encoder.spec.backbone
        if backbone is None or "max_tokens" not in backbone:
            raise ValueError("head pooling has the network of a cross-encoder")
        network = new_network(backbone["network"], head="labels")
        around = backbone["prefix_length"], backbone["suffix_length"]
        special = SpecialTokens(**backbone["pair"])
        return cls(network, special, around, options.activation, backbone["max_tokens"])

    @override
    def score_joined(self, ids: Ragged, types: Tensor) -> Tensor:
        outputs = apply_activation(self.activation, self.classifier(ids, types))  # (n, labels)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]

    @override
    def in_bf16(self) -> "HeadPooling":
        pooling = copy.deepcopy(self)
        lower_precision(pooling.classifier.network)
        return pooling

    @override
    def truncated_lengths(self, questions: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return longest_first(questions, answers, self.max_tokens - len(self._special_ids))


def longest_first(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Truncate the lengths of the texts of pairs to ``room`` tokens in total, the longer text first.

    This is the strategy ``longest_first`` of the library ``tokenizers``. The shorter text stays complete if
    truncating the longer text suffices. Otherwise each text gets half of ``room``, and the longer text the
    odd token.
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    cut = np.where(short > room, short, np.minimum(long, np.maximum(short, room - short)))
    both_cut = short + cut > room
    short, long = np.where(both_cut, room // 2, short), np.where(both_cut, room // 2 + room % 2, cut)
    swapped = first > second
    return np.where(swapped, long, short), np.where(swapped, short, long)
