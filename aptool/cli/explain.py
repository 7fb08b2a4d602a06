"""``aptool explain``: the weights of words in a score."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import (
    DEFAULT_MODEL,
    LOCATION,
    default_model,
    device_option,
    json_option,
    overwrite_flag,
)
from aptool.errors import UsageError, counted, printable

if TYPE_CHECKING:
    from aptool.models.explain import Explanation, TextWeights
    from aptool.models.model import LoadedModel
    from aptool.paths import Location

_LISTED = 8  # words below each text
_WIDTH = 100


@click.command("explain")
@click.option(
    "--model",
    "folder",
    metavar="MODEL",
    type=LOCATION,
    help=f"Model folder or Hugging Face name (ORG/NAME).  [default: {DEFAULT_MODEL}]",
)
@click.option("--question", metavar="TEXT", required=True, help="Text of the question.")
@click.option("--answer", metavar="TEXT", required=True, help="Text of the answer.")
@click.option("--html", metavar="FILE", type=LOCATION, help="Write an HTML page.")
@overwrite_flag
@device_option
@json_option
def explain(
    folder: Location | None,
    question: str,
    answer: str,
    html: Location | None,
    overwrite: bool,
    device: str,
    as_json: bool,
) -> None:
    """Show the weight of each word of a question and an answer in the score of the pair.

    Attentive poolings have attention weights. With max pooling, the weight of a word is the share of features
    that are maximal at the word; with token matching, its share of the matches.
    """
    from aptool.outputs import check_output

    if html is not None:
        if html.suffix != ".html":
            raise UsageError(f"--html {html}: expected a name ending in .html")
        check_output(html, overwrite=overwrite)
    folder = folder if folder is not None else default_model()

    from aptool.models.hub import find_folder
    from aptool.scoring.systems import BASELINES

    if str(folder) in BASELINES and not folder.exists():
        raise UsageError(f"--model {folder}: a baseline, which has no weights of words; expected a model")
    find_folder(folder)  # before PyTorch is imported

    from aptool.models.device import pick_device
    from aptool.models.explain import explain_pairs
    from aptool.models.model import load_model

    model = load_model(folder, pick_device(device))
    (explanation,) = explain_pairs(model, [(question, answer)])
    if html is not None:
        from aptool.reporting.html import write_page

        names = {"name": model.recipe.preset, "model": printable(str(folder))}
        write_page(html, "explain.html", {"explanation": explanation, **names})
    if as_json:
        click.echo(json.dumps(_document(explanation, model, folder), indent=2, ensure_ascii=False))
    elif html is None:
        _print(explanation, model)
    else:
        click.echo(html)


def _document(explanation: Explanation, model: LoadedModel, folder: Location) -> dict[str, Any]:
    return {
        "model": str(folder),
        "fingerprint": model.fingerprint,
        "preset": model.recipe.preset,
        "score": explanation.score,
        "weights": explanation.kind,
        "question": _text_json(explanation.question),
        "answer": _text_json(explanation.answer),
    }


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


def visible(text: str) -> str:
    """Return text on one line, with control characters escaped."""
    return printable(" ".join(text.split()))
