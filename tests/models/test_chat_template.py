"""Chat templates of checkpoints: each ends in its texts or in one line, in bounded time and memory."""

import resource

import pytest

from aptool.errors import InputError
from aptool.models.checkpoints.template import render

pytest.importorskip("jinja2", reason="chat templates need the extra transformers")

# Each asks for more time or memory than a text needs.
HOSTILE = (
    "{{ 'a' * 1000000000 }}",
    "{{ [0] * 1000000000 }}",
    "{{ 9 ** 99999999 }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '{:>2000000000}'.format(1) }}",
    "{{ '\\t'.expandtabs(2000000000) }}",
    "{{ 'a'.ljust(2000000000) }}",
    "{{ ('a' * 9000000).replace('', 'a' * 999) }}",
    "{{ 'a' | center(2000000000) }}",
    "{{ [1, 2] | tojson(2000000000) }}",
    "{{ [1] | batch(1000000000, 0) | list }}",
    "{{ ('a ' * 9000000) | wordwrap(2) }}",
    "{{ ('<' * 9000000) | striptags }}",
    "{{ range(100000) | map('string') | join('a' * 90000) }}",
    "{% set x = namespace(y='ab') %}{% for i in range(99) %}{% set x.y = x.y ~ x.y %}{% endfor %}{{ x.y }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(i) %}{% if i %}{{ m(i - 1) }}{{ m(i - 1) }}{% endif %}{% endmacro %}{{ m(99) }}",
    "{% for a in [[[]]] recursive %}{{ loop([a, a]) }}{% endfor %}",
)


@pytest.mark.parametrize("code", HOSTILE)
def test_a_template_without_end_is_one_line(code):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(InputError, match=r"\Achat_template.jinja: .+; expected a") as caught:
        render(code, "chat_template.jinja", [{}])

    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
    assert render("{{ x }}", "another", [{"x": "a"}, {"x": "b"}]) == ["a", "b"]


def test_a_template_that_ends_is_rendered_again_after_its_process_is_killed():
    source = (
        "{% if x %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}y"
    )
    assert render(source, "t", [{"x": 0}]) == ["y"]
    with pytest.raises(InputError, match="more CPU time"):
        render(source, "t", [{"x": 99_999}])

    assert render(source, "t", [{"x": 0}, {"x": 0}]) == ["y", "y"]
