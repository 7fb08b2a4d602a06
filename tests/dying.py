"""Functions by which a test program kills itself with SIGKILL at a given point."""

import itertools
import os
import signal


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(calls, function):
    """Wrap a function so that the process dies at call number ``calls`` + 1."""
    counter = itertools.count()

    def wrapped(*args, **kwargs):
        if next(counter) == calls:
            die()
        return function(*args, **kwargs)

    return wrapped


def die_before_completing_uploads():
    """Patch obstore so that the process dies after all bytes of an upload, before its completion."""
    import obstore

    open_writer = obstore.open_writer

    class IncompleteUpload:
        def __init__(self, *args, **kwargs):
            self.writer = open_writer(*args, **kwargs)

        def __enter__(self):
            return self.writer

        def __exit__(self, *exception):
            self.writer.flush()
            die()

    obstore.open_writer = IncompleteUpload
