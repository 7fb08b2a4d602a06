"""Ways for a program of a test to end itself with SIGKILL at a given point."""

import os
import signal


def die(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(calls, function):
    """The function, which may be called so many times."""
    left = iter(range(calls))

    def called(*arguments, **more):
        if next(left, None) is None:
            die()
        return function(*arguments, **more)

    return called


def complete_never():
    """The upload of a run file has all its bytes, but is not completed."""
    import obstore

    open_writer = obstore.open_writer

    class Uncompleted:
        def __init__(self, *arguments, **more):
            self.writer = open_writer(*arguments, **more)

        def __enter__(self):
            return self.writer

        def __exit__(self, *exception):
            self.writer.flush()
            die()

    obstore.open_writer = Uncompleted
