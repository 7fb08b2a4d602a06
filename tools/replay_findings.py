"""Replay reported faults and print a table: ``python tools/replay_findings.py FOLDER [CASE...]``.

``FOLDER`` has a folder per case, such as ``22-combining-marks``, with its inputs. A case passes if aptool
computes the expected value, or ends in one line that names the cause. A checkpoint is compared with the
scores that its library computed (``expected.json``). The program exits with 1 if a case fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TIMEOUT = 240
TOLERANCE = 1e-4  # of ``expected.json``, whose scores are rounded
SIXTEEN_BITS = 5e-3  # of a library that computes in bfloat16, as docs/checkpoints.md says

LOAD = """
import json, sys, aptool
pairs = [tuple(pair) for pair in json.load(open(sys.argv[1] + "/pairs.json"))]
try:
    scores = [float(score) for score in aptool.load(sys.argv[1]).score(pairs)]
except aptool.AptoolError as error:
    print("refused:", error)
else:
    expected = json.load(open(sys.argv[1] + "/expected.json"))
    tolerance = float(sys.argv[2]) * max(1.0, max(abs(score) for score in expected))
    difference = max(abs(score - other) for score, other in zip(scores, expected, strict=True))
    print("equal" if difference <= tolerance else "DIFFERENT", f"{difference:.1e}")
"""
IMPORT = "aptool data import"
SCORE = "aptool score OUT/test.pools.parquet --model bm25 --output x.run"
EVAL = f"{SCORE}; aptool eval x.run --qrels OUT/test.qrels"

# Programs of the cases that use the library.
TABLE_OF_PAIRS = """
import csv, json, sys
writer = csv.writer(sys.stdout)
writer.writerows([["question", "answer", "label"], *([q, a, 1] for q, a in json.load(open("n1/pairs.json")))])
"""
SHARED_ANSWER = """question,answer,label
who is it,the bear,1
where is it,the bear,1"""
FRAME = """
import pandas as pd, aptool
frame = pd.DataFrame({"qid": ["1"], "question": ["a"], "docno": ["2"], "answer": ["b"]})
print(aptool.score(frame, "bm25", "x.run").pairs, "pair")
"""
COMPARISON = """
import aptool
qrels = {"1": {"a": 1, "b": 0}, "2": {"a": 0, "b": 1}}
first = {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 2.0, "b": 1.0}}
second = {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 1.0, "b": 2.0}}
print(aptool.compare(first, [second], qrels, ["MAP"]).to_pandas().columns.tolist())
"""
SAVED_RUN = """
import aptool
aptool.Run({"q": {"a": 1.0}}).save("~/x.run")
"""


class Case(NamedTuple):
    """A command in a copy of the case's folder; its output, stderr included, must match a pattern."""

    folder: str
    command: str
    expected: str
    absent: str = r"Traceback"


def program(source: str) -> str:
    """Return the command that runs a program."""
    return f"python -W ignore -c '{source}'"


def pools_scored(model: str, pairs: str) -> str:
    """Return the command that scores a table of pairs with a model."""
    imported = f"{IMPORT} csv test={pairs} --output P >/dev/null 2>&1"
    return f"{imported}; aptool score P/test.pools.parquet --model {model} --output x.run"


CASES = [
    Case("09", pools_scored("st_lora", "../10-other-heads/pairs.csv"), r"adapter"),
    Case("10", pools_scored("monot5", "pairs.csv"), r"T5ForConditionalGeneration|architectures"),
    Case("10", pools_scored("mlm", "pairs.csv"), r"ForMaskedLM|architectures"),
    Case("10", pools_scored("causal", "pairs.csv"), r"causal-lm"),
    Case("11", pools_scored("qnli", "pairs.csv") + " && head -1 x.run", r"id2label|Q0 \S+ 1 "),
    *(
        Case(
            "22",
            f"{IMPORT} csv test={code}.csv --output OUT; {EVAL} --measures MAP",
            r"MAP\s+1\.0000|1\.0000",
        )
        for code in ("hi", "ta", "ar")
    ),
    Case("23", f"{IMPORT} beir . --output OUT; {EVAL} --measures nDCG@10", r"1\.0000"),
    Case(
        "24",
        "aptool eval a.run --qrels a.qrels --measures MAP --level 3",
        r"0?\.5924",
        "no order can be wrong",
    ),
    Case(
        "25",
        f"{program(TABLE_OF_PAIRS)} > pairs.csv; {pools_scored('n1', 'pairs.csv')}",
        r"one score for all|\d [1-9]\d",
    ),
    Case(
        "26",
        f"{IMPORT} csv test=pairs.csv --question-id qid --answer-id aid --output OUT",
        r"no model can tell",
    ),
    Case("27", "aptool eval a.run --qrels a.qrels --measures MAP", r"(?s)0?\.3333.*ranks|ranks.*0?\.3333"),
    Case("28", f"{IMPORT} csv train=blank.csv --output OUT", r"train\s+1\s|differ|joined"),
    Case("28", f"{IMPORT} csv train=nfc.csv --output OUT", r"train\s+1\s|differ|joined"),
    Case("29", f"{IMPORT} csv train=float.csv --output OUT", r"train\s+\d+\s+\d+\s+[1-9]"),
    *(
        Case(
            "29",
            program(f'import aptool; aptool.Collection.from_rows(dict(train="{name}.parquet"), "C")')
            + "; cat C/train.qrels",
            r"(?m) 1$|decimal|label",
        )
        for name in ("decimal", "labelstr_float")
    ),
    Case(
        "30",
        f"mkdir -p h/data; cp l_structlists.parquet h/data/train-0.parquet; {IMPORT} hf h --output OUT",
        r"train\s+\d+",
    ),
    Case("31", f"{IMPORT} hf . --answer sentence --output OUT; cat OUT/*.qrels", r"entailment|label"),
    Case(
        "32",
        f"echo '{SHARED_ANSWER}' > p.csv; {IMPORT} csv test=p.csv --output pcol; "
        "python -W ignore moto_keys.py 2>&1 | grep br.1",
        r"'br\[1\]' 0 .*key ok",
    ),
    Case("33", "aptool eval r.run.bz2 --qrels ok.qrels", r"MAP|bz2|bzip2", "NUL"),
    Case("33", "aptool eval r.json --qrels ok.qrels", r"MAP|JSON"),
    Case("33", "aptool eval ok.run --qrels beir.tsv", r"MAP|BEIR"),
    Case("34", "aptool compare a.run b.run --qrels a.qrels --measures MAP", r"1\.0000", r"3\.85"),
    Case("35", "aptool eval a.run --qrels a.qrels --measures MAP", r"one score|same score|equal scores"),
    Case("55", "aptool eval b.run --qrels b.qrels --measures ERR@2,nERR@2", r"0?\.5073|expected"),
    Case("59", "aptool eval a.run --qrels a.qrels --measures Judged@2", r"1\.0000"),
    Case("61", f"{IMPORT} csv train=tickets.csv --output out", r"delimiter|written: out"),
    Case("62", f"{IMPORT} csv train=t.xlsx --output out", r"extra|\[excel\]|written: out"),
    Case("63", f"{IMPORT} tsv train=t.tsv --output out", r"UTF-16|written: out", "NUL"),
    Case("64", f"{IMPORT} trecqa dev=dev --output out", r"question"),
    Case(
        "65",
        f"{IMPORT} pyserini first.trec --corpus corpus.jsonl --queries queries.jsonl --qrels test.qrels"
        " --output out",
        r"judged",
    ),
    Case(
        "66",
        f"{IMPORT} csv dev=t.csv test=t.csv --output out >/dev/null 2>&1; "
        f"{IMPORT} csv dev=t.csv --output out; ls out",
        r"(?s)overwrite.*test\.pools\.parquet",
    ),
    Case("67", f"{program(FRAME)} 2>&1 | tail -1", r"1 pair|from_pandas|from_rows|DataFrame", r"file not"),
    Case("68", program(COMPARISON), r"difference.*p"),
    Case(
        "69",
        f"mkdir home; HOME=$PWD/home {program(SAVED_RUN)}; ls . home",
        r"x\.run|expected",
        r"(?m)^~$",
    ),
]
ATTACKS = {
    "01": r"(?m)^SAME$",
    "02": r"SAME|aptool: ",
    "03": r"(?m)^SAME$",
    "04": r"SAME\s*\Z|aptool: ",
    "07": r"second rc=1",
    # An overloaded server is asked eight times, which takes longer than the limit of the script.
    "08": r"(?s)\A(?!.*(TRACEBACK|KEY-LEAK|\n(?!ra:)[^\n]*TIMEOUT)).*\S",
    "09": r"(?s)\A(?!.*(DIFFERENT|Error)).*\S",
    "11": r"(?s)sparse.*empties",
}


def run(command: str, folder: Path) -> str:
    """Return the output of a command in a folder; a command that does not end says so."""
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "APTOOL_VENV": str(bin_folder.parent),
    }
    try:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Traceback: no end after {TIMEOUT} seconds"
    return done.stdout


def outcomes(source: Path, names: list[str]) -> Iterator[tuple[str, bool, str]]:
    """Yield the name of each case, whether it passes, and the end of its output."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "findings")
        shutil.copytree(source, copy)
        subprocess.run(["chmod", "-R", "u+w", str(copy)], check=True)
        folders = {path.name[:2]: path for path in sorted(copy.iterdir()) if path.name[:2].isdigit()}
        for expected in sorted(copy.glob("*/*/expected.json")):
            name = str(expected.parent.relative_to(copy))
            if not names or any(name.startswith(start) for start in names):
                tolerance = SIXTEEN_BITS if name.startswith("21") else TOLERANCE
                command = f"python -W ignore -c '{LOAD}' {expected.parent} {tolerance} 2>&1 | tail -1"
                output = run(command, copy)
                yield name, output.startswith(("equal", "refused")), output
        for case in CASES:
            if case.folder in folders and (not names or any(case.folder == start[:2] for start in names)):
                output = run(case.command, folders[case.folder])
                passes = bool(re.search(case.expected, output)) and not re.search(case.absent, output)
                yield f"{folders[case.folder].name}: {case.command}"[:90], passes, output
        for path in sorted(copy.glob("attack/*/run.sh")):
            name = f"attack/{path.parent.name}"
            if not names or any(name.startswith(start) for start in names):
                output = run(f"bash {path}", path.parent)
                yield name, bool(re.search(ATTACKS.get(path.parent.name[:2], "SAME"), output)), output


def main() -> None:
    """Print a line per case, and the output of the cases that fail."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    failed = total = 0
    for name, passes, output in outcomes(Path(sys.argv[1]), sys.argv[2:]):
        total += 1
        failed += not passes
        last = output.strip().splitlines()[-1:] or [""]
        print("ok    " if passes else "FAILED", name, "|", last[0][:160], flush=True)
        if not passes:
            print("\n".join("       " + line[:300] for line in output.strip().splitlines()[-6:]), flush=True)
    print(f"{total} cases, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
