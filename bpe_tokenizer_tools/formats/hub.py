"""The HuggingFace Hub: fetch the files of a repository's tokenizer, and nothing else.

The client is `huggingface_hub`, with its cache and its login, so downloads are shared with
other libraries.  Its cache contains

    models--org--name/refs/main              the commit of the branch
    models--org--name/snapshots/COMMIT/...   the files of that commit

We don't download with its `snapshot_download`, which waits forever for a server that connects
but never answers, and moves the ref before the files are there.  Instead, we list the
repository, with a time limit; fetch the few files that matter by their commit, the vocabulary
last; and then fetch one of them again, now cached, by the name of the branch, which moves the
ref.  So a ref always points to a complete tokenizer, and an interrupted download leaves the
old one for working offline.

Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bpe_tokenizer_tools import core

# Fetched if they exist, before the vocabulary.
_SIDE_FILES = ("config.json", *core.SIDE_FILES)
# Each of these is a whole vocabulary.  They are megabytes, so they are not fetched if there
# is a tokenizer.json, which says the same and more.
_VOCABULARIES = (
    ("tekken.json",),
    ("tokenizer.model",),
    ("tiktoken.model",),
    ("vocab.json", "merges.txt"),
)
_NAMED_TEMPLATE = re.compile(r"additional_chat_templates/[A-Za-z0-9_][A-Za-z0-9_.-]*\.jinja")
_SECONDS_TO_LIST = 15
_LISTINGS = 3  # a branch may move between its listing and the last file; rarely twice

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REPO = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/)?[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
_REVISION = re.compile(r"[^\s\\\x00-\x1f\x7f?*:~^\[-][^\s\\\x00-\x1f\x7f?*:~^\[]{0,254}")
_TOKEN = re.compile(r"[!-~]+")

_LOG_IN = "log in with `hf auth login`, or pass token= of an account that may read it"
_Token = str | bool | None


def download(
    repo: str,
    *,
    revision: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    token: _Token = None,
    local_files_only: bool = False,
    verbose: bool = False,
) -> Path:
    """Bring a repository's tokenizer into the cache; return its folder there.

    Without a connection, the cached tokenizer is used.  A cached commit is never requested
    again, since commits don't change.

    Args:
        repo: "org/model".
        revision: a branch, a tag or a commit; None means "main".
        cache_dir: where downloads are kept; None means the Hub's own cache.
        token: for repositories that need a login; None uses a saved one, if any.
        local_files_only: never connect.
        verbose: show progress bars, if stderr is a terminal.

    Raises:
        ImportError: huggingface_hub is needed and not installed.
        ValueError: malformed repository, revision or token; or a file is far larger
            than any tokenizer.
        FileNotFoundError: the repository, the revision or a tokenizer in it does not
            exist; or, with `local_files_only`, is not in the cache.
        PermissionError: a login is needed, or this one is not enough.
        ConnectionError: the Hub could not be reached, or the connection broke off, and
            the cache doesn't have the tokenizer either.
    """
    _check(repo, revision, token)
    found = _Repository(repo, revision or "main", cache_dir, token)
    if local_files_only or _COMMIT.fullmatch(found.revision):
        folder = found.cached()
        if folder is not None:
            return folder
    if local_files_only:
        raise FileNotFoundError(
            f"the cache contains no tokenizer of {found.name}; pass local_files_only=False to "
            "download it, or the cache_dir= that it was downloaded to"
        )
    try:
        with _progress_bars(verbose and sys.stderr.isatty()):
            return found.fetch()
    except ConnectionError:
        folder = found.cached()
        if folder is None:
            raise
        return folder


def _check(repo: str, revision: str | None, token: _Token) -> None:
    """Raise for names that would act as paths, and tokens that would break a header."""
    if not isinstance(repo, str) or not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise ValueError(
            f'expected a directory that exists or a repository such as "org/model", '
            f"got {core.shorten(repo)}"
        )
    if revision is not None and not _is_revision(revision):
        raise ValueError(f"revision must be a branch, tag or commit, got {core.shorten(revision)}")
    if isinstance(token, str) and not _TOKEN.fullmatch(token):
        # NOTE: the token itself is in no message, here or below.
        raise ValueError("token must be printable ASCII without white space, such as hf_...")


def _is_revision(revision: object) -> bool:
    """Return True if git allows the name; the cache makes a file of that name."""
    return (
        isinstance(revision, str)
        and bool(_REVISION.fullmatch(revision))
        and not any(part in ("", ".", "..") for part in revision.split("/"))
    )


@contextlib.contextmanager
def _progress_bars(shown: bool) -> Iterator[None]:
    """Hide the client's progress bars, unless the environment decides."""
    utils = _hub_module("utils")
    fixed = _hub_module("constants").HF_HUB_DISABLE_PROGRESS_BARS is not None
    if shown or fixed or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def _hub_module(name: str) -> Any:
    return importlib.import_module(f"huggingface_hub.{name}")


def _vocabulary_files(names: Collection[str]) -> list[str]:
    """Name the files of the best vocabulary among the names of a folder's files."""
    if "tokenizer.json" in names:
        return ["tokenizer.json"]
    found = [name for files in _VOCABULARIES if set(files) <= set(names) for name in files]
    ranks = (n for n in names if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.tiktoken", n))
    return found + sorted(ranks)


class _Repository:
    """A repository at a revision, on the Hub and in the cache."""

    def __init__(
        self,
        repo: str,
        revision: str,
        cache_dir: str | os.PathLike[str] | None,
        token: _Token,
    ) -> None:
        self.hub = core.import_optional("huggingface_hub", "from_huggingface", "huggingface_hub")
        self.errors = _hub_module("errors")
        self.repo, self.revision, self.token = repo, revision, token
        self.cache_dir = None if cache_dir is None else os.fspath(cache_dir)
        self.name = repo if revision == "main" else f"{repo} at revision {revision}"

    # -- The cache ---

    def cached(self) -> Path | None:
        """Return the folder in the cache, if a tokenizer is in it; never connect."""
        try:
            # Without patterns, the client would report unneeded files as missing.
            folder = self.hub.snapshot_download(
                self.repo,
                revision=self.revision,
                cache_dir=self.cache_dir,
                allow_patterns=[],
                local_files_only=True,
            )
        except self.errors.LocalEntryNotFoundError:
            return None
        path = Path(folder)
        names = [entry.name for entry in path.iterdir() if entry.is_file()] if path.is_dir() else []
        return path if _vocabulary_files(names) else None

    # -- The Hub ---

    def fetch(self) -> Path:
        """Download what the cache lacks."""
        for _ in range(_LISTINGS):
            commit, sizes = self._list()
            wanted = self._choose(sizes)
            for name in wanted:
                self._fetch_file(name, commit)
            # Already there, unless the branch has moved; but the ref is written by this.
            with contextlib.suppress(FileNotFoundError):  # moved to a commit without it
                beside = next(name for name in wanted if "/" not in name)
                folder = self._fetch_file(beside, self.revision).parent
                if folder.name == commit:
                    return folder
        raise ConnectionError(f"{self.name} changed while it was downloaded: try again")

    def _list(self) -> tuple[str, dict[str, int]]:
        """Ask for the commit and the files, {name: size in bytes or 0}."""
        with self._explained():
            try:
                info = self.hub.HfApi().model_info(
                    self.repo,
                    revision=self.revision,
                    timeout=_SECONDS_TO_LIST,
                    files_metadata=True,
                    token=self.token,
                )
                commit = info.sha
                sizes = {file.rfilename: int(file.size or 0) for file in info.siblings or ()}
            except self.errors.HfHubHTTPError:
                raise
            except (ValueError, KeyError):  # not JSON, or not the fields of a model
                commit, sizes = None, {}
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise ConnectionError(
                f"{self._host()} did not answer as the Hub does: check HF_ENDPOINT, and "
                "whether a proxy or a login page answered instead"
            )
        return commit, sizes

    def _choose(self, sizes: dict[str, int]) -> list[str]:
        """Name the files to fetch; the last one marks a complete download."""
        vocabulary = _vocabulary_files(sizes)
        if not vocabulary:
            raise FileNotFoundError(
                f"{self.name} has no tokenizer: expected tokenizer.json, tekken.json, "
                "tokenizer.model, a .tiktoken file, or vocab.json with merges.txt; the "
                "repository of the model that it derives from may have one"
            )
        wanted = [name for name in _SIDE_FILES if name in sizes]
        wanted += [name for name in sizes if _NAMED_TEMPLATE.fullmatch(name)] + vocabulary
        for name in wanted:
            if sizes[name] > core.MAX_FILE_BYTES:
                raise ValueError(
                    f"{name} of {self.name} has {sizes[name]:,} bytes, which no tokenizer needs; "
                    f"the limit is {core.MAX_FILE_BYTES:,}"
                )
        return wanted

    def _fetch_file(self, name: str, revision: str) -> Path:
        """Return the path of a file, in the snapshot of the commit it was found at."""
        with self._explained():
            path = self.hub.hf_hub_download(
                self.repo, name, revision=revision, cache_dir=self.cache_dir, token=self.token
            )
        return Path(path)

    # -- What went wrong ---

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the client's errors, of whichever HTTP library, into plain ones."""
        # requests, httpx or httpx2: the client's own error derives from its errors' base.
        kinds = (OSError, RuntimeError, *self.errors.HfHubHTTPError.__bases__)
        try:
            yield
        except kinds as error:
            # NOTE: the text of the error is not shown, nor is the error itself: it
            # may quote a header, and a header may be the token.
            raise self._explain(error) from None

    def _explain(self, error: BaseException) -> BaseException:
        if isinstance(error, self.errors.LocalEntryNotFoundError) and error.__cause__:
            error = error.__cause__  # "not in the cache either", which is handled elsewhere
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, self.errors.GatedRepoError):
            return PermissionError(
                f"{self.repo} is gated: ask for access on its page at {self._host()}, "
                f"then {_LOG_IN}"
            )
        if isinstance(error, self.errors.RevisionNotFoundError):
            return FileNotFoundError(
                f"{self.repo} has no revision {self.revision}: "
                "expected one of its branches, tags or commits"
            )
        if status == 401 or isinstance(error, self.errors.LocalTokenNotFoundError):
            return PermissionError(  # the Hub hides which of these it is
                f"{self.repo} does not exist or is private, or the login is not valid: "
                f"check the name, or {_LOG_IN}"
            )
        if status == 403:
            return PermissionError(f"this login may not read {self.repo}: {_LOG_IN}")
        if status == 404:
            return FileNotFoundError(
                f"{self._host()} has no repository {self.repo}, or some of its files are gone: "
                "check the name; a private repository needs a login or token="
            )
        return self._explain_trouble(error, status)

    def _explain_trouble(self, error: BaseException, status: int | None) -> BaseException:
        if isinstance(error, self.errors.OfflineModeIsEnabled):
            return ConnectionError(
                f"{self.name} is not in the cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE in "
                "the environment forbids connecting"
            )
        if status is not None:
            return ConnectionError(
                f"{self._host()} answered {status} instead of {self.name}: try again later"
            )
        network = (ConnectionError, TimeoutError, *self.errors.HfHubHTTPError.__bases__[:1])
        if isinstance(error, OSError) and error.errno and not isinstance(error, network):
            return error  # a disk error: it names the file
        return ConnectionError(
            f"the connection to {self._host()} failed while fetching {self.name} "
            f"({_reason(error)}); nothing incomplete is kept: check the connection and try again"
        )

    def _host(self) -> str:
        """Name the server, without the rest of the URL."""
        return urlsplit(_hub_module("constants").ENDPOINT).hostname or "the Hub"


def _reason(error: BaseException) -> str:
    """Describe in our own words, not the server's, why a connection failed."""
    reason, seen = type(error).__name__, 0
    cause: BaseException | None = error
    while cause is not None and seen < 20:
        if isinstance(cause, OSError) and cause.strerror:
            reason = cause.strerror
        cause, seen = cause.__cause__ or cause.__context__, seen + 1
    return reason
