"""URLs of files, as opposed to paths on this machine."""

import re

# "s3://bucket/file"; also "s3:/bucket/file", which pathlib makes of it. A single letter is a drive. Protocols
# may be chained: "simplecache::s3://bucket/file".
_URL = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*::)*([A-Za-z][A-Za-z0-9+.-]+)):/(/?)")


_LOCAL_PROTOCOLS = ("file", "local")


# Writable stores. URLs of other protocols can be read if fsspec supports them.
OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "abfs", "abfss")


def is_remote(path: object) -> bool:
    """Whether ``path`` is a URL such as ``s3://bucket/file``."""
    return _URL.match(str(path)) is not None


def is_object_url(path: object) -> bool:
    """Whether ``path`` is a URL of an object store: S3, Google Cloud Storage or Azure."""
    match = _URL.match(str(path))
    return match is not None and match[1].lower() in OBJECT_SCHEMES


def is_glob(path: str) -> bool:
    """Whether ``path`` contains a wildcard."""
    return any(wildcard in path for wildcard in "*?[")


def whole_url(path: str) -> str:
    """A URL with both slashes, of which pathlib may have removed one; a path unchanged."""
    match = _URL.match(path)
    if match is None or match[3]:
        return path
    root = "/" if match[2] in _LOCAL_PROTOCOLS else ""
    return f"{match[1]}://{root}{path[match.end() :]}"
