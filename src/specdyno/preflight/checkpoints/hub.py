"""Checkpoints named by their id on the Hugging Face hub: what is fetched, and what each failure means.

Fetches the names, config.json, tokenizer files, the index, and of each safetensors file its header by range requests.
A snapshot that lies whole in the local cache is used without any request. Owns the mapping of the hub's failures:
PlanError where the id, the revision or the access must change, `Unreachable` where nobody could be asked. Settings
(HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME, HF_HUB_CACHE) are read when asked, not at import. The token comes from the
environment or from `hf auth login`, goes to the endpoint alone, and no answer of the hub is quoted in a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from huggingface_hub import (
    HfApi,
    constants,
    get_session,
    hf_hub_download,
    hf_hub_url,
    hf_raise_for_status,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub import errors as failures
from huggingface_hub.utils import build_hf_headers, tqdm  # type: ignore[attr-defined]  # public, yet not declared so

from specdyno.errors import PlanError
from specdyno.preflight.checkpoints.files import FolderFiles, wrong

TIMEOUT_S = 10.0  # for each request: to connect, and to wait for the next bytes
# The HTTP client's own base error, whichever client this version of huggingface_hub uses.
_TRANSPORT = cast("type[Exception]", failures.HfHubHTTPError.__bases__[0])
_MAIN = "main"
_BUSY = frozenset({408, 425, 429})  # refused for now, like everything from 500 on

# What the hub means, by the type of huggingface_hub's error: what was seen, and what to do.
_REFUSALS: tuple[tuple[type[Exception], str, str], ...] = (
    (
        failures.HFValidationError,
        "{repository!r} is no path on this machine and no hub id, or {revision} is no revision",
        'Name a folder, a GGUF file or "org/name"',
    ),
    (
        failures.GatedRepoError,
        "{repository} is gated, and this machine has no access to it",
        "Accept its terms at {endpoint}/{repository} and set HF_TOKEN to a token of that account",
    ),
    (
        failures.RevisionNotFoundError,
        "{repository} has no revision {revision}",
        "Name a branch, a tag or a full commit",
    ),
    (
        failures.RemoteEntryNotFoundError,
        "{repository} does not hold a file that it lists",
        "Try again, or pin another revision",
    ),
    (
        failures.RepositoryNotFoundError,
        "{repository} is not on {endpoint}, or is private",
        "Correct the name; for a private repository set HF_TOKEN or run hf auth login",
    ),
)


class Unreachable(Exception):  # noqa: N818 - a state of the network, not a mistake of anybody's
    """The hub cannot be asked now, which says nothing about the checkpoint: the caller reports an unknown."""


class HubFiles:
    """The files of one repository at one commit."""

    def __init__(self, repository: str, revision: str | None) -> None:
        self.place = repository
        self._named = revision or _MAIN
        with asking(repository, revision):
            info = HfApi(endpoint=endpoint()).model_info(repository, revision=revision, timeout=TIMEOUT_S)
            names = frozenset(sibling.rfilename for sibling in info.siblings or ())
        if info.sha is None or not names:
            raise Unreachable(f"{endpoint()} answers for {repository} without a commit or a list of files")
        self.revision: str = info.sha
        self._names = frozenset(name for name in names if "/" not in name)
        self.nested = names - self._names

    def names(self) -> frozenset[str]:
        return self._names

    def whole(self, name: str) -> bytes:
        """A small file, through the local cache: the engine will find it there."""
        with asking(self.place, self._named):
            path = hf_hub_download(
                self.place,
                name,
                revision=self._named,
                endpoint=endpoint(),
                cache_dir=cache(),
                etag_timeout=TIMEOUT_S,
                tqdm_class=_NoBar,
            )
        return Path(path).read_bytes()

    def part(self, name: str, start: int, length: int) -> tuple[bytes, int]:
        """A range of a large file. A server that ignores the range is left after the bytes that were asked for."""
        url = hf_hub_url(self.place, name, revision=self.revision, endpoint=endpoint())
        wanted = {"Range": f"bytes={start}-{start + length - 1}", "Accept-Encoding": "identity"}
        with (
            asking(self.place, self._named),
            get_session().stream("GET", url, headers={**build_hf_headers(), **wanted}, timeout=TIMEOUT_S) as answer,
        ):
            if answer.status_code == 416:  # nothing lies at `start`: the file ends there or before
                return b"", _size(answer.headers.get("Content-Range", ""), self.place)
            hf_raise_for_status(answer)
            if answer.status_code == 206:
                return _first(answer, length), _size(answer.headers.get("Content-Range", ""), self.place)
            size = int(answer.headers["Content-Length"])
            return _first(answer, start + length)[start:], size


class _NoBar(tqdm):
    """The progress bar that is not there: a preflight prints its checks and nothing else."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **{**settings, "disable": True})  # type: ignore[no-untyped-call]


def endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def cache() -> Path:
    """The hub's cache as huggingface_hub finds it, with the environment as it is now."""
    if stated := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(os.path.expandvars(stated)).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(os.path.expandvars(home)).expanduser() / "hub"
    return Path(constants.HF_HUB_CACHE)


def is_offline() -> bool:
    stated = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return stated.upper() in constants.ENV_VARS_TRUE_VALUES


def cached(repository: str, revision: str | None) -> FolderFiles | None:
    """The snapshot of this revision in the local cache, whole or in part; None where there is none."""
    try:
        return FolderFiles(
            Path(snapshot_download(repository, revision=revision, cache_dir=cache(), local_files_only=True))
        )
    except failures.LocalEntryNotFoundError:  # also for a snapshot known to be incomplete
        config = try_to_load_from_cache(repository, "config.json", cache_dir=cache(), revision=revision)
        return FolderFiles(Path(config).parent) if isinstance(config, str) else None
    except failures.HFValidationError as error:
        raise _refused(error, repository, revision) from error


@contextmanager
def asking(repository: str, revision: str | None) -> Iterator[None]:
    """What huggingface_hub raises within, as PlanError or `Unreachable`."""
    try:
        yield
    except (failures.HFValidationError, failures.HfHubHTTPError) as error:
        raise _refused(error, repository, revision) from error
    except failures.OfflineModeIsEnabled as error:
        raise offline(repository) from error
    except failures.LocalEntryNotFoundError as error:
        cause = error.__cause__
        if isinstance(cause, failures.HfHubHTTPError):
            raise _refused(cause, repository, revision) from error
        raise Unreachable(f"{endpoint()} cannot be asked for {repository}") from error
    except (_TRANSPORT, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise Unreachable(f"{endpoint()} cannot be asked for {repository} ({reason})") from error
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # HTML of a portal, fields that are missing
        raise Unreachable(f"{endpoint()} gives an answer for {repository} that is not the hub's") from error


def offline(repository: str) -> Unreachable:
    return Unreachable(f"{repository} is not whole in the local cache and HF_HUB_OFFLINE forbids to ask the hub")


def _refused(error: Exception, repository: str, revision: str | None) -> PlanError | Unreachable:
    """The meaning of an error that the hub itself, or the validation of the name, gave."""
    for kind, seen, remedy in _REFUSALS:  # the first that fits: a gated repository is also a missing one
        if isinstance(error, kind):
            facts = {"repository": repository, "revision": repr(revision or _MAIN), "endpoint": endpoint()}
            return wrong(seen.format(**facts), remedy.format(**facts))
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return wrong(f"{endpoint()} does not accept the token of this machine", "Set another HF_TOKEN or log in again")
    if isinstance(status, int) and status < 500 and status not in _BUSY:
        return wrong(
            f"{endpoint()} refuses {repository} (status {status})", "Look at its page there, and at the token's rights"
        )
    return Unreachable(f"{endpoint()} does not answer for {repository} (status {status})")


def _first(answer: Any, length: int) -> bytes:
    """The first bytes of a streamed body; the rest is never taken from the wire."""
    taken = bytearray()
    for piece in answer.iter_raw(min(length, 65_536)):
        taken += piece
        if len(taken) >= length:
            break
    return bytes(taken[:length])


def _size(content_range: str, repository: str) -> int:
    total = re.fullmatch(r"bytes (?:\d+-\d+|\*)/(\d+)", content_range)
    if total is None:
        raise Unreachable(f"{endpoint()} gives a range of {repository} without the file's size")
    return int(total[1])
