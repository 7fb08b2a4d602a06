"""Speed of causal language models as rerankers, compared with ``CrossEncoder`` of sentence-transformers.

    python -m bench.causal [--layers 14] [--size 768] [--pairs 200] [--pool 50] [--repeats 3] [--device cuda]

Makes a random Qwen3 with a template of the length of Qwen3-Reranker's, and scores the same texts with both
libraries alternately, from texts to scores in fp32. The system "aptool, no shared prefix" reads the question
once per pair. Candidates have the lengths of WikiQA's. Needs ``sentence-transformers``.
"""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aptool
from aptool.scoring.ranker_scorer import RankerScorer
from bench.common import alternate, benchmark_parser, speed_of, write_results
from bench.rival import texts

TEMPLATE = """{%- macro content(role) -%}
{{ messages | selectattr('role', 'equalto', role) | map(attribute='content') | first }}
{%- endmacro -%}
<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. \
Note that the answer can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: Given a web search query, retrieve relevant passages that answer the query
<Query>: {{ content('query') }}
<Document>: {{ content('document') }}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""


def made_words(count: int, seed: int) -> list[str]:
    """Return distinct made-up words of two to four syllables."""
    generator = np.random.default_rng(seed)
    syllables = [first + second for first in "bdfgklmnprstvz" for second in ("a", "e", "i", "o", "un", "ar")]
    words = {"".join(generator.choice(syllables, generator.integers(2, 5))) for _ in range(count)}
    return sorted(words)


def write_reranker(folder: Path, layers: int, size: int, words: list[str]) -> int:
    """Write a random Qwen3 in the layout of sentence-transformers; return its number of parameters."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=8000,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*(f"a {word}" for word in words), *[TEMPLATE, "yes no"] * 20], trainer)
    made: Any = PreTrainedTokenizerFast
    fast = made(tokenizer_object=tokenizer, pad_token=special[0], eos_token=special[2], model_max_length=512)
    fast.chat_template = TEMPLATE
    torch.manual_seed(0)
    heads = max(1, size // 64)
    config = Qwen3Config(
        vocab_size=len(fast),
        hidden_size=size,
        intermediate_size=size * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=size // heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    network: Any = Qwen3ForCausalLM(config)
    network.save_pretrained(folder / "network")
    fast.save_pretrained(folder / "network")
    yes, no = (fast.encode(word, add_special_tokens=False)[0] for word in ("yes", "no"))
    modules = [Transformer(str(folder / "network"), transformer_task="text-generation"), LogitScore(yes, no)]
    CrossEncoder(modules=modules, device="cpu").save_pretrained(str(folder / "model"))
    return sum(weights.numel() for weights in network.parameters())


def systems(
    folder: Path, questions: list[str], answers: list[str], pair_question: np.ndarray, device: str
) -> dict[str, Callable[[], np.ndarray]]:
    """Functions that score the pairs from texts; pair i is question ``pair_question[i]`` with answer i."""
    from sentence_transformers import CrossEncoder

    loaded = aptool.load(folder, device=device)
    tokenizer, limits = loaded._loaded.tokenizer, loaded._loaded.recipe.text
    rival = CrossEncoder(str(folder), device=device, local_files_only=True)
    pairs = [(questions[q], answer) for q, answer in zip(pair_question, answers, strict=True)]
    rows = np.arange(len(answers))

    def score(shared: bool) -> np.ndarray:
        question_tokens = tokenizer.encode(questions, limits.max_question_tokens, "question")
        answer_tokens = tokenizer.encode(answers, limits.max_answer_tokens)
        scorer = RankerScorer(loaded._loaded.ranker, device=device)
        if shared:
            return scorer.score(question_tokens, answer_tokens, pair_question, rows)
        return scorer.score(question_tokens.take(pair_question), answer_tokens, rows, rows)

    def score_rival() -> np.ndarray:
        scores: np.ndarray = rival.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
        return scores

    return {
        "sentence-transformers": score_rival,
        "aptool": lambda: score(True),
        "aptool, no shared prefix": lambda: score(False),
    }


def run(
    folder: Path, parameters: int, words: list[str], pairs: int, pool: int, repeats: int, device: str
) -> list[Any]:
    """Print a line per system; return the results."""
    pools = max(1, pairs // pool)
    pair_question = np.sort(np.arange(pairs) % pools)
    questions, answers = texts(words, pools, 7, 0.35, 0), texts(words, pairs, 25, 0.5, 1)
    made = systems(folder, questions, answers, pair_question, device)
    seconds, scores = alternate(made, repeats, warm_up=1)
    base = "sentence-transformers"
    print(
        f"{parameters:,} parameters, {pairs:,} pairs in {pools} pools, {device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}, medians of {repeats}"
    )
    print("system                      pairs/s   speed (min to max)   difference of scores")
    rows = []
    for name, measured in seconds.items():
        row = {
            "system": name,
            "parameters": parameters,
            "pairs": pairs,
            "pools": pools,
            "pairs_per_second": pairs / statistics.median(measured),
            **speed_of(seconds, name, base),
            "largest_difference": float(np.abs(scores[name] - scores[base]).max()),
        }
        rows.append(row)
        speed = f"{row['speed']:.2f} ({row['speed_min']:.2f} to {row['speed_max']:.2f})"
        rate, difference = row["pairs_per_second"], row["largest_difference"]
        print(f"{name:<26} {rate:>8.1f}   {speed:<20} {difference:.1e}", flush=True)
    return rows


def main() -> None:
    """Print the table."""
    parser = benchmark_parser(__doc__, 3)
    parser.add_argument("--layers", type=int, default=14, help="layers of the network (default 14)")
    parser.add_argument("--size", type=int, default=768, help="features of a state (default 768)")
    parser.add_argument("--pairs", type=int, default=200, help="number of pairs (default 200)")
    parser.add_argument("--pool", type=int, default=50, help="candidates per question (default 50)")
    parser.add_argument("--device", default="cpu", help="(default cpu)")
    options = parser.parse_args()
    words = made_words(4000, 0)
    with tempfile.TemporaryDirectory() as folder:
        parameters = write_reranker(Path(folder), options.layers, options.size, words)
        model = Path(folder) / "model"
        sizes = options.pairs, options.pool, options.repeats
        results = run(model, parameters, words, *sizes, options.device)
    write_results(results, options)


if __name__ == "__main__":
    main()
