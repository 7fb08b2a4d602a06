"""The text of a documented function: a question from its docstring, an answer from its source."""

import re

FEWEST_QUESTION_WORDS = 4
MOST_QUESTION_WORDS = 60

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(\s*(->|:).*)?$", re.DOTALL)
_SECTION = re.compile(
    r"^\s*((args|arguments|keyword args|parameters?|params|attributes|returns?|raises|yields|examples?|"
    r"notes?|usage|see also|warnings?)\s*:+\s*$|:\w[\w ]*:(?!`)|@\w+|\.\. |>>>|[-=~^*]{3,}\s*$)",
    re.IGNORECASE,
)
_ROLE = re.compile(r":[a-zA-Z][\w:+.-]*:`[~!]?([^`]*)`|`([^`]*)`_*")
_TARGET = re.compile(r"^(.*?)\s*<[^<>]*>$", re.DOTALL)
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,2}(?=\S)([^*]+?)(?<=\S)\*{1,2}(?![\w*])")
_SENTENCE_END = re.compile(
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bcf)(?<!\betc)(?<!\b[A-Z])[.!?](?=\s+[^a-z\s]|\s*$)"
)
_PLAIN = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "…": "...", "\xa0": " "})
_LETTER = re.compile(r"[A-Za-z]")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
# A sentence that only says where to look, or what its function is in terms of another, asks nothing.
_ELSEWHERE = re.compile(
    r"(please )?(see|refer to|same as|as |alias (for|of|to)|deprecated|todo|fixme|notes?:|warning:|inherit|"
    r"overrid|(in|out)[ -]?(of[ -]?)?place version|equivalent (to|of)|like )|"
    r".*\b(docstring|for (more )?(details|documentation))\b",
    re.IGNORECASE,
)


def question_of(docstring: str) -> str:
    """The first sentence of a docstring as plain text; '' where it has none.

    Markup is stripped to its text, white space collapsed, and identifiers are split at underscores and
    capitals, as they are in answers.
    """
    sentence = ""
    for paragraph in re.split(r"\n\s*\n", docstring.strip()):
        if not _SIGNATURE.match(paragraph.strip()):
            sentence = paragraph
            break
    lines = []
    for line in sentence.splitlines():
        if _SECTION.match(line):
            break
        lines.append(line)
    text = " ".join(" ".join(lines).translate(_PLAIN).split())
    text = _EMPHASIS.sub(r"\1", _ROLE.sub(_role_text, text.replace("``", "`")))
    end = _SENTENCE_END.search(text)
    text = text[: end.start()] if end else text.rstrip(" :.")
    return " ".join(_HUMP.sub(" ", text).split())


def answer_words(source: str, name: str) -> list[str]:
    """The words of a function's source: identifiers split at underscores and capitals, lower-cased.

    Comments and strings are words like the rest. The function's own name, with or without leading
    underscores, is left out wherever it stands: a recursive or delegating call would give it away.
    """
    bare = name.strip("_")
    if bare and bare in source:
        source = re.sub(rf"\b_*{re.escape(bare)}_*\b", " ", source)
    return [word.lower() for word in _WORD.findall(source)]


def unfit_question(question: str) -> str | None:
    """Why a text is no question to search with; None if it is one."""
    words = question.split()
    if len(words) < FEWEST_QUESTION_WORDS:
        return "questions_too_short_dropped"
    if len(words) > MOST_QUESTION_WORDS:
        return "questions_too_long_dropped"
    letters = len(_LETTER.findall(question))
    if not question.isascii() or letters < 0.6 * len(question) or "\\" in question or "://" in question:
        return "questions_not_plain_text_dropped"
    if _ELSEWHERE.match(question):
        return "questions_pointing_elsewhere_dropped"
    return None


def _role_text(match: re.Match[str]) -> str:
    text = match[1] if match[1] is not None else match[2]
    target = _TARGET.match(text)
    if target and target[1]:
        return target[1]
    if match[1] is not None and re.fullmatch(r"[\w.]+(\(\))?", text):
        return text.rpartition(".")[2]
    return text
