"""Chat templates of rerankers: from a question and a document to the tokens that a language model reads.

Question and document are the messages of the roles ``query`` and ``document``, as in sentence-transformers.
The rendered text is split between the two, at a position where no token joins them. So each text is tokenized
once, within its part of the template, and the tokens of both parts are the tokens of the rendered pair.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from typing_extensions import override

from aptool.errors import InputError, first_line
from aptool.text.subwords import SubwordTokenizer
from aptool.text.tokenizer import Role, Tokens, join_rows, truncate
from aptool.text.tokenizer_file import encode_texts
from aptool.version import require

# Placeholders of question and document, which no function of a template changes.
_QUESTION, _DOCUMENT = "\ue000", "\ue001"

_EXPECTED = "a template that renders the messages of the roles query and document, each once"

_MAX_CHARACTERS = 1 << 16
_MAX_FACTOR = 1 << 16

# Ends of a question and beginnings of a document that tokens may join with the text between them.
_ENDS = ("a", "a?", "1", "a\u00e9", "a ", "a\n")
_BEGINNINGS = ("a", "1", "?a", "\u00e9", "A", " a", "\n a")

# Two texts without a common last token, and short texts that tokens may join with the template.
_PROBES = ("0", "1 2 3 4")
_SHORT = ("", "0", "?", "a")


class PairTemplate(NamedTuple):
    """A chat template with its variables."""

    source: str
    variables: dict[str, Any]  # passed to the template with the messages
    structured: bool  # contents are lists of parts with a type, not texts
    system: str | None  # content of the system message
    where: str  # the file of the template, for errors

    def render(self, question: str, document: str) -> str:
        """Render a pair; raise an `InputError` if the template cannot be rendered."""
        contents = {"system": self.system, "query": question, "document": document}
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if self.structured else text}
            for role, text in contents.items()
            if text is not None
        ]
        template = _compiled(self.source, self.where)
        defaults = {"tools": None, "documents": None, "add_generation_prompt": False}
        try:
            rendered: str = template.render(messages=messages, **{**defaults, **self.variables})
        except Exception as error:  # a template can raise anything
            raise InputError(self.where, problem=first_line(error), expected=_EXPECTED) from error
        return rendered


@lru_cache(maxsize=8)
def _compiled(source: str, where: str) -> Any:
    """Compile a template in a sandbox, in which it cannot run code."""
    jinja2 = require("jinja2", purpose="a chat template", extra="transformers")
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import missing

    class Unknown(jinja2.Undefined):  # type: ignore[misc, name-defined]
        """An undefined value; the text of an unknown variable is an error, not empty."""

        def __init__(
            self, hint: Any = None, obj: Any = missing, name: Any = None, exc: Any = jinja2.UndefinedError
        ) -> None:
            super().__init__(hint, obj, name, exc)
            object.__setattr__(self, "unknown_name", name if obj is missing else None)

        def __str__(self) -> str:
            if self.unknown_name is not None:
                raise jinja2.UndefinedError(f"unknown variable {self.unknown_name!r}")
            return str(super().__str__())

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        @override
        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if not all(
                isinstance(value, int | float) and abs(value) <= _MAX_FACTOR for value in (left, right)
            ):
                raise jinja2.TemplateError("a product of texts or of large numbers")
            if operator == "**" and right > 8:
                raise jinja2.TemplateError("a large power")
            return super().call_binop(context, operator, left, right)

    def raise_exception(message: object) -> None:
        raise jinja2.TemplateError(str(message))

    if len(source) > _MAX_CHARACTERS:
        expected = f"at most {_MAX_CHARACTERS:,}"
        raise InputError(where, problem=f"a template of {len(source):,} characters", expected=expected)
    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, undefined=Unknown, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals.pop("lipsum", None)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise InputError(where, problem=first_line(error), expected="a template of jinja2") from error


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
        rendered = template.render(_QUESTION, _DOCUMENT)
        for role, text in (("query", _QUESTION), ("document", _DOCUMENT)):
            if rendered.count(text) != 1:
                problem = f"the message of the role {role} is rendered {rendered.count(text)} times"
                raise InputError(template.where, problem=problem, expected=_EXPECTED)
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
        contents = [self._content(text, role) for text in batch]
        rows = self._tokenize(self._parts[role], contents)
        tokens = join_rows([ids or [max(self.unknown, 0)] for ids in rows])
        return tokens if limit is None else truncate(tokens, limit, self._suffixes[role])

    @override
    def word_indices(self, text: str, role: Role = "answer") -> np.ndarray:
        raise NotImplementedError("a language model has no weights of words")

    def _content(self, text: str, role: Role) -> str:
        """Return a text as the template renders it."""
        text = text.strip() if self._strips else text
        is_question = role == "question"
        rendered = self.template.render(*((text, _DOCUMENT) if is_question else (_QUESTION, text)))
        before, after = self._around["first" if is_question == self.question_first else "second"]
        end = len(rendered) - len(after)
        if end < len(before) or not (rendered.startswith(before) and rendered.endswith(after)):
            expected = "a template whose fixed text does not depend on the question or the document"
            raise InputError(self.template.where, value=text[:40], expected=expected)
        return rendered[len(before) : end]

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
        raise InputError(self.template.where, value=middle, expected=expected)

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
