"""Collections: pools and qrels of several splits in a folder."""

from aptool.formats import collection as formats
from aptool.formats.location import Location
from aptool.library.arguments import PathLike, check_path, check_text
from aptool.library.pools import Pools
from aptool.library.qrels import Qrels


class Collection:
    """A collection on disk, as ``aptool data import`` writes it."""

    def __init__(self, path: PathLike) -> None:
        """Opens the collection in the folder ``path``.

        Raises:
            AptoolError: there is none, or its manifest is not one.
        """
        self.opened = formats.Collection(
            check_path("path", path, "the folder of a collection (str or os.PathLike)")
        )

    @property
    def path(self) -> Location:
        """Its folder."""
        return self.opened.path

    @property
    def name(self) -> str:
        """Its name, one word."""
        return self.opened.name

    @property
    def splits(self) -> list[str]:
        """The names of its splits, such as train, dev and test."""
        return self.opened.splits

    def pools(self, split: str) -> Pools:
        """The pools of a split; their texts are read when they are needed.

        Raises:
            AptoolError: the collection has no such split, or its file is not one of pools.
        """
        path = self.opened.pools(check_text("split", split, expected="the name of a split (str)"))
        return Pools.load(path, answers=self.opened.answers)

    def qrels(self, split: str) -> Qrels:
        """The judgements of a split.

        Raises:
            AptoolError: the collection has no such split, or its file is not one of qrels.
        """
        return Qrels.load(self.opened.qrels(check_text("split", split, expected="the name of a split (str)")))

    def __repr__(self) -> str:
        return f"Collection({str(self.path)!r}: {', '.join(self.splits)})"
