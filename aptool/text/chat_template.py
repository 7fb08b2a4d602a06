"""Rendering of chat templates of checkpoints, which are not trusted, in a process with limits."""

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from aptool.errors import InputError
from aptool.version import check_installed

MOST_CHARACTERS = 1 << 16
EXPECTED = "a chat template that renders a pair"

_PROCESS = Path(__file__).with_name("template_process.py")


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
            return self._ask(self._process, list(variables), EXPECTED)

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
