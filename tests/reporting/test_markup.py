"""Tables in Markdown and LaTeX: special characters are escaped."""

from aptool.reporting.html import latex_table, markdown_table

ROWS = [["a_b", "50%"], ["\\{x}~^#&$", "[1, 2]"], ["_x_ *y* `z` <b>|\n", "Δ −0.1"]]


def test_markdown():
    assert markdown_table(ROWS).splitlines() == [
        "| a_b | 50% |",
        "| --- | ---: |",
        r"| \\{x}~^#&$ | \[1, 2\] |",
        r"| \_x\_ \*y\* \`z\` \<b\>\|  | Δ −0.1 |",
    ]


def test_latex():
    assert latex_table(ROWS) == "\n".join(
        [
            r"\begin{tabular}{lr}",
            r"\toprule",
            r"a\_b & 50\% \\",
            r"\midrule",
            r"\textbackslash{}\{x\}\textasciitilde{}\textasciicircum{}\#\&\$ & {[}1, 2{]} \\",
            r"\_x\_ *y* `z` \textless{}b\textgreater{}|  & $\Delta$ $-$0.1 \\",
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )
