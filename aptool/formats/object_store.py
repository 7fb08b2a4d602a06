"""Object stores: S3, Google Cloud Storage and Azure through ``obstore``, the extra ``cloud``.

A request that fails is repeated by the library, with growing pauses. What is left ends in one line.
"""

import errno
import importlib.util
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

from typing_extensions import override

from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.store import ReplacedError, Stat, Store
from aptool.version import install_command

T = TypeVar("T")

# A request is repeated this often, and for so long.
RETRIES = 10
RETRY_SECONDS = 60.0

# Ranges of an object that are read at one time.
_REQUESTS = 16

# Bytes of one part of an upload: S3 takes 10,000 parts, so a file of 160 GB.
PART_BYTES = 16 << 20

# What the environment has where a machine or a pod is given its credentials without keys.
_ROLE_VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

# What names the credentials of each store in the environment, by the first letter of its protocol.
_VARIABLES = {
    "s": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "g": "GOOGLE_APPLICATION_CREDENTIALS",
    "a": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}

# What the libraries' messages contain, the problem that it means, and what is expected instead.
_ALLOWED = "credentials that may read and write it"
_FAULTS = (
    (
        r"169\.254\.|computeMetadata|/latest/api/token|Missing ?(Access|Secret)|Account must be specified",
        "no credentials",
        "those of the store's own tools, such as {variables}",
    ),
    (r"NoSuchBucket|ContainerNotFound|bucket does not exist", "no such bucket", "a bucket that exists"),
    (
        r"incorrectly configured region|PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocation",
        "the bucket is in another region",
        "its region in AWS_REGION",
    ),
    (
        r"InvalidAccessKeyId|Invalid Access Key|SignatureDoesNotMatch|ExpiredToken|InvalidToken",
        "credentials refused",
        _ALLOWED,
    ),
    (r"AccessDenied|PermissionDenied|403 Forbidden|401 Unauthorized", "access denied", _ALLOWED),
)


class ObjectStore(Store):
    """See ``Store``; the objects of one bucket."""

    def __init__(self, bucket: str) -> None:
        """Open a bucket, without a request.

        Args:
            bucket: its URL, such as ``s3://bucket``.
        """
        self._bucket = bucket
        self._scheme = bucket.partition(":")[0].lower()
        # What a conditional PUT compares: Google's store has generations for it, the others ETags.
        self._compared: Literal["version", "e_tag"] = "version" if self._scheme == "gs" else "e_tag"
        if importlib.util.find_spec("obstore") is None:
            raise InputError(bucket, problem="obstore is not installed", expected=install_command("cloud"))
        with self._one_line(""):
            self._objects = _opened(bucket)

    @override
    def stat(self, key: str) -> Stat:
        import obstore

        with self._one_line(key):
            try:
                found = obstore.head(self._objects, key)
            except FileNotFoundError:
                # The answer to HEAD has no text, which would tell a missing bucket from a missing object.
                found = obstore.get(self._objects, key).meta
            return _stat(found)

    @override
    def read(self, key: str, start: int = 0, end: int | None = None, version: str | None = None) -> bytes:
        import obstore

        if end is not None and end <= start:
            return b""
        options: dict[str, Any] = {} if version is None else {"if_match": version}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        with self._one_line(key):
            return bytes(obstore.get(self._objects, key, options=cast(Any, options)).bytes())

    @override
    def read_into(self, key: str, ranges: Sequence[tuple[int, Sequence[memoryview]]]) -> bool:
        """A request for each range, some at a time."""

        def read(one: tuple[int, Sequence[memoryview]]) -> bool:
            start, buffers = one
            size = sum(len(buffer) for buffer in buffers)
            data = memoryview(self.read(key, start, start + size))
            if len(data) < size:
                return False
            for buffer in buffers:
                buffer[:], data = data[: len(buffer)], data[len(buffer) :]
            return True

        return all(map(read, ranges) if len(ranges) == 1 else _pool().map(read, ranges))

    @override
    def read_versioned(self, key: str) -> tuple[bytes, str]:
        import obstore

        with self._one_line(key):
            found = obstore.get(self._objects, key)
            return bytes(found.bytes()), str(found.meta[self._compared])

    @override
    def create(self, key: str, data: bytes) -> bool:
        return self._put(key, data, "create")

    @override
    def swap(self, key: str, data: bytes, version: str) -> bool:
        return self._put(key, data, {self._compared: version})

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        """One conditional PUT. A repeated one may meet what the first has written, which is then ours."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        with self._one_line(key):
            try:
                obstore.put(self._objects, key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError, NotFoundError) as error:
                if self._fault(error) is not None:
                    raise
                return self._holds(key, data)
        return True

    def _holds(self, key: str, data: bytes) -> bool:
        """Whether an object has just these bytes: perhaps of a PUT of ours whose answer was lost."""
        try:
            return self.read(key) == data
        except FileNotFoundError:
            return False

    @override
    @contextmanager
    def writer(self, key: str) -> Iterator[IO[bytes]]:
        """An upload in parts, whose completion is the commit."""
        import obstore

        with self._one_line(key), obstore.open_writer(self._objects, key, buffer_size=PART_BYTES) as file:
            # Not a file in all respects: only ``write`` is used.
            yield cast(IO[bytes], _Writer(file))

    @override
    @contextmanager
    def scratch(self, key: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
            temporary = Path(folder) / (key.rpartition("/")[2] or "file")
            temporary.touch()
            yield temporary
            self.upload(key, temporary)

    @override
    def upload(self, key: str, file: Path) -> None:
        import obstore

        with self._one_line(key):
            obstore.put(self._objects, key, file, chunk_size=PART_BYTES)

    @override
    def names(self, folder: str) -> list[str]:
        import obstore

        prefix = folder.rstrip("/") + "/" if folder.strip("/") else ""
        with self._one_line(folder):
            found = [one["path"] for page in obstore.list(self._objects, prefix or None) for one in page]
        # Other tools mark a folder by an empty object ``folder/``, which the library calls ``folder``.
        return sorted(path.removeprefix(prefix) for path in found if path.startswith(prefix))

    @override
    def delete(self, keys: Iterable[str]) -> None:
        import obstore

        paths = list(keys)
        if not paths:
            return
        with self._one_line(paths[0]):
            try:
                obstore.delete(self._objects, paths)
            except FileNotFoundError:  # S3 is silent; the others stop at one that is not there
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._objects, path)

    @override
    def check_writable(self, key: str) -> None:
        """A store says only at a PUT whether it is allowed."""
        import obstore

        if not key or key.endswith("/"):
            raise InputError(f"{self._bucket}/{key}", problem="a folder", expected="the name of a file")
        with self._one_line(key):
            next(iter(obstore.list(self._objects, f"{key}/", chunk_size=1)), None)

    @contextmanager
    def _one_line(self, key: str) -> Iterator[None]:
        """Name the object in what the library raises, in one line; a missing one stays FileNotFoundError."""
        path = f"{self._bucket}/{key}"
        try:
            yield
        except (AptoolError, OSError) as error:
            if not isinstance(error, FileNotFoundError) or error.errno is not None:
                raise
            fault = self._fault(error)  # the library's error for what is not there has only a long message
            if fault is not None:
                raise InputError(path, problem=fault[0], expected=fault[1]) from error
            raise FileNotFoundError(errno.ENOENT, "file not found", path) from None
        except ValueError as error:  # of a name that no bucket, or no object, can have
            problem, expected = first_line(error), "the name of an object"
            raise InputError(path, problem=problem, expected=expected) from error
        except Exception as error:
            if not type(error).__module__.startswith("obstore"):
                raise
            from obstore.exceptions import PreconditionError

            if isinstance(error, PreconditionError):
                raise ReplacedError(path) from error
            problem, expected = self._fault(error) or (_reason(error), "a store that answers")
            raise InputError(path, problem=problem, expected=expected) from error

    def _fault(self, error: BaseException) -> tuple[str, str] | None:
        """The problem that a message of the library means, and what is expected instead."""
        text = str(error)
        for pattern, problem, expected in _FAULTS:
            if re.search(pattern, text):
                return problem, expected.format(variables=_VARIABLES[self._scheme[0]])
        return None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_REQUESTS, thread_name_prefix="aptool-objects")


class _Writer(io.RawIOBase):
    """The library's writer takes ``bytes`` alone; others write views of buffers."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return int(self._file.write(bytes(data)))


def _opened(bucket: str) -> Any:
    from obstore.store import from_url

    more: dict[str, Any] = {}
    if bucket.startswith("s3"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        if endpoint:
            more["endpoint"] = endpoint
        if endpoint.startswith("http://"):
            more["client_options"] = {"allow_http": True}
        more["credential_provider"] = _profile()
    return from_url(
        bucket,
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        **{name: value for name, value in more.items() if value is not None},
    )


def _profile() -> Callable[[], Any] | None:
    """The credentials of ~/.aws, where the environment has none and ``boto3``, which reads them, is there."""
    environment = os.environ
    if "AWS_ACCESS_KEY_ID" in environment or environment.get("AWS_SKIP_SIGNATURE", "").lower() == "true":
        return None
    if any(name in environment for name in _ROLE_VARIABLES) or importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:  # there are none
        return None


def _stat(found: Any) -> Stat:
    return Stat(int(found["size"]), str(found["e_tag"] or found["version"] or found["last_modified"]))


def _reason(error: BaseException) -> str:
    """The library's first line without its own prefix."""
    return re.sub(r"^Generic \w+ error: ", "", first_line(error))


class RangedFile(io.RawIOBase):
    """A file of one version; reading ends with an error if another takes its place."""

    def __init__(self, store: Store, key: str, stat: Stat) -> None:
        """Open it, without a request."""
        self._store, self._key, self._stat = store, key, stat
        self._at = 0

    @property
    def version(self) -> str:
        """The version that is read."""
        return self._stat.version

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another place; fetches nothing."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stat.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, less at the end of the file."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """At most ``size`` bytes, all that are left if it is negative."""
        end = self._stat.size if size is None or size < 0 else min(self._at + size, self._stat.size)
        if end <= self._at:
            return b""
        data = self._store.read(self._key, self._at, end, self._stat.version)
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes that are left, in one request."""
        return self.read()
