"""From a part of a ranker to whether its class redefines methods that faster code re-implements."""


def redefines(part: object, base: type, *methods: str) -> bool:
    """Whether a method that ``base`` defines or inherits is another one in the class of ``part``.

    Kernels, matrices of scores and tables of an encoder re-implement methods of ``base``. A subclass that
    redefines such a method is computed by its own definition instead.
    """
    kind = type(part)
    if not issubclass(kind, base):
        return True
    below = kind.__mro__[: kind.__mro__.index(base)]
    return any(name in vars(subclass) for subclass in below for name in ("__call__", *methods))
