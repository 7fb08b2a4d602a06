"""``aptool explain``: where a model looked when it scored an answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.defaults import default_model
from aptool.cli.parameters import UTF8
from aptool.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console
    from rich.text import Text

    from aptool.models.model import Model
    from aptool.reporting.heatmap import HeatMap, Side

# Windows that are listed below the texts.
_LISTED = 8
_PLAIN_WIDTH = 100
# A control character would be obeyed by the terminal; U+2400 and on are pictures of them.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
_VISIBLE = str.maketrans(_PICTURES | dict.fromkeys(range(0x80, 0xA0), "\ufffd"))


@click.command("explain")
@click.option(
    "--model", "folder", type=click.Path(path_type=Path), help="A model folder.  [default: models/ap-cnn]"
)
@click.option("--question", type=UTF8, metavar="TEXT", help="A question.")
@click.option("--answer", type=UTF8, metavar="TEXT", help="An answer to it.")
@click.option(
    "--collection", metavar="FOLDER", type=click.Path(path_type=Path), help="Take the pair from a collection."
)
@click.option("--split", default="test", show_default=True, help="The collection's split.")
@click.option("--question-id", type=UTF8, metavar="ID", help="A question of the split.")
@click.option("--answer-id", type=UTF8, metavar="ID", help="A candidate of its pool.")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Write a page.")
@click.option("--png", metavar="FILE", type=click.Path(path_type=Path), help="Write a picture.")
@click.option("--matrix", is_flag=True, help="Add the alignment G of every word with every word.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in full precision.")
def explain(
    folder: Path | None,
    question: str | None,
    answer: str | None,
    collection: Path | None,
    split: str,
    question_id: str | None,
    answer_id: str | None,
    html: Path | None,
    png: Path | None,
    matrix: bool,
    as_json: bool,
) -> None:
    """Show how much each word of a question and of an answer counted in the score of the pair.

    Give the pair as --question TEXT --answer TEXT, or as --collection FOLDER --question-id ID --answer-id ID.
    Attentive pooling shows its attention weights, max pooling the share of features that each word's state
    wins. The weight of a word is that of the window around it.
    """
    _check_pair(question, answer, collection, question_id, answer_id)
    folder = folder if folder is not None else default_model()

    from aptool.formats.atomic import check_writable
    from aptool.models.model import load_model
    from aptool.reporting.heatmap import ATTENTION, heat_maps

    for path in (html, png):
        if path is not None:
            check_writable(path)
    if collection is not None:
        from aptool.formats.collection import Collection
        from aptool.reporting.pairs import find_pair

        pair = find_pair(Collection(collection), split, str(question_id), str(answer_id))
    else:
        pair = (str(question), str(answer))
    model = load_model(folder)
    found = heat_maps(model, [pair], alignment=matrix)[0]
    if matrix and found.kind != ATTENTION:
        raise UsageError(f"--matrix: {folder} pools by {model.recipe.pooling['type']}, which aligns no words")
    if html is not None:
        from aptool.reporting.html import write_explanation

        write_explanation(html, found, model.recipe.preset, str(folder))
    if png is not None:
        from aptool.reporting.heatmap_png import write_png

        write_png(png, found, model.recipe.preset)
    if as_json:
        import json

        click.echo(json.dumps(_document(found, model, folder), indent=2, ensure_ascii=False))
    elif html is None and png is None:
        _print(found, model)
    else:
        click.echo("\n".join(str(path) for path in (html, png) if path is not None))


def _check_pair(
    question: str | None,
    answer: str | None,
    collection: Path | None,
    question_id: str | None,
    answer_id: str | None,
) -> None:
    texts = {"--question": question, "--answer": answer}
    ids = {"--collection": collection, "--question-id": question_id, "--answer-id": answer_id}
    wanted, others = (ids, texts) if any(value is not None for value in ids.values()) else (texts, ids)
    missing = [name for name, value in wanted.items() if value is None]
    if missing:
        hint = "" if wanted is ids else ", or --collection, --question-id and --answer-id"
        raise UsageError(f"no {' and no '.join(missing)} given: expected {' and '.join(wanted)}{hint}")
    extra = [name for name, value in others.items() if value is not None]
    if extra:
        raise UsageError(f"{' and '.join(extra)} given beside {', '.join(wanted)}: expected one or the other")


def _document(found: HeatMap, model: Model, folder: Path) -> dict[str, Any]:
    document = {
        "model": str(folder),
        "fingerprint": model.fingerprint,
        "preset": model.recipe.preset,
        "score": found.score,
        "weights": found.kind,
        "question": _side(found.question),
        "answer": _side(found.answer),
    }
    if found.alignment is not None:
        document["alignment"] = found.alignment.tolist()
    return document


def _side(side: Side) -> dict[str, Any]:
    words = [
        {
            "word": side.text[begin:end],
            "begin": begin,
            "end": end,
            "weight": weight,
            "unknown": place in side.unknown,
            "window": side.window_text(place),
        }
        for place, ((begin, end), weight) in enumerate(zip(side.spans, side.weights.tolist(), strict=False))
    ]
    return {"text": side.text, "words": words, "cut": side.cut, "marks": side.marks}


def _print(found: HeatMap, model: Model) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    what = {"attention": "attention weights", "maxima": "shares of features won"}[found.kind]
    _line(console, f"score {found.score:.4f}  ({model.recipe.preset}, {what})")
    limits = (model.recipe.text.max_question_tokens, model.recipe.text.max_answer_tokens)
    for name, side, limit in zip(("question", "answer"), (found.question, found.answer), limits, strict=True):
        _line(console, "")
        _line(console, f"{name}, {_count(len(side.weights), 'word')}:")
        console.print(coloured(side))
        if side.unknown:
            unknown = ", ".join(visible(side.words[place]) or "(no word)" for place in sorted(side.unknown))
            _line(console, f"not in the model's vocabulary: {unknown}")
        if side.marks:
            _line(console, f"{side.marks:.1%} of the weight is on the marks around the text")
        if side.cut:
            _line(console, f"the last {_count(side.cut, 'word')}, behind the limit of {limit}, not read")
        _line(console, "")
        for place in side.strongest(_LISTED):
            word, around = visible(side.words[place]), visible(side.window_text(place))
            context = f"  in “{around}”" if side.window.left is not None and around != word else ""
            _line(console, f"  {side.weights[place]:.4f}  {word}{context}")
    if found.alignment is not None:
        _print_alignment(console, found, found.alignment)


def _print_alignment(console: Console, found: HeatMap, alignment: np.ndarray) -> None:
    _line(console, "")
    _line(console, "each question word with the answer word that it aligns best with, and G of the two:")
    words = [visible(word) for word in found.question.words[: len(found.question.weights)]]
    width = max(map(len, words))
    for word, row in zip(words, alignment, strict=True):
        best = int(row.argmax())
        _line(console, f"  {row[best]:+.4f}  {word.ljust(width)}  {visible(found.answer.words[best])}")


def _line(console: Console, line: str) -> None:
    """Text as it is: a bracket in it is no markup."""
    console.print(line, markup=False, emoji=False, soft_wrap=True)


def visible(text: str) -> str:
    """Text for a terminal, on one line: control characters are shown and not obeyed."""
    return " ".join(text.split()).translate(_VISIBLE)


def coloured(side: Side) -> Text:
    """The text with the colour of each word's weight behind it; unknown words underlined, cut words dim."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    shown, intensities, end = Text(), side.intensities, 0
    for place, (begin, stop) in enumerate(side.spans):
        shown.append(_between(side.text[end:begin]))
        word, end = visible(side.text[begin:stop]), stop
        if place >= len(intensities):
            shown.append(word, Style(dim=True))
            continue
        strength = float(intensities[place])
        ground, ink = _shade(strength)
        colour = (
            Style(bgcolor=Color.from_rgb(*ground), color=Color.from_rgb(*ink)) if strength > 0.05 else None
        )
        shown.append(word, Style(underline=place in side.unknown, bold=strength > 0.5) + colour)
    return shown


def _between(gap: str) -> str:
    return " " if any(character.isspace() for character in gap) else ""


def _shade(strength: float) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Background and ink of a weight, from pale to deep orange."""
    pale, deep = (255, 237, 213), (194, 65, 12)
    red, green, blue = (round(p + (d - p) * strength) for p, d in zip(pale, deep, strict=True))
    return (red, green, blue), ((255, 255, 255) if strength > 0.7 else (28, 25, 23))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
