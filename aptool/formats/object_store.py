"""Object stores: S3, Google Cloud Storage and Azure, with the library ``obstore`` (the extra ``cloud``).

obstore retries failed requests with exponential backoff. Its errors become one-line errors.
"""

import errno
import importlib.util
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Literal, TypeVar, cast

from typing_extensions import override

from aptool.errors import AptoolError, InputError, first_line
from aptool.formats.store import ReplacedError, Stat, Store
from aptool.version import install_command

T = TypeVar("T")

# Limits of the retries of a request.
RETRIES = 10
RETRY_SECONDS = 60.0

# Bytes per part of an upload: S3 allows 10,000 parts, so 160 GB per file.
PART_BYTES = 16 << 20

# Characters of the name of a temporary file: up to four bytes each, of the 255 that disks allow.
_LONGEST_NAME = 60

# With any of these variables, the role of a machine or pod provides credentials.
_ROLE_VARIABLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

# Variables with credentials, by the scheme of the URL.
_VARIABLES = {
    **dict.fromkeys(("s3", "s3a"), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    **dict.fromkeys(
        ("az", "adl", "abfs", "abfss"), "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
    ),
}

# Pattern of a message of the store, and the problem and the expected value for an error.
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
    """The objects of one bucket."""

    def __init__(self, bucket: str) -> None:
        """Open a bucket such as ``s3://bucket``; no request is made."""
        self._bucket = bucket
        self._scheme = bucket.partition(":")[0].lower()
        # Conditional PUTs compare generations on Google Cloud Storage, and ETags on the other stores.
        self._compared: Literal["version", "e_tag"] = "version" if self._scheme == "gs" else "e_tag"
        if importlib.util.find_spec("obstore") is None:
            raise InputError(bucket, problem="obstore is not installed", expected=install_command("cloud"))
        with self._one_line_errors(""):
            self._objects = _open_bucket(bucket)

    @override
    def stat(self, key: str) -> Stat:
        import obstore

        with self._one_line_errors(key):
            try:
                metadata = obstore.head(self._objects, key)
            except FileNotFoundError:
                # Unlike HEAD, GET distinguishes a missing bucket from a missing object.
                metadata = obstore.get(self._objects, key).meta
            return _stat(metadata)

    @override
    def read(self, key: str, start: int = 0, end: int | None = None, version: str | None = None) -> bytes:
        """Read the bytes from ``start`` to ``end``; raise if the object has another ``version``."""
        import obstore

        if end is not None and end <= start:
            return b""
        options: dict[str, Any] = {} if version is None else {"if_match": version}
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        with self._one_line_errors(key):
            return bytes(obstore.get(self._objects, key, options=cast(Any, options)).bytes())

    @override
    def read_versioned(self, key: str) -> tuple[bytes, str]:
        import obstore

        with self._one_line_errors(key):
            response = obstore.get(self._objects, key)
            return bytes(response.bytes()), str(response.meta[self._compared])

    @override
    def create(self, key: str, data: bytes) -> bool:
        return self._put(key, data, "create")

    @override
    def swap(self, key: str, data: bytes, version: str) -> bool:
        return self._put(key, data, {self._compared: version})

    def _put(self, key: str, data: bytes, mode: Any) -> bool:
        """Send a conditional PUT. It succeeds too if a lost first attempt has written the object."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotFoundError, PreconditionError

        with self._one_line_errors(key):
            try:
                obstore.put(self._objects, key, data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError, NotFoundError) as error:
                if self._fault(error) is not None:
                    raise
                with suppress(FileNotFoundError):
                    return self.read(key) == data
                return False
        return True

    @override
    @contextmanager
    def writer(self, key: str) -> Iterator[IO[bytes]]:
        """Upload in parts; the object appears when the upload is completed."""
        import obstore

        with (
            self._one_line_errors(key),
            obstore.open_writer(self._objects, key, buffer_size=PART_BYTES) as file,
        ):
            yield cast(IO[bytes], _Writer(file))  # callers only write

    @override
    @contextmanager
    def scratch(self, key: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="aptool-") as folder:
            name = key.rpartition("/")[2][-_LONGEST_NAME:]
            temporary = Path(folder) / (name or "file")
            temporary.touch()
            yield temporary
            self.upload(key, temporary)

    @override
    def upload(self, key: str, file: Path) -> None:
        import obstore

        with self._one_line_errors(key):
            obstore.put(self._objects, key, file, chunk_size=PART_BYTES)

    @override
    def names(self, folder: str) -> list[str]:
        import obstore

        prefix = folder.rstrip("/") + "/" if folder.strip("/") else ""
        with self._one_line_errors(folder):
            paths = [item["path"] for page in obstore.list(self._objects, prefix or None) for item in page]
        # obstore lists the empty object ``folder/``, by which other tools mark folders, as ``folder``.
        return sorted(path.removeprefix(prefix) for path in paths if path.startswith(prefix))

    @override
    def delete(self, keys: Iterable[str]) -> None:
        import obstore

        paths = list(keys)
        if not paths:
            return
        with self._one_line_errors(paths[0]):
            try:
                obstore.delete(self._objects, paths)
            except FileNotFoundError:  # the other stores, unlike S3, stop at a missing object
                for path in paths:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._objects, path)

    @override
    def check_writable(self, key: str) -> None:
        """Check the name and the bucket; stores report missing permissions only at a PUT."""
        import obstore

        if not key or key.endswith("/"):
            raise InputError(f"{self._bucket}/{key}", problem="a folder", expected="the name of a file")
        with self._one_line_errors(key):
            next(iter(obstore.list(self._objects, f"{key}/", chunk_size=1)), None)

    @contextmanager
    def _one_line_errors(self, key: str) -> Iterator[None]:
        """Raise errors of obstore as InputError, except FileNotFoundError for a missing object."""
        path = f"{self._bucket}/{key}"
        try:
            yield
        except (AptoolError, OSError) as error:
            if not isinstance(error, FileNotFoundError) or error.errno is not None:
                raise
            fault = self._fault(error)  # obstore's error for a missing object has a long message
            if fault is not None:
                raise InputError(path, problem=fault[0], expected=fault[1]) from error
            raise FileNotFoundError(errno.ENOENT, "file not found", path) from None
        except ValueError as error:  # an illegal name of a bucket or an object
            problem, expected = first_line(error), "the name of an object"
            raise InputError(path, problem=problem, expected=expected) from error
        except Exception as error:
            if not type(error).__module__.startswith("obstore"):
                raise
            from obstore.exceptions import PreconditionError

            if isinstance(error, PreconditionError):
                raise ReplacedError(path) from error
            problem, expected = self._fault(error) or (_reason(error), "a reachable store")
            raise InputError(path, problem=problem, expected=expected) from error

    def _fault(self, error: BaseException) -> tuple[str, str] | None:
        """The problem and the expected value for a message of the store."""
        text = str(error)
        for pattern, problem, expected in _FAULTS:
            if re.search(pattern, text):
                return problem, expected.format(variables=_VARIABLES[self._scheme])
        return None


class _Writer(io.RawIOBase):
    """Writes copies of buffers: obstore refers to a buffer that its caller may change after the call."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return int(self._file.write(bytes(data)))


def _open_bucket(bucket: str) -> Any:
    from obstore.store import from_url

    options: dict[str, Any] = {}
    if bucket.startswith("s3"):
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        if endpoint:
            options["endpoint"] = endpoint
        if endpoint.startswith("http://"):
            options["client_options"] = {"allow_http": True}
        options["credential_provider"] = _profile()
    return from_url(
        bucket,
        retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        **{name: value for name, value in options.items() if value is not None},
    )


def _profile() -> Callable[[], Any] | None:
    """The credentials of ``~/.aws``, if the environment has none and ``boto3`` is installed."""
    environment = os.environ
    if "AWS_ACCESS_KEY_ID" in environment or environment.get("AWS_SKIP_SIGNATURE", "").lower() == "true":
        return None
    if any(name in environment for name in _ROLE_VARIABLES) or importlib.util.find_spec("boto3") is None:
        return None
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider()
    except ValueError:  # no credentials
        return None


def _stat(meta: Any) -> Stat:
    return Stat(int(meta["size"]), str(meta["e_tag"] or meta["version"] or meta["last_modified"]))


def _reason(error: BaseException) -> str:
    """The first line of an error of obstore without its prefix."""
    return re.sub(r"^Generic \w+ error: ", "", first_line(error))
