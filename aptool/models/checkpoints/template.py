"""Chat templates of rerankers: from a question and a document to the tokens that a language model reads.

Question and document are the messages of the roles ``query`` and ``document``, as in sentence-transformers.
The rendered text is split between the two, at a position where no token joins them. So each text is tokenized
once, within its part of the template, and the tokens of both parts are the tokens of the rendered pair.
Templates are not trusted: they are rendered in a process with limits.
"""

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from typing_extensions import override

from aptool.errors import InputError
from aptool.models.checkpoints.keys import UnsupportedError
from aptool.text.subwords import SubwordTokenizer
from aptool.text.tokenizer import Role, Tokens, join_rows, truncate
from aptool.text.tokenizer_file import encode_texts
from aptool.version import check_installed

MOST_CHARACTERS = 1 << 16

_PROCESS = Path(__file__).with_name("template_process.py")

# Placeholders of question and document, which no function of a template changes.
_QUESTION, _DOCUMENT = "\ue000", "\ue001"

_EXPECTED = "a template that renders the messages of the roles query and document, each once"

# Ends of a question and beginnings of a document that tokens may join with the text between them.
_ENDS = ("a", "a?", "1", "a\u00e9", "a ", "a\n")
_BEGINNINGS = ("a", "1", "?a", "\u00e9", "A", " a", "\n a")

# Two texts without a common last token, and short texts that tokens may join with the template.
_PROBES = ("0", "1 2 3 4")
_SHORT = ("", "0", "?", "a")


def render(source: str, where: str, variables: Sequence[dict[str, Any]]) -> list[str]:
    """Render a template once for each set of variables; raise an `InputError` that names ``where``."""
    check_installed("jinja2", purpose="a chat template", extra="transformers")
    if len(source) > MOST_CHARACTERS:
        problem = f"a template of {len(source):,} characters"
        raise InputError(where, problem=problem, expected=f"at most {MOST_CHARACTERS:,}")
    return _renderer(os.getpid(), source, where).render(variables)  # pipes are not shared with a fork


class _Renderer:
    """The process of a template. It ends with this object, and when it exceeds its limits."""

    def __init__(self, source: str, where: str) -> None:
        self._source, self._where = source, where
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, variables: Sequence[dict[str, Any]]) -> list[str]:
        """Render the template; threads take turns."""
        with self._lock:
            if self._process is None:
                self._process = _start()
                weakref.finalize(self, _end, self._process)
                self._ask(self._process, self._source, "a template of jinja2")
            return self._ask(self._process, list(variables), "a chat template that renders a pair")

    def _ask(self, process: "subprocess.Popen[bytes]", request: Any, expected: str) -> list[str]:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None
        line = b""
        try:
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
            line = answers.readline()
        except BrokenPipeError:
            pass
        finally:
            if not line:  # also after an interrupt, when the next line would be the answer to this request
                process.kill()
                _end(process)
                self._process = None
        answer = json.loads(line) if line else "more CPU time or memory than its text needs"
        if isinstance(answer, str):
            raise InputError(self._where, problem=answer, expected=expected)
        texts: list[str] = answer
        return texts


@lru_cache(maxsize=8)
def _renderer(process: int, source: str, where: str) -> _Renderer:
    return _Renderer(source, where)


def _start() -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(
        [sys.executable, str(_PROCESS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # Ctrl-C is for this process only
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()
    process.wait()


class PairTemplate(NamedTuple):
    """A chat template with its variables."""

    source: str
    variables: dict[str, Any]  # passed to the template with the messages
    structured: bool  # contents are lists of parts with a type, not texts
    system: str  # content of the system message; empty without one
    where: str  # the file of the template, for errors

    def render(self, pairs: Sequence[tuple[str, str]]) -> list[str]:
        """Render pairs of question and document; raise an `InputError` if the template cannot be rendered."""
        defaults = {"tools": None, "documents": None, "add_generation_prompt": False}
        variables = [{**defaults, **self.variables, "messages": self._messages(*pair)} for pair in pairs]
        return render(self.source, self.where, variables)

    def _messages(self, question: str, document: str) -> list[dict[str, Any]]:
        contents = {"system": self.system or None, "query": question, "document": document}
        return [
            {"role": role, "content": [{"type": "text", "text": text}] if self.structured else text}
            for role, text in contents.items()
            if text is not None
        ]


class _Part(NamedTuple):
    """The template of one role: fixed text around each text, and a context without tokens."""

    context: str  # text before the part, tokenized with it and then removed
    skipped: int  # number of tokens of the context
    before: str
    after: str


class TemplateTokenizer(SubwordTokenizer):
    """Tokenizes questions and documents within their parts of a chat template.

    The tokens of a pair are the tokens of both texts, in the order of the template. Truncation removes the
    last tokens of a text before the fixed tokens of its part.
    """

    def __init__(self, tokenizer: Tokenizer, template: PairTemplate, source: Path) -> None:
        super().__init__(tokenizer, source=source)
        self.template = template
        self._strips = False
        (rendered,) = template.render([(_QUESTION, _DOCUMENT)])
        for role, text in (("query", _QUESTION), ("document", _DOCUMENT)):
            if rendered.count(text) != 1:
                problem = f"the message of the role {role} is rendered {rendered.count(text)} times"
                raise UnsupportedError(template.where, problem=problem, expected=_EXPECTED)
        self.question_first = rendered.index(_QUESTION) < rendered.index(_DOCUMENT)
        first, second = (_QUESTION, _DOCUMENT) if self.question_first else (_DOCUMENT, _QUESTION)
        head, rest = rendered.split(first)
        middle, tail = rest.split(second)
        self._around = {
            "first": (head, f"{middle}{second}{tail}"),
            "second": (f"{head}{first}{middle}", tail),
        }
        parts = self._split(head, middle, tail)
        roles: tuple[Role, Role] = ("question", "answer") if self.question_first else ("answer", "question")
        self._parts: dict[Role, _Part] = dict(zip(roles, parts, strict=True))
        self._suffixes: dict[Role, int] = {}
        self.least: dict[Role, int] = {}  # minimum number of tokens of a text within the template
        for role, part in self._parts.items():
            self._suffixes[role] = _common_end(*self._tokenize(part, _PROBES))
            self.least[role] = min(map(len, self._tokenize(part, _SHORT)))
        self.prefix_length, self.suffix_length = 0, self._suffixes["answer"]

    @override
    def encode(
        self, texts: Sequence[str] | pa.Array, limit: int | None = None, role: Role = "answer"
    ) -> Tokens:
        batch = texts.to_pylist() if isinstance(texts, pa.Array) else list(texts)
        rows = self._tokenize(self._parts[role], self._contents(batch, role))
        tokens = join_rows([ids or [max(self.unknown, 0)] for ids in rows])
        return tokens if limit is None else truncate(tokens, limit, self._suffixes[role])

    @override
    def word_indices(self, text: str, role: Role = "answer") -> np.ndarray:
        raise NotImplementedError("a language model has no weights of words")

    def _contents(self, texts: list[str], role: Role) -> list[str]:
        """Return texts as the template renders them."""
        texts = [text.strip() for text in texts] if self._strips else texts
        is_question = role == "question"
        pairs = [(text, _DOCUMENT) if is_question else (_QUESTION, text) for text in texts]
        before, after = self._around["first" if is_question == self.question_first else "second"]
        contents = []
        for text, rendered in zip(texts, self.template.render(pairs), strict=True):
            end = len(rendered) - len(after)
            if end < len(before) or not (rendered.startswith(before) and rendered.endswith(after)):
                expected = "a template whose fixed text does not depend on the question or the document"
                raise UnsupportedError(self.template.where, value=text[:40], expected=expected)
            contents.append(rendered[len(before) : end])
        return contents

    def _split(self, head: str, middle: str, tail: str) -> tuple[_Part, _Part]:
        """Return the parts of the first and the second text, split where no token joins them.

        If a token may join the text between them with white space of the texts, the texts are stripped.
        """
        whole_part = _Part("", 0, head, tail)
        for self._strips in (False, True) if middle else ():
            pairs = list(product(_ENDS, _BEGINNINGS))
            if self._strips:
                pairs = [pair for pair in pairs if all(text == text.strip() for text in pair)]
            whole = self._tokenize(whole_part, [f"{end}{middle}{begin}" for end, begin in pairs])
            for cut in range(len(middle), -1, -1):
                context = _QUESTION + middle[:cut]
                skipped = len(self._tokenize(_Part(context, 0, "", ""), [""])[0])
                first = _Part("", 0, head, middle[:cut])
                second = _Part(context, skipped, middle[cut:], tail)
                firsts = self._tokenize(first, [end for end, _ in pairs])
                seconds = self._tokenize(second, [begin for _, begin in pairs])
                if all(a + b == ids for a, b, ids in zip(firsts, seconds, whole, strict=True)):
                    return first, second
        expected = "text between question and document that no token joins with them"
        raise UnsupportedError(self.template.where, value=middle, expected=expected)

    def _tokenize(self, part: _Part, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts within a part of the template."""
        around = [f"{part.context}{part.before}{text}{part.after}" for text in texts]
        encodings = encode_texts(self._tokenizer, around, self.source, special=False)
        return [encoding.ids[part.skipped :] for encoding in encodings]


def _common_end(first: list[int], second: list[int]) -> int:
    """Return the number of equal last ids, less than both lengths."""
    count = 0
    while count < min(len(first), len(second)) - 1 and first[-1 - count] == second[-1 - count]:
        count += 1
    return count
