"""A parser of report pages."""

from html.parser import HTMLParser


class Page(HTMLParser):
    """The elements of a page, its tables, and the questions that it shows."""

    def __init__(self, page: str):
        super().__init__()
        self.elements, self.tables, self.questions = [], [], []
        self._class = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        self._class = attributes.get("class", "")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        elif tag == "details" and self._class == "question":
            self.questions.append({"text": "", "id": "", "answers": [], "missing": []})
        elif tag == "bdi":
            self._class = "of-question"
        elif tag == "li" and self.questions:
            answer = {"relevant": self._class == "relevant", "line": [], "text": "", "heats": []}
            self.questions[-1]["answers"].append(answer)
        elif self._class == "heat":
            self._answer()["heats"].append([])
        elif self._class in ("w", "w unknown"):
            self._answer()["heats"][-1].append(float(attributes["title"]))

    def handle_endtag(self, tag):
        self._class = ""

    def handle_data(self, data):
        if self.tables and self.tables[-1] and self.tables[-1][-1]:
            self.tables[-1][-1][-1] += f" {data}"
        if not self.questions or not data.strip():
            return
        question = self.questions[-1]
        if self._class == "of-question":
            question["text"] = data
        elif self._class == "mono" and not question["answers"]:
            question["id"] = data
        elif self._class == "text":
            self._answer()["text"] = data
        elif "not among the candidates: " in data:
            question["missing"] = data.partition("candidates: ")[2].split(", ")
        elif self._class in ("place", "mono", "tag", "") and question["answers"]:
            self._answer()["line"].append(data)

    def _answer(self):
        return self.questions[-1]["answers"][-1]

    def table(self, *heads):
        """The first table with these heads."""
        cells = ([[" ".join(cell.split()) for cell in row] for row in table] for table in self.tables)
        return next(table for table in cells if set(heads) <= set(table[0]))
