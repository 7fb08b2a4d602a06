"""``aptool explain``: the weights of words in a score."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import (
    LOCATION,
    UTF8,
    default_model,
    device_option,
    json_option,
    model_option,
    overwrite_option,
)
from aptool.errors import UsageError, counted, printable

if TYPE_CHECKING:
    import numpy as np

    from aptool.models.explain import Explanation, TextWeights
    from aptool.models.model import LoadedModel
    from aptool.paths import Location

_LISTED = 8  # words below each text
_WIDTH = 100
# Terminals interpret control characters; U+2400 and following are their visible symbols.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_VISIBLE = str.maketrans(_PICTURES | dict.fromkeys(range(0x80, 0xA0), "\ufffd"))


@click.command("explain")
@model_option
@click.option("--question", type=UTF8, metavar="TEXT", help="Text of the question.")
@click.option("--answer", type=UTF8, metavar="TEXT", help="Text of the answer.")
@click.option("--collection", metavar="FOLDER", type=LOCATION, help="Collection that has the pair.")
@click.option("--split", metavar="SPLIT", help="Split of the collection.  [default: test]")
@click.option("--question-id", type=UTF8, metavar="ID", help="Question id.")
@click.option("--answer-id", type=UTF8, metavar="ID", help="Answer id.")
@click.option("--html", metavar="FILE", type=LOCATION, help="Write an HTML page.")
@overwrite_option("html")
@click.option("--matrix", is_flag=True, help="Include the alignment matrix of question and answer words.")
@device_option
@json_option
def explain(
    folder: Location | None,
    question: str | None,
    answer: str | None,
    collection: Location | None,
    split: str | None,
    question_id: str | None,
    answer_id: str | None,
    html: Location | None,
    matrix: bool,
    device: str,
    as_json: bool,
) -> None:
    """Show the weight of each word of a question and an answer in the score of the pair.

    Pass the pair as --question TEXT --answer TEXT, or as --collection FOLDER --question-id ID --answer-id ID.

    Attentive poolings have attention weights. With max pooling, the weight of a word is the share of features
    that are maximal at the word; with token matching, its share of the matches.
    """
    _check_pair(
        {"--question": question, "--answer": answer},
        {"--collection": collection, "--question-id": question_id, "--answer-id": answer_id},
    )
    if split is not None and collection is None:
        raise UsageError(f"--split {split} given without --collection; expected both or neither")
    if html is not None and html.suffix != ".html":
        raise UsageError(f"--html {html}: expected a name ending in .html")
    folder = folder if folder is not None else default_model()

    from aptool.models.hub import find_folder
    from aptool.scoring.systems import BASELINES

    if str(folder) in BASELINES and not folder.exists():
        raise UsageError(f"--model {folder}: a baseline, which has no weights of words; expected a model")
    find_folder(folder)  # before PyTorch is imported

    from aptool.models.device import pick_device
    from aptool.models.explain import explain_pairs
    from aptool.models.model import load_model

    if collection is not None:
        from aptool.data.collection import Collection
        from aptool.evaluation.texts import find_pair

        pair = find_pair(Collection(collection), split or "test", str(question_id), str(answer_id))
    else:
        pair = (str(question), str(answer))
    model = load_model(folder, pick_device(device))
    (explanation,) = explain_pairs(model, [pair], alignment=matrix)
    if matrix and explanation.alignment is None:
        pooling = model.recipe.pooling["type"]
        expected = "attentive or token-matching pooling"
        raise UsageError(f"--matrix: {folder} has {pooling} pooling; expected {expected}")
    if html is not None:
        from aptool.reporting.html import write_page

        names = {"name": model.recipe.preset, "model": printable(str(folder))}
        write_page(html, "explain.html", {"explanation": explanation, **names})
    if as_json:
        import json

        click.echo(json.dumps(_document(explanation, model, folder), indent=2, ensure_ascii=False))
    elif html is None:
        _print(explanation, model)
    else:
        click.echo(html)


def _check_pair(texts: dict[str, Any], ids: dict[str, Any]) -> None:
    """Raise unless all of the options with texts are given, or all of those with ids."""
    by_id = any(value is not None for value in ids.values())
    required, excluded = (ids, texts) if by_id else (texts, ids)
    missing = [name for name, value in required.items() if value is None]
    if missing:
        hint = "" if by_id else ", or --collection, --question-id and --answer-id"
        raise UsageError(f"no {' and no '.join(missing)} given; expected {' and '.join(required)}{hint}")
    extra = [name for name, value in excluded.items() if value is not None]
    if extra:
        raise UsageError(f"{' and '.join(extra)} given with {', '.join(required)}; expected one or the other")


def _document(explanation: Explanation, model: LoadedModel, folder: Location) -> dict[str, Any]:
    document = {
        "model": str(folder),
        "fingerprint": model.fingerprint,
        "preset": model.recipe.preset,
        "score": explanation.score,
        "weights": explanation.kind,
        "question": _text_json(explanation.question),
        "answer": _text_json(explanation.answer),
    }
    if explanation.alignment is not None:
        document["alignment"] = explanation.alignment.tolist()
        document["best_aligned"] = explanation.best_aligned
    return document


def _text_json(text: TextWeights) -> dict[str, Any]:
    words = [
        {
            "word": text.text[begin:end],
            "begin": begin,
            "end": end,
            "weight": weight,
            "unknown": word in text.unknown,
            "window": text.window_text(word),
        }
        for word, ((begin, end), weight) in enumerate(zip(text.spans, text.weights.tolist(), strict=False))
    ]
    return {
        "text": text.text,
        "words": words,
        "truncated": text.truncated,
        "special_tokens": text.special_tokens,
    }


def _print(explanation: Explanation, model: LoadedModel) -> None:
    kind = f"{model.recipe.preset}, {explanation.weights_name}"
    click.echo(f"score {explanation.score:.4f}  ({kind})")
    limits = (model.recipe.text.max_question_tokens, model.recipe.text.max_answer_tokens)
    for name, text, limit in zip(
        ("question", "answer"), (explanation.question, explanation.answer), limits, strict=True
    ):
        click.echo()
        click.echo(f"{name}, {counted(len(text.weights), 'word')}:")
        click.echo(click.wrap_text(visible(text.text), _WIDTH))
        if text.unknown:
            unknown = ", ".join(visible(text.words[word]) or "(no word)" for word in sorted(text.unknown))
            click.echo(f"not in the vocabulary: {unknown}")
        if text.special_tokens:
            click.echo(f"{text.special_tokens:.1%} of the weight is on special tokens")
        if text.truncated:
            words = counted(text.truncated, "word")
            click.echo(f"truncated to {limit} tokens: the last {words} not read")
        click.echo()
        for word in text.strongest(_LISTED):
            shown, around = visible(text.words[word]), visible(text.window_text(word))
            context = f"  in “{around}”" if text.window is not None and around != shown else ""
            click.echo(f"  {text.weights[word]:.4f}  {shown}{context}")
    if explanation.alignment is not None:
        _print_alignment(explanation, explanation.alignment)


def _print_alignment(explanation: Explanation, alignment: np.ndarray) -> None:
    click.echo()
    measure = "the cosine" if explanation.kind == "matches" else "G"
    click.echo(f"best aligned answer word of each question word, with {measure} of the two:")
    words = [visible(word) for word in explanation.question.words[: len(explanation.question.weights)]]
    width = max(map(len, words))
    for word, row, best in zip(words, alignment, explanation.best_aligned, strict=True):
        click.echo(f"  {row[best]:+.4f}  {word.ljust(width)}  {visible(explanation.answer.words[best])}")


def visible(text: str) -> str:
    """Return text on one line, with visible symbols for control characters."""
    return printable(" ".join(text.split()).translate(_VISIBLE))
