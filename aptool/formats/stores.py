"""The store of a path or URL: a disk or an object store."""

from functools import lru_cache
from pathlib import Path

from aptool.errors import InputError
from aptool.formats.local_store import LocalStore
from aptool.formats.object_store import ObjectStore
from aptool.formats.store import Store
from aptool.formats.urls import is_object_url, is_remote, whole_url


def store_of(path: object) -> tuple[Store, str]:
    """The store of a path or URL, and its key there; raises for a URL that can only be read."""
    url = whole_url(str(path))
    if not is_remote(url):
        return LocalStore(), str(Path(url).absolute())
    if not is_object_url(url):
        raise InputError(
            url, expected="a path, or a URL of S3, Google Cloud Storage or Azure; other URLs are read-only"
        )
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise InputError(url, expected=f"{scheme}://BUCKET/NAME")
    return bucket_store(f"{scheme}://{bucket}"), key


@lru_cache(maxsize=16)
def bucket_store(bucket: str) -> ObjectStore:
    """The store of a bucket; tests clear the cache after a change of credentials."""
    return ObjectStore(bucket)
