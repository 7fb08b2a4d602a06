"""A process that renders a chat template: a line of JSON with the variables in, a line with the texts out.

Run by path, so it imports nothing of aptool. Its limits of CPU time and memory hold for any template, also
within one call of a filter; the sandbox keeps a template from running code.
"""

import json
import math
import resource
import sys
from typing import Any

# CPU seconds for the start, per text, and per character, rounded up to whole seconds; bytes of memory.
SECONDS = 1.0
SECONDS_PER_TEXT = 1e-3
SECONDS_PER_CHARACTER = 1e-6
MEMORY = 512 << 20

# A rendered text is at most this and a few times its variables.
MOST_CHARACTERS = 1 << 17
MOST_TIMES = 4


def compiled(source: str) -> Any:
    """Compile a template in a sandbox, with the functions and options of transformers."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import missing

    class Unknown(jinja2.Undefined):
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

    def raise_exception(message: object) -> None:
        raise jinja2.TemplateError(str(message))

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, undefined=Unknown, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.globals.pop("lipsum", None)  # its text is random
    return environment.from_string(source)


def rendered(template: Any, variables: dict[str, Any], length: int) -> str:
    """Render a template; raise if the text is far longer than its variables."""
    text: str = template.render(variables)
    if len(text) > MOST_CHARACTERS + MOST_TIMES * length:
        raise ValueError(f"a text of {len(text):,} characters")
    return text


def main() -> None:
    """Answer the requests on standard input, of which the first is the template."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    allowed = SECONDS
    template: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        allowed += SECONDS_PER_CHARACTER * len(line)
        if template is not None:
            allowed += SECONDS_PER_TEXT * len(request)
        seconds = math.ceil(allowed)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds if hard < 0 else min(seconds, hard), hard))
        answer: Any
        try:
            if template is None:
                template = compiled(request)
                answer = []
            else:
                answer = [rendered(template, variables, len(line)) for variables in request]
        except Exception as error:  # a template can raise anything
            lines = str(error).split("\n")
            answer = lines[0] or type(error).__name__
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
