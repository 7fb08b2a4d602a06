"""A parser of report pages."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser


class Page(HTMLParser):
    """The elements of a page, the texts of its elements by id, and its tables."""

    def __init__(self, page: str):
        super().__init__()
        self.elements, self.by_id, self.tables = [], {}, []
        self._id = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self._id = attributes.get("id")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        self._id = None

    def handle_data(self, data):
        if self._id is not None:
            self.by_id[self._id] = self.by_id.get(self._id, "") + data
        if self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += f" {data}"

    def table(self, *heads):
        """The first table with these heads."""
        cells = ([[" ".join(cell.split()) for cell in row] for row in table] for table in self.tables)
        return next(table for table in cells if set(heads) <= set(table[0]))

    def data(self, name):
        """A block of the page's data."""
        return json.loads(gzip.decompress(base64.b64decode(self.by_id[name])))

    def blocks(self, name):
        """All records of the blocks of one kind."""
        numbers = sorted(
            int(key.rsplit("-", 1)[1]) for key in self.by_id if re.fullmatch(rf"{name}-\d+", key)
        )
        assert numbers == list(range(len(numbers)))
        return [record for number in numbers for record in self.data(f"{name}-{number}")]
