"""A folder with small data under the file names of the docs, in which their commands run."""

import gzip
import random
import re
import shutil
import sys
from pathlib import Path

from pages import ROOT

# Programs that do nothing.
PROGRAMS = ("python", "python3", "pip", "make", "docker", "kind", "helm", "kubectl", "ray", "sbatch", "watch")
THINGS = ("bridge", "tower", "garden", "market", "harbor", "temple", "castle", "museum", "library", "square")
PLACES = ("river", "hill", "forest", "lake", "coast", "valley", "island", "road", "station", "gate")


def build(folder: Path) -> None:
    """Fill ``folder`` with data sets in their published layouts, models and scripts."""
    wikiqa_files(folder, "WikiQA")
    wikiqa_files(folder, "functions")
    trecqa_files(folder)
    insuranceqa_files(folder / "insuranceQA" / "V1")
    beir_files(folder / "scifact")
    table_files(folder)
    vector_files(folder)
    hub_models(folder)
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    shutil.copytree(ROOT / "examples" / "faq", folder / "examples" / "faq")
    tables = [*(folder / "jobs").glob("*.toml"), *(folder / "examples").glob("*/*.toml")]
    for table in tables:  # one seed per row, to save time
        text = table.read_text(encoding="utf-8")
        table.write_text(re.sub(r"seeds = \[0, [\d, ]+\]", "seeds = [0]", text), encoding="utf-8")
    write_programs(folder / "bin")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()


def questions(split: str, count: int) -> list[tuple[str, list[tuple[str, int]]]]:
    """Synthetic questions with labelled answers; the relevant answer shares a word with its question."""
    rng = random.Random(split)
    examples = []
    for number in range(count):
        thing, location = rng.choice(THINGS), rng.choice(PLACES)
        distractors = rng.sample([name for name in THINGS if name != thing], 4)
        answers = [(f"The {thing} {number} is near the {location} .", 1)]
        answers += [(f"The {other} stands by the {rng.choice(PLACES)} .", 0) for other in distractors]
        rng.shuffle(answers)
        examples.append((f"where is the {thing} {number} ?", answers))
    return examples


def wikiqa_files(folder: Path, name: str) -> None:
    """NAME-train.tsv, NAME-dev.tsv and NAME-test.tsv in the layout of WikiQA."""
    header = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel"
    for split, count in (("train", 40), ("dev", 20), ("test", 20)):
        rows = [header]
        for number, (question, answers) in enumerate(questions(f"{name} {split}", count)):
            for index, (text, label) in enumerate(answers):
                question_id, answer_id = f"Q{split}{number}", f"D{split}{number}-{index}"
                rows.append(f"{question_id}\t{question}\tD\tTitle\t{answer_id}\t{text}\t{label}")
        (folder / f"{name}-{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def trecqa_files(folder: Path) -> None:
    """Folders train-all, clean-dev and clean-test with a.toks, b.toks, id.txt and sim.txt."""
    for name, count in (("train-all", 40), ("clean-dev", 20), ("clean-test", 20)):
        (folder / name).mkdir()
        columns: dict[str, list[str]] = {"id.txt": [], "a.toks": [], "b.toks": [], "sim.txt": []}
        for number, (question, answers) in enumerate(questions(name, count)):
            for text, label in answers:
                for column, value in zip(columns.values(), (number, question, text, label), strict=True):
                    column.append(str(value))
        for file, lines in columns.items():
            (folder / name / file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def insuranceqa_files(folder: Path) -> None:
    """The files of InsuranceQA V1, with indices instead of words and answers."""
    folder.mkdir(parents=True)
    words = {word: f"idx_{number}" for number, word in enumerate((*THINGS, *PLACES, "the"), 1)}
    answers = [(thing, location) for thing in THINGS for location in PLACES]
    lines = [f"{number}\t{words[a]} {words[b]}" for number, (a, b) in enumerate(answers, 1)]
    train, dev = [], []
    for number, (thing, _) in enumerate(answers, 1):
        train.append(f"{words['the']} {words[thing]}\t{number}")
        pool = " ".join(str((number + step) % len(answers) + 1) for step in range(-1, 4))
        dev.append(f"{number}\t{words[thing]} {words['the']}\t{pool}")
    files = {
        "vocabulary": [f"{token}\t{word}" for word, token in words.items()],
        "answers.label.token_idx": lines,
        "question.train.token_idx.label": train,
        "question.dev.label.token_idx.pool": dev,
    }
    for name, content in files.items():
        (folder / name).write_text("\n".join(content) + "\n", encoding="utf-8")


def beir_files(folder: Path) -> None:
    """A folder in the layout of BEIR: corpus.jsonl, queries.jsonl, qrels/*.tsv; and a run beside it."""
    (folder / "qrels").mkdir(parents=True)
    corpus, queries, qrels, run = [], [], ["query-id\tcorpus-id\tscore"], []
    for number, (question, answers) in enumerate(questions("beir", 20)):
        queries.append(f'{{"_id": "q{number}", "text": "{question}"}}')
        for index, (text, label) in enumerate(answers):
            name = f"d{number}-{index}"
            corpus.append(f'{{"_id": "{name}", "title": "", "text": "{text}"}}')
            run.append(f"q{number} Q0 {name} {index + 1} {5 - index} bm25\n")
            if label:
                qrels.append(f"q{number}\t{name}\t{label}")
    for name, lines in (("corpus.jsonl", corpus), ("queries.jsonl", queries), ("qrels/test.tsv", qrels)):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    folder.with_suffix(".run").write_text("".join(run), encoding="utf-8")


def table_files(folder: Path) -> None:
    """faq.csv: a question, an answer and a label. tickets.csv: a question and its answer."""
    tickets = ["Number;Subject;Reply"]
    for number, (question, answers) in enumerate(questions("tickets", 40), 1):
        reply = next(text for text, label in answers if label)
        tickets.append(f"{number};{question};Grüße, {reply}")
    (folder / "tickets.csv").write_text("\n".join(tickets) + "\n", encoding="cp1252")
    rows = ["question,answer,label"]
    for question, answers in questions("faq", 10):
        rows += [f'"{question}","{text}",{label}' for text, label in answers]
    (folder / "faq.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def hub_models(folder: Path) -> None:
    """Tiny models in local folders with the hub names of the docs."""
    from networks import colbert, cross_encoder, write_network

    network = write_network(folder / "sentence-transformers" / "all-MiniLM-L6-v2", positions=512)
    cross_encoder(network, folder / "cross-encoder" / "ms-marco-MiniLM-L6-v2", 1)
    colbert(network, folder / "lightonai" / "GTE-ModernColBERT-v1")


def vector_files(folder: Path) -> None:
    """Word vectors in the binary layout of word2vec, compressed."""
    import numpy as np

    words = (*THINGS, *PLACES, "the", "is", "where", "near")
    values = np.random.default_rng(0).normal(size=(len(words), 16)).astype("<f4")
    content = f"{len(words)} 16\n".encode()
    content += b"".join(word.encode() + b" " + row.tobytes() for word, row in zip(words, values, strict=True))
    (folder / "GoogleNews-vectors-negative300.bin.gz").write_bytes(gzip.compress(content))


def write_programs(folder: Path) -> None:
    """Scripts for PATH: aptool, and the programs that do nothing."""
    folder.mkdir()
    commands = {"aptool": f'exec "{sys.executable}" -m aptool "$@"', **dict.fromkeys(PROGRAMS, "exit 0")}
    for name, command in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
