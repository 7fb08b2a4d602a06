"""The arguments ``encoded`` and ``fill`` of what scores: a store of encoded answers."""

from contextlib import AbstractContextManager, nullcontext

from aptool.errors import UsageError
from aptool.formats.location import location
from aptool.library.arguments import PathLike, check_path
from aptool.scoring.answer_store import MANIFEST, writing_to


def check_encoded(encoded: PathLike | None, fill: bool, precision: str) -> str | None:
    """The folder of the store, if there is one.

    Raises:
        UsageError: ``fill`` without a store, or texts are to be encoded in another precision than its own.
    """
    if encoded is None:
        if fill:
            raise UsageError("fill: expected encoded, the store to add to (--fill requires --encoded)")
        return None
    if precision not in ("auto", "fp32"):
        raise UsageError(f"precision {precision!r}: expected auto or fp32 with encoded answers")
    return check_path("encoded", encoded)


def filling(store: str | None, fill: bool) -> AbstractContextManager[None]:
    """Claims the store while the block runs, if answers will be added to it."""
    if store is None or not fill or not (location(store) / MANIFEST).is_file():
        return nullcontext()  # that there is no store is said as it is opened
    return writing_to(store)
