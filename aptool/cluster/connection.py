"""The way to a Ray cluster: address, authentication, versions, and Ray's own output.

    with connect("auto") as cluster:
        cluster.check_room(workers=4, each=Resources(cpus=1))
        ...

Ray itself retries a wrong token or a dead address for a long while before it says so. ``connect`` asks the
cluster's head first, so whatever stands in the way is said in one line and at once.
"""

import contextlib
import importlib
import json
import logging
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptool.cluster.resources import Cluster
from aptool.errors import AptoolError, UsageError, first_line

# Seconds to wait for the head's answer before it counts as unreachable.
PATIENCE = 5.0

ADDRESS = re.compile(r"(ray://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")
TOKEN_HINT = "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's token"


@contextlib.contextmanager
def connect(address: str = "", *, debug: bool = False) -> Iterator[Cluster]:
    """Connects this process to a cluster, and lets go of it when the block ends.

    Inside a process that is connected already (a test, a notebook) that connection is used and kept.

    Args:
        address: ``host:port``, ``ray://host:port``, ``auto`` for the cluster of this machine, ``local`` for
            one that is started now on this machine and ends with the block; empty for ``RAY_ADDRESS``, and
            ``auto`` where that is not set.
        debug: let Ray's own messages through to the terminal.

    Raises:
        UsageError: the address cannot be one.
        AptoolError: Ray is not installed, no cluster is there, its token is another, or its versions are.
    """
    wanted = checked_address(address or os.environ.get("RAY_ADDRESS", "") or "auto")
    # What is sent to Ray's makers about a cluster that is started here is for its owner to say.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise AptoolError(f"--cluster needs Ray: `pip install 'aptool[cluster]'` ({error})") from error
    if ray.is_initialized():
        yield _connected(ray, wanted)
        return
    if wanted == "auto":
        wanted = _find()
    # A Ray that is built otherwise has its own, slower, ways to say the same.
    with contextlib.suppress(ImportError, AttributeError):
        if wanted.startswith("ray://"):
            _ask_client(ray, wanted)
        elif wanted != "local":
            _ask_head(ray, wanted)
    options: dict[str, Any] = {"log_to_driver": debug}
    if not debug:
        options["logging_level"] = logging.ERROR
    if wanted == "local":
        options["include_dashboard"] = False
    with contextlib.nullcontext() if debug else _own_streams():
        try:
            ray.init(address=wanted, **options)
        except Exception as error:
            raise _refused(wanted, error) from error
        try:
            yield _connected(ray, wanted)
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _own_streams() -> Iterator[None]:
    """Keeps off stdout and stderr what Ray writes there past any logger; it stands in Ray's logs as well.

    Its C++ side writes to stderr: what Python writes to ``sys.stderr`` comes through. What nodes warn of, as
    of workers that are slow to start, a thread prints on stdout, in the midst of a command's result.
    """
    worker = importlib.import_module("ray._private.worker")
    with contextlib.ExitStack() as undo:
        if hasattr(worker, "print_to_stdstream"):
            undo.enter_context(_replaced(worker, "print_to_stdstream", lambda *data, **options: None))
        undo.enter_context(_own_stderr())
        yield


@contextlib.contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def _own_stderr() -> Iterator[None]:
    sys.stderr.flush()
    before = sys.stderr
    with os.fdopen(os.dup(2), "w", buffering=1, encoding=before.encoding) as terminal:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        if before is sys.__stderr__:  # else someone has put something there that does not end in 2
            sys.stderr = terminal
        try:
            yield
        finally:
            sys.stderr.flush()
            sys.stderr = before
            os.dup2(terminal.fileno(), 2)


def checked_address(address: str) -> str:
    """The address, if it can be one.

    Raises:
        UsageError: it cannot.
    """
    if address in ("auto", "local") or ADDRESS.fullmatch(address):
        return address
    if address.startswith(("http://", "https://")):
        raise UsageError(
            f"--cluster {address!r}: the address of Ray's jobs: expected host:port of the head, or "
            "`ray job submit -- aptool ... --cluster`, which runs the command there"
        )
    raise UsageError(
        f"--cluster {address!r}: expected host:port, ray://host:port, auto or local; "
        "where nothing of the kind follows, put --cluster last"
    )


def _connected(ray: Any, address: str) -> Cluster:
    context = ray.get_runtime_context()
    node = getattr(importlib.import_module("ray._private.worker"), "_global_node", None)
    logs = node.get_logs_dir_path() if node is not None else "the head's /tmp/ray/session_latest/logs"
    return Cluster(address if address != "local" else context.gcs_address, str(logs))


def _find() -> str:
    """The address of the cluster that this machine is part of."""
    services = importlib.import_module("ray._private.services")
    # Ray warns there, in lines of its own, of what is said below in one.
    logging.getLogger("ray._private.services").setLevel(logging.CRITICAL)
    try:
        return str(services.canonicalize_bootstrap_address_or_die("auto"))
    except ConnectionError as error:
        raise AptoolError(
            "--cluster: no Ray cluster runs on this machine and RAY_ADDRESS is not set: expected one; "
            "`ray start --head` starts one, `--cluster local` takes this machine for this command alone"
        ) from error


def _ask_client(ray: Any, address: str) -> None:
    """Asks whether Ray's client is served at ``ray://host:port``, and takes our token.

    Raises:
        AptoolError: it does not.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()
    except OSError as error:
        raise _unreachable(address, (error.strerror or str(error)).lower()) from error
    messages = importlib.import_module("ray.core.generated.ray_client_pb2")
    services = importlib.import_module("ray.core.generated.ray_client_pb2_grpc")
    request = messages.ClusterInfoRequest(type=messages.ClusterInfoType.PING)
    with _head_answers(ray, address), _channel(address.removeprefix("ray://")) as channel:
        services.RayletDriverStub(channel).ClusterInfo(
            request, timeout=PATIENCE, metadata=[("client_id", "aptool")]
        )


@contextlib.contextmanager
def _head_answers(ray: Any, address: str) -> Iterator[None]:
    """What goes wrong with a question to the head, in one line."""
    grpc = importlib.import_module("grpc")
    try:
        yield
    except ray.exceptions.AuthenticationError as error:
        raise AptoolError(
            f"--cluster {address}: RAY_AUTH_MODE is token and there is no token: {TOKEN_HINT}"
        ) from error
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise AptoolError(f"--cluster {address}: the token was refused: {TOKEN_HINT}") from error
        details = (error.details() or "").lower()
        reason = "connection refused" if "refused" in details else "no answer"
        raise _unreachable(address, reason) from error


def _channel(address: str) -> Any:
    """A connection of Ray's own kind, with our token if we have one."""
    tokens = importlib.import_module("ray._private.authentication.authentication_token_setup")
    logging.getLogger(tokens.__name__).setLevel(logging.CRITICAL)
    tokens.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    return importlib.import_module("ray._private.grpc_utils").init_grpc_channel(address)


def _unreachable(address: str, reason: str) -> AptoolError:
    return AptoolError(f"--cluster {address}: {reason}: expected the head of a Ray cluster to answer there")


def _ask_head(ray: Any, address: str) -> None:
    """Asks the head whether it is alive, takes our token, and runs our versions; all of it in one go.

    Raises:
        AptoolError: it does not.
    """
    messages = importlib.import_module("ray.core.generated.gcs_service_pb2")
    services = importlib.import_module("ray.core.generated.gcs_service_pb2_grpc")
    with _head_answers(ray, address), _channel(address) as channel:
        services.NodeInfoGcsServiceStub(channel).CheckAlive(messages.CheckAliveRequest(), timeout=PATIENCE)
        request = messages.InternalKVGetRequest(namespace=b"cluster", key=b"CLUSTER_METADATA")
        reply = services.InternalKVGcsServiceStub(channel).InternalKVGet(request, timeout=PATIENCE)
    if reply.value:
        check_versions(address, json.loads(reply.value), ray.__version__)


def check_versions(address: str, cluster: dict[str, Any], ray_version: str) -> None:
    """Holds the versions that the head runs against ours.

    Raises:
        AptoolError: they differ.
    """
    here = {"Ray": ray_version, "Python": platform.python_version()}
    there = {"Ray": cluster.get("ray_version"), "Python": cluster.get("python_version")}
    differ = [
        f"{name} {there[name]} there, {here[name]} here"
        for name in here
        if there[name] is not None and there[name] != here[name]
    ]
    if differ:
        raise AptoolError(f"--cluster {address}: {'; '.join(differ)}: expected the same versions")


def _refused(address: str, error: Exception) -> AptoolError:
    """Whatever Ray itself still finds, in one line."""
    text = str(error)
    if "Version mismatch" in text or "version mismatch" in text:
        versions = " ".join(text.split())
        return AptoolError(f"--cluster {address}: {versions}: expected the same versions")
    if "uthenticat" in text or "token" in text:
        return AptoolError(f"--cluster {address}: the token was refused: {TOKEN_HINT}")
    return _unreachable(address, first_line(error))
