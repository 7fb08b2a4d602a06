"""Local paths and URLs of object stores, with the same methods: ``pathlib.Path`` and ``Url``.

Objects on S3, Google Cloud Storage and Azure are reached through ``pyarrow.fs``.
"""

import atexit
import contextlib
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from aptool.errors import AptoolError, InputError

if TYPE_CHECKING:
    from pyarrow import fs

# "s3://bucket/file" and "s3:/bucket/file" (pathlib removes a slash). A single letter is a Windows drive.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+")

_STORES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
EXPECTED = "a path, or a URL of S3, Google Cloud Storage or Azure"
_ATTEMPTS, _SECONDS = 10, 30.0  # of a request
_BUFFER_BYTES = 4 << 20  # of a stream

_FAULTS = (  # patterns of messages: the problem, and what is expected instead
    (r"OAuth2 access token|valid account name|AuthenticationE", "no credentials", "the store's usual ones"),
    (r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound", "no such bucket", "a bucket that exists"),
    (r"PERMANENT_REDIRECT|HTTP status 301|HTTP status 400\b", "another region", "its region in AWS_REGION"),
    (r"INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT|EXPIRED|INVALID_CLIENT", "credentials refused", "valid ones"),
    (r"ACCESS_DENIED|PERMISSION|Forbidden|status 40[13]", "access denied", "credentials that may use it"),
    (r"NETWORK_CONNECTION|SLOW_DOWN|INTERNAL_FAILURE|status 5\d\d", "no answer", "a reachable store"),
)  # fmt: skip


def is_remote(path: object) -> bool:
    """Whether ``path`` is a URL of an object store: S3, Google Cloud Storage or Azure."""
    match = _URL.match(str(path))
    return match is not None and match[1].lower() in _STORES


def is_glob(path: str) -> bool:
    """Whether ``path`` contains a wildcard."""
    return any(wildcard in path for wildcard in "*?[")


def with_home(path: str) -> str:
    """Replace a leading ``~`` or ``~USER`` by the home folder, as a shell does."""
    return os.path.expanduser(path)  # noqa: PTH111 - pathlib raises for an unknown user


@contextmanager
def file_errors(path: object, expected: str = "a file that can be read") -> Iterator[None]:
    """Raise errors of disks and stores as InputError."""
    try:
        yield
    except AptoolError:
        raise
    except FileNotFoundError as error:
        raise InputError(str(path), problem="file not found", expected="a file that exists") from error
    except IsADirectoryError as error:
        raise InputError(str(path), problem="a folder", expected="a file") from error
    except Exception as error:
        is_from_rust = "(os error " in str(error)
        if not (isinstance(error, OSError | ValueError) or is_remote(path) or is_from_rust):
            raise
        text = str(getattr(error, "strerror", None) or error) or type(error).__name__
        for pattern, problem, remedy in _FAULTS if is_remote(path) else ():
            if re.search(pattern, text):
                raise InputError(str(path), problem=problem, expected=remedy) from error
        raise InputError(str(path), problem=text.splitlines()[0], expected=expected) from error


def split(path: "PathOrUrl") -> "tuple[fs.FileSystem, str]":
    """The file system of an object's URL, and the path in it."""
    scheme, _, rest = str(Url(str(path))).partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise InputError(str(path), expected=f"{scheme}://BUCKET/NAME")
    kind = _STORES[scheme.lower()]  # az://CONTAINER@ACCOUNT..., s3://anonymous@BUCKET
    name = bucket.partition("@")[0] if kind == "az" else bucket.rpartition("@")[2]
    return open_store(kind, bucket), f"{name}/{key}"


@lru_cache(maxsize=16)
def open_store(kind: str, bucket: str) -> "fs.FileSystem":
    """Open the store of a bucket; credentials come from the environment, ``~/.aws`` and the machine's role.

    Tests clear the cache after a change of the environment.
    """
    from pyarrow import fs

    # With a web identity (EKS), a file system that is alive when Arrow finalizes S3 blocks the exit
    # (apache/arrow#50188). Handlers run last-in, first-out, so this one precedes Arrow's.
    atexit.register(open_store.cache_clear)
    env = os.environ
    if kind == "gs":
        return fs.FileSystem.from_uri(f"gs://{bucket}/?retry_limit_seconds={_SECONDS:.0f}")[0]
    if kind == "az":
        account = bucket.partition("@")[2].partition(".")[0] or env.get("AZURE_STORAGE_ACCOUNT_NAME", "")
        return fs.AzureFileSystem(account, account_key=env.get("AZURE_STORAGE_ACCOUNT_KEY"))
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")  # only from_uri reads them
    region = None  # from AWS_REGION or ~/.aws
    with contextlib.suppress(OSError):
        region = None if endpoint else fs.resolve_s3_region(bucket.rpartition("@")[2])
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        tls_ca_file_path=env.get("AWS_CA_BUNDLE"),
        anonymous=bucket.startswith("anonymous@") or env.get("AWS_SKIP_SIGNATURE", "").lower() == "true",
        proxy_options=env.get("HTTPS_PROXY") or env.get("https_proxy") if endpoint is None else None,
        retry_strategy=fs.AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS),
        request_timeout=_SECONDS,
        connect_timeout=5.0,
        allow_delayed_open=True,  # a file below 5 MB is one PUT
    )


@dataclass(frozen=True)
class Url:
    """A URL such as ``s3://bucket/folder/file``, with methods of ``pathlib.Path``.

    A folder is a prefix of the names of objects. The class is not an ``os.PathLike``: functions that open
    files by path cannot open it.
    """

    _url: str

    def __post_init__(self) -> None:
        match = _URL.match(self._url)
        if match is None or match[1].lower() not in _STORES:
            raise InputError(self._url, expected=EXPECTED)
        object.__setattr__(self, "_url", f"{match[1]}://{self._url[match.end() :].rstrip('/')}")

    def __str__(self) -> str:
        return self._url

    def __truediv__(self, name: "str | PurePosixPath") -> "Url":
        return Url(f"{self._url}/{name}")

    @property
    def name(self) -> str:
        """The last component."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The extension with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The name without its extension."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> "Url":
        """The folder of the object; the parent of a bucket is the bucket itself."""
        scheme, _, path = self._url.partition("://")
        return Url(f"{scheme}://{path.rpartition('/')[0] or path}")

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a store has no folders."""

    def rmdir(self) -> None:
        """Do nothing: a store has no folders."""

    def is_file(self) -> bool:
        """Whether the object exists."""
        with file_errors(self):
            system, name = split(self)
            return bool(system.get_file_info(name).is_file)

    def is_dir(self) -> bool:
        """Whether the folder exists: it contains objects."""
        return bool(names(self))

    def exists(self) -> bool:
        """Whether the object or the folder exists."""
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator["Url"]:
        """The objects and folders in this folder, sorted."""
        for name in sorted({name.partition("/")[0] for name in names(self)}):
            yield self / name

    def read_bytes(self) -> bytes:
        """Read the object."""
        with file_errors(self), self.open() as file:
            return file.read()

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        """Open the object for reading."""
        with file_errors(self):
            system, name = split(self)
            return io.BufferedReader(cast(io.RawIOBase, system.open_input_file(name)), _BUFFER_BYTES)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object, if it exists."""
        with file_errors(self), contextlib.suppress(FileNotFoundError):
            system, name = split(self)
            system.delete_file(name)  # S3 may get an empty object FOLDER/ instead, which listings skip


Location: TypeAlias = Path | Url
PathOrUrl: TypeAlias = str | Path | Url


def location(path: PathOrUrl) -> Location:
    """An object with the methods of a path, from a path or URL."""
    if _URL.match(str(path)):
        return Url(str(path))
    local = Path(with_home(str(path)))
    # A folder ./~ stays one where its path is expanded again.
    return local if with_home(str(local)) == str(local) else local.absolute()


def output_location(path: PathOrUrl) -> Location:
    """The location of an output without links: all of its names share the files next to it."""
    output = location(path)
    if isinstance(output, Url):
        return output
    try:
        final = output.resolve()
        str(final).encode("utf-8")
        if final.is_symlink():  # from Python 3.13 on, ``resolve`` raises no error
            raise RuntimeError("a link to itself")
    except (RuntimeError, OSError) as error:
        raise InputError(path, problem="a link to itself", expected="a path to write to") from error
    except UnicodeEncodeError as error:
        raise InputError(path, problem="a name that is not UTF-8", expected="a UTF-8 name") from error
    return final


def names(folder: PathOrUrl) -> list[str]:
    """The relative names of all files below a folder, sorted; empty if it is missing."""
    root = location(folder)
    if isinstance(root, Path):
        return sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    from pyarrow.fs import FileSelector

    with file_errors(root):
        system, name = split(root)
        prefix = name.rstrip("/") + "/"
        with contextlib.suppress(FileNotFoundError):  # allow_not_found would also hide a missing bucket
            found = system.get_file_info(FileSelector(prefix[:-1], recursive=True))
            return sorted(info.path.removeprefix(prefix) for info in found if info.is_file)
    return []


def why_missing(folder: Location, name: str) -> str:
    """Return the problem of a path that is expected to be a folder with a file of this name."""
    if folder.is_file():
        return "a file"
    return f"no {name} in it" if folder.exists() else "folder not found"
