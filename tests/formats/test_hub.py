"""The HuggingFace Hub, its real client, and a small server in its place.

The server is in this process and listens on the loopback interface alone.  The client
reads its settings when it is imported, so every use of it is in its own process,
whose HF_ENDPOINT is the server's address.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from conftest import EITHER_ENGINE
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer

need("huggingface_hub")

pytestmark = [EITHER_ENGINE, pytest.mark.slow]
SECONDS = 600  # for a whole process; the client's own patience is far shorter
REPO = "someone/some-model"
TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz"
TEXT = "the theme of the thing, then 42 others: naïve 汉字 <|endoftext|>"
LOAD = """
import json, os, sys
from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.formats import hub

def load(model_name_or_path, **options):
    return BPETokenizer.from_huggingface(model_name_or_path, verbose=False, **options)

def outcome(job):
    text = job.pop("text")
    try:
        tokenizer = load(**job)
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        assert error.__cause__ is None and (error.__suppress_context__ or not error.__context__)
        return {"error": type(error).__name__, "kinds": kinds, "message": str(error)}
    return {"ids": tokenizer.encode(text, allowed_special="all"), "eos": tokenizer.eos_token}
"""
PROGRAM = """
json.dump([outcome(job) for job in json.load(sys.stdin)], sys.stdout)
"""


# -- A Hub --------------------------------------------------------------------


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Commit:
    files: dict[str, bytes]

    @property
    def sha(self) -> str:
        listed = sorted((name, git_hash(data)) for name, data in self.files.items())
        return hashlib.sha1(repr(listed).encode()).hexdigest()


@dataclass
class Repo:
    """One repository: its branches and tags, and how it misbehaves."""

    branches: dict[str, Commit]
    token: str | None = None  # whoever may see it
    gated: bool = False  # seen by all, but files only by whoever has the token
    large: frozenset[str] = frozenset()  # files kept elsewhere, as LFS does
    listing: Any = None  # instead of the true one: (status, body), or (None, ...) for silence
    sizes: dict[str, int] = field(default_factory=dict)  # claimed instead of the true ones
    broken: dict[str, str] = field(default_factory=dict)  # {file: "short" or "cut"}
    past: list[Commit] = field(default_factory=list)
    moves_to: list[Commit] = field(default_factory=list)  # main moves after each listing

    def find(self, revision: str) -> Commit | None:
        known = [*self.branches.values(), *self.past, *self.moves_to]
        return self.branches.get(revision) or {commit.sha: commit for commit in known}.get(revision)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20  # no connection is waited on for longer
    server: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def send(
        self, status: int, body: bytes = b"", length: int | None = None, **headers: str
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str = "", message: str = "") -> None:
        named = {"X_Error_Code": code} if code else {}
        self.send(status, b"{}", X_Error_Message=message or code, **named)

    def answer(self) -> None:
        path = urlsplit(self.path).path
        parts = [unquote(part) for part in path.strip("/").split("/")]
        self.server.log.append((self.command, path))
        login = self.headers.get("Authorization", "")
        if login:
            self.server.logins.append((path, login))
        if parts[0] == "elsewhere":
            self.send_file(self.server.elsewhere[parts[1]], "")
        elif parts[:2] == ["api", "models"] and parts[4] in ("revision", "tree"):
            repo = self.find("/".join(parts[2:4]), login)
            if repo is not None:
                self.list_files("/".join(parts[2:4]), repo, parts[5], parts[4] == "tree")
        elif parts[2:3] == ["resolve"]:
            repo = self.find("/".join(parts[:2]), login)
            if repo is not None:
                self.resolve(repo, parts[3], "/".join(parts[4:]), login)
        else:
            self.refuse(404)

    def find(self, name: str, login: str) -> Repo | None:
        """The Hub tells strangers of no private repository, and knows no wrong token."""
        repo = self.server.repos.get(name)
        if repo is None and login:
            self.refuse(404, "RepoNotFound", "Repository not found")
        elif repo is None:
            self.refuse(401, message="Invalid username or password.")
        elif login not in ("", f"Bearer {TOKEN}", "Bearer hf_another"):
            self.refuse(401, message="Invalid credentials in Authorization header")
        elif repo.token and not repo.gated and login != f"Bearer {repo.token}":
            self.refuse(404 if login else 401, "RepoNotFound", "Repository not found")
        else:
            return repo
        return None

    def list_files(self, name: str, repo: Repo, revision: str, tree: bool) -> None:
        commit = repo.find(revision)
        if repo.listing is not None and repo.listing[0] is None:
            self.server.stopped.wait(2 * SECONDS)
            self.close_connection = True
        elif repo.listing is not None:
            self.send(repo.listing[0], repo.listing[1], Content_Type="text/html")
        elif commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif tree:
            entries = [
                {"type": "file", "path": file, "size": len(data), "oid": git_hash(data)}
                for file, data in commit.files.items()
            ]
            self.send(200, json.dumps(entries).encode(), Content_Type="application/json")
        else:
            siblings = [
                {"rfilename": file, "size": repo.sizes.get(file, len(data))}
                for file, data in commit.files.items()
            ]
            data = {"_id": "0", "id": name, "modelId": name, "sha": commit.sha, "tags": []}
            body = json.dumps({**data, "private": False, "downloads": 0, "siblings": siblings})
            self.send(200, body.encode(), Content_Type="application/json")
            if repo.moves_to:
                repo.past.append(repo.branches["main"])
                repo.branches["main"] = repo.moves_to.pop(0)

    def resolve(self, repo: Repo, revision: str, name: str, login: str) -> None:
        commit = repo.find(revision)
        if repo.gated and login != f"Bearer {repo.token}":
            self.refuse(403 if login else 401, "GatedRepo", "Access to this model is restricted.")
        elif commit is None:
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif name not in commit.files:
            self.refuse(404, "EntryNotFound", "Entry not found")
        elif name in repo.large:
            data = commit.files[name]
            digest = hashlib.sha256(data).hexdigest()
            self.server.elsewhere[digest] = data
            self.send(
                302,
                Location=f"http://localhost:{self.server.server_port}/elsewhere/{digest}",
                X_Repo_Commit=commit.sha,
                X_Linked_Etag=f'"{digest}"',
                X_Linked_Size=str(len(data)),
            )
        else:
            how = repo.broken.get(name, "") if self.command == "GET" else ""
            self.send_file(commit.files[name], how, X_Repo_Commit=commit.sha)

    def send_file(self, data: bytes, how: str, **headers: str) -> None:
        headers.update(ETag=f'"{git_hash(data)}"', Accept_Ranges="bytes")
        start = int(self.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        status = 206 if start else 200
        if start:
            headers["Content_Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        half = data[start : len(data) // 2]
        if how == "short":  # what a cache between may do: it does not know of the rest
            self.send(status, half, **headers)
        elif how == "cut":
            self.send(status, half, len(data) - start, **headers)
            self.close_connection = True
        else:
            self.send(status, data[start:], **headers)


class Hub(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos: dict[str, Repo] = {}
        self.elsewhere: dict[str, bytes] = {}
        self.log: list[tuple[str, str]] = []
        self.logins: list[tuple[str, str]] = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def handle_error(self, *args: Any) -> None:
        pass  # a client that went away

    def stop(self) -> None:
        self.stopped.set()
        self.shutdown()
        self.thread.join(SECONDS)
        self.server_close()

    def asked_for(self, *methods: str) -> list[str]:
        """The files that were asked for, by any of some methods."""
        paths = [path for how, path in self.log if how in methods and "/resolve/" in path]
        return sorted(path.split("/resolve/")[1].split("/", 1)[1] for path in paths)


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    try:
        yield server
    finally:
        server.stop()


# -- What it serves, and who asks ---------------------------------------------


def make_tokenizer(text: str, vocab_size: int = 300) -> BPETokenizer:
    tokenizer = BPETokenizer().train(
        [text] * 3, vocab_size, special_tokens=["<|endoftext|>"], verbose=False
    )
    tokenizer.eos_token = "<|endoftext|>"
    return tokenizer


FIRST = make_tokenizer("the theme of the thing, then the others of the thirteen")
SECOND = make_tokenizer("nothing, naive and other native things of 42 or 4242", 290)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of two tokenizers, as `save` writes them."""
    made = {}
    for name, tokenizer in (("first", FIRST), ("second", SECOND)):
        folder = tmp_path_factory.mktemp(name)
        tokenizer.save(folder, verbose=False)
        made[name] = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        assert {"tokenizer.json", "tokenizer_config.json"} <= set(made[name])
    return made


@pytest.fixture
def repo(hub: Hub, saved: dict[str, dict[str, bytes]]) -> Repo:
    """A repository with a tokenizer among much else, and an older one on a branch."""
    rest = {
        name: b"not to be asked for"
        for name in (
            ".gitattributes README.md model.safetensors pytorch_model.bin model-q4.gguf "
            "modeling_some.py tokenization_some.py tokenizer.model vocab.json merges.txt "
            "generation_config.json onnx/tokenizer.json ranks/other.tiktoken"
        ).split()
    }
    main = Commit({**rest, **saved["first"], "config.json": b'{"model_type": "llama"}'})
    hub.repos[REPO] = Repo({"main": main, "v2/next": Commit({**rest, **saved["second"]})})
    return hub.repos[REPO]


def run(
    hub: Hub,
    cache: Path,
    *jobs: dict[str, Any],
    program: str = PROGRAM,
    load: str = LOAD,
    quiet: bool = True,
    **changes: str,
) -> Any:
    """Do what the jobs say in a new process; return what each gave."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))
        and not name.lower().endswith("_proxy")
    }
    environment = {
        **kept,
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DOWNLOAD_TIMEOUT": "10",
        "HF_HUB_ETAG_TIMEOUT": "10",
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONPATH": str(Path(bpe_tokenizer.__file__).parent),
        "PYTHONUTF8": "1",
        **changes,
    }
    asked = [{"model_name_or_path": REPO, "text": TEXT, **job} for job in jobs]
    done = subprocess.run(
        [sys.executable, "-c", load + program],
        input=json.dumps(asked),
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
        env=environment,
        cwd=cache,
    )
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert not (quiet and done.stderr)  # such as progress bars
    return json.loads(done.stdout)


def loaded(tokenizer: BPETokenizer) -> dict[str, Any]:
    return {"ids": tokenizer.encode(TEXT, allowed_special="all"), "eos": "<|endoftext|>"}


def assert_error(answer: dict[str, Any], kind: str, *words: str) -> None:
    assert answer.get("error") == kind, answer
    for word in words:
        assert word in answer["message"], answer
    assert len(answer["message"]) < 300 and "\n" not in answer["message"]


def test_the_two_tokenizers_differ() -> None:
    assert loaded(FIRST) != loaded(SECOND)
    assert len(loaded(FIRST)["ids"]) > 10


# -- Loading ------------------------------------------------------------------


def test_gives_the_ids_of_the_source_and_asks_for_no_more_than_needed(
    hub: Hub, repo: Repo, tmp_path: Path
) -> None:
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]
    wanted = {"config.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}
    assert hub.asked_for("GET") == sorted(wanted & set(repo.branches["main"].files))
    assert set(hub.asked_for("HEAD")) <= wanted  # not even that of the others


def test_the_module_alone_downloads_too(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    hide = "import sys; sys.modules['bpe_tokenizer_tools'] = None\n"
    program = hide + LOAD.replace("from bpe_tokenizer_tools.formats import hub\n", "") + PROGRAM
    run_alone = functools.partial(run, hub, tmp_path, program=program, load="")
    assert run_alone({}, {"local_files_only": True}, quiet=False) == [loaded(FIRST)] * 2
    assert "vocab.json" not in hub.asked_for("GET")


def test_a_name_is_looked_up_on_the_hub(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    by_name = "BPETokenizer.from_pretrained(f'hf:{model_name_or_path}', verbose=False)"
    call = "BPETokenizer.from_huggingface(model_name_or_path, verbose=False, **options)"
    assert call in LOAD
    answers = run(
        hub, tmp_path, {}, {"model_name_or_path": "no/such"}, load=LOAD.replace(call, by_name)
    )
    assert answers[0] == loaded(FIRST)
    assert_error(answers[1], "PermissionError", "no/such")


def test_cached_files_are_not_downloaded_again(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    run(hub, tmp_path, {})
    hub.log.clear()
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]
    assert (hub.asked_for("GET"), hub.asked_for("HEAD")) == ([], ["config.json"])
    hub.log.clear()
    sha = repo.branches["main"].sha
    assert run(hub, tmp_path, {"revision": sha}) == [loaded(FIRST)]
    assert hub.log == []  # a commit does not change


def test_works_offline_once_cached(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]
    hub.stop()
    jobs = [{}, {"revision": "main"}, {"local_files_only": True}, {"revision": "v2/next"}]
    *good, missing = run(hub, tmp_path, *jobs)
    assert good == [loaded(FIRST)] * 3
    assert_error(missing, "ConnectionError", REPO, "v2/next", "127.0.0.1", "refused", "try again")
    forbidden = run(hub, tmp_path, {}, {"revision": "v2/next"}, HF_HUB_OFFLINE="1")
    assert forbidden[0] == loaded(FIRST)
    assert_error(forbidden[1], "ConnectionError", "v2/next", "HF_HUB_OFFLINE")


def test_local_files_only_never_connects(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    (missing,) = run(hub, tmp_path, {"local_files_only": True})
    assert_error(missing, "FileNotFoundError", REPO, "cache", "local_files_only=False")
    assert hub.log == []
    run(hub, tmp_path, {})
    hub.log.clear()
    assert run(hub, tmp_path, {"local_files_only": True}) == [loaded(FIRST)]
    assert hub.log == []


def test_a_cache_without_a_tokenizer_is_not_taken_for_one(
    hub: Hub, repo: Repo, tmp_path: Path
) -> None:
    program = """
import huggingface_hub
huggingface_hub.hf_hub_download("someone/some-model", "tokenizer_config.json")
huggingface_hub.hf_hub_download("someone/some-model", "vocab.json")
print("[]")
"""
    run(hub, tmp_path, program=program)
    missing, good = run(hub, tmp_path, {"local_files_only": True}, {})
    assert_error(missing, "FileNotFoundError", REPO, "cache")
    assert good == loaded(FIRST)


def test_what_other_programs_cached_is_used(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    program = """
import huggingface_hub
huggingface_hub.snapshot_download("someone/some-model", ignore_patterns=["*.safetensors", "o*"])
print("[]")
"""
    run(hub, tmp_path, program=program, quiet=False)
    hub.stop()
    assert run(hub, tmp_path, {}, {"local_files_only": True}) == [loaded(FIRST)] * 2


def test_progress_bars_are_for_those_who_want_them(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    program = """
import io

class Terminal(io.StringIO):
    def isatty(self):
        return True

shown = []
for verbose, revision in (False, "main"), (True, "v2/next"), (False, "v3"):
    sys.stderr = Terminal()
    hub.download("someone/some-model", revision=revision, verbose=verbose)
    shown.append(sys.stderr.getvalue())
print(json.dumps(shown))
"""
    repo.branches["v3"] = Commit({"tokenizer.json": b"{}"})
    quiet, shown, quiet_again = run(hub, tmp_path, program=program)
    assert (quiet, quiet_again) == ("", "") and "tokenizer.json" in shown


def test_cache_dir_is_where_files_are_kept(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    missing = {"local_files_only": True, "cache_dir": str(other)}
    answers = run(
        hub, tmp_path, {"cache_dir": str(one)}, {**missing, "cache_dir": str(one)}, missing
    )
    assert answers[:2] == [loaded(FIRST)] * 2
    assert_error(answers[2], "FileNotFoundError", REPO)
    assert list(one.glob("*/snapshots/*/tokenizer.json")) and not other.exists()
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    (answer,) = run(hub, tmp_path, {"cache_dir": str(blocked)})
    assert "OSError" in answer["kinds"] and "ConnectionError" not in answer["kinds"]
    assert str(blocked) in answer["message"]


def test_revision_is_a_branch_or_a_commit(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    sha = repo.branches["v2/next"].sha
    jobs = [{"revision": "v2/next"}, {}, {"revision": repo.branches["main"].sha}]
    assert run(hub, tmp_path / ".", *jobs) == [loaded(SECOND), loaded(FIRST), loaded(FIRST)]
    cache = tmp_path / "commit"
    cache.mkdir()
    assert run(hub, cache, {"revision": sha}) == [loaded(SECOND)]
    hub.stop()
    assert run(hub, cache, {"revision": sha}) == [loaded(SECOND)]
    assert run(hub, tmp_path, *jobs) == [loaded(SECOND), loaded(FIRST), loaded(FIRST)]


def test_a_branch_that_moved_is_followed(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    run(hub, tmp_path, {})
    repo.branches["main"] = repo.branches["v2/next"]
    assert run(hub, tmp_path, {}) == [loaded(SECOND)]
    hub.stop()
    assert run(hub, tmp_path, {}) == [loaded(SECOND)]


def test_a_branch_that_moves_meanwhile_never_gives_a_mixture(
    hub: Hub, repo: Repo, tmp_path: Path
) -> None:
    first = repo.branches["main"]
    repo.moves_to = [repo.branches["v2/next"]]
    assert run(hub, tmp_path, {}) == [loaded(SECOND)]
    again = tmp_path / "again"
    again.mkdir()
    restless = [Commit({**first.files, "README.md": b"%d" % i}) for i in range(9)]
    repo.branches["main"], repo.moves_to = first, restless
    (answer,) = run(hub, again, {})
    assert_error(answer, "ConnectionError", REPO, "changed", "try again")


def test_large_files_come_from_elsewhere_without_the_token(
    hub: Hub, repo: Repo, tmp_path: Path
) -> None:
    repo.large, repo.token = frozenset({"tokenizer.json"}), TOKEN
    assert run(hub, tmp_path, {"token": TOKEN}) == [loaded(FIRST)]
    assert any(path.startswith("/elsewhere/") for how, path in hub.log)
    assert not any(path.startswith("/elsewhere/") for path, login in hub.logins)


VOCABULARIES = {
    "tokenizer.json tekken.json tokenizer.model x.tiktoken": "tokenizer.json",
    "tekken.json params.json consolidated.safetensors": "tekken.json",
    "vocab.json merges.txt pytorch_model.bin": "merges.txt vocab.json",
    "some.tiktoken deep/other.tiktoken ..\\x.tiktoken .x.tiktoken": "some.tiktoken",
    "tiktoken.model modeling.py": "tiktoken.model",
    "tokenizer.model vocab.json added_tokens.json": "added_tokens.json tokenizer.model",
    "tokenizer.json chat_template.jinja": "chat_template.jinja tokenizer.json",
    "tiktoken.model chat_template.json special_tokens_map.json config.json tokenizer_config.json "
    "added_tokens.json": "added_tokens.json chat_template.json config.json "
    "special_tokens_map.json tiktoken.model tokenizer_config.json",
    "additional_chat_templates/rag.jinja tokenizer.json additional_chat_templates/x/y.jinja "
    "additional_chat_templates/README.md": "additional_chat_templates/rag.jinja tokenizer.json",
}


def test_the_vocabulary_of_any_format_is_found(hub: Hub, tmp_path: Path) -> None:
    for i, present in enumerate(VOCABULARIES):
        files = {name: b"%d %s" % (i, name.encode()) for name in present.split()}
        hub.repos[f"formats/n{i}"] = Repo({"main": Commit(files)})
    program = """
found = []
for job in json.load(sys.stdin):
    folder = hub.download(job["model_name_or_path"])
    assert folder == hub.download(job["model_name_or_path"], local_files_only=True)
    files = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    found.append(" ".join(sorted(os.path.relpath(file, folder) for file in files)))
print(json.dumps(found))
"""
    jobs = [{"model_name_or_path": name} for name in hub.repos]
    assert run(hub, tmp_path, *jobs, program=program) == list(VOCABULARIES.values())
    assert hub.asked_for("GET") == sorted(" ".join(VOCABULARIES.values()).split())


def test_files_without_a_pattern_get_one_by_argument(hub: Hub, tmp_path: Path) -> None:
    FIRST.export(tmp_path / "x.tiktoken", "tiktoken", without_normalizer=True)
    ranks = (tmp_path / "x.tiktoken").read_bytes()
    hub.repos[REPO] = Repo({"main": Commit({"tiktoken.model": ranks})})
    given = {"split_pattern": "gpt2", "special_tokens": FIRST.special_tokens}
    bare, named = run(hub, tmp_path, {}, given)
    assert bare["error"] == "FileFormatError" and "split_pattern" in bare["message"]
    assert named["ids"] == loaded(FIRST)["ids"]


# -- Refusals -----------------------------------------------------------------


def test_private_repositories_need_the_right_token(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    repo.token = TOKEN
    jobs = [{}, {"token": "hf_wrong"}, {"token": "hf_another"}, {"token": TOKEN}]
    stranger, wrong, other, good = run(hub, tmp_path, *jobs)
    for answer in (stranger, wrong):
        assert_error(answer, "PermissionError", REPO, "private", "hf auth login", "token=")
    assert_error(other, "FileNotFoundError", REPO, "check the name", "token=")
    assert "hf_" not in "".join(str(answer) for answer in (stranger, wrong, other))
    assert good == loaded(FIRST)
    home = tmp_path / "home"
    home.mkdir()
    assert run(hub, home, {}, HF_TOKEN=TOKEN) == [loaded(FIRST)]  # a saved login does as well


def test_gated_repositories_say_so(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    repo.token, repo.gated = TOKEN, True
    stranger, other, good = run(hub, tmp_path, {}, {"token": "hf_another"}, {"token": TOKEN})
    for answer in (stranger, other):
        assert_error(answer, "PermissionError", REPO, "gated", "ask for access", "token=")
    assert good == loaded(FIRST)


def test_a_token_that_is_none_is_refused_unseen(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    tokens = [f"{TOKEN}\n", f"{TOKEN}\r\nX-Evil: 1", "hf_é", " ", ""]
    for answer in run(hub, tmp_path, *({"token": token} for token in tokens)):
        assert_error(answer, "ValueError", "token")
    assert hub.log == []


def test_a_refusal_is_told_even_if_the_files_are_cached(
    hub: Hub, repo: Repo, tmp_path: Path
) -> None:
    run(hub, tmp_path, {})
    repo.token = TOKEN
    refused, cached = run(hub, tmp_path, {}, {"local_files_only": True})
    assert_error(refused, "PermissionError", REPO)
    assert cached == loaded(FIRST)


def test_repositories_and_revisions_that_do_not_exist(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    absent = {"model_name_or_path": "someone/no-model"}
    jobs = [absent, {**absent, "token": TOKEN}, {"revision": "v3"}, {"revision": "0" * 40}]
    stranger, known, branch, commit = run(hub, tmp_path, *jobs)
    assert_error(stranger, "PermissionError", "someone/no-model does not exist", "check the name")
    assert_error(known, "FileNotFoundError", "someone/no-model", "check the name")
    assert_error(branch, "FileNotFoundError", REPO, "no revision v3", "branches")
    assert_error(commit, "FileNotFoundError", REPO, "no revision 000")
    assert hub.asked_for("HEAD", "GET") == []


def test_a_repository_without_a_tokenizer(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    files = "README.md config.json model.gguf model.safetensors vocab.json onnx/tokenizer.json"
    repo.branches["main"] = Commit(dict.fromkeys(files.split(), b"{}"))
    repo.branches["empty"] = Commit({})
    for answer in run(hub, tmp_path, {}, {"revision": "empty"}):
        assert_error(answer, "FileNotFoundError", REPO, "no tokenizer", "tokenizer.json", "merges")
    assert hub.asked_for("HEAD", "GET") == []


def test_names_that_are_no_repository(hub: Hub, tmp_path: Path) -> None:
    names = [
        *("../../nowhere", "someone/../nowhere", "/no/where", "~/nowhere", "one/two/three"),
        *("someone\\nowhere", "someone/no where", "someone/no%2e%2e", "someone/a--b", "someone/"),
        *("https://huggingface.co/someone/some-model", "someone/x\n", "someone/\0", "x" * 500),
    ]
    for answer in run(hub, tmp_path, *({"model_name_or_path": name} for name in names)):
        assert_error(answer, "ValueError", "expected a directory that exists or a repository")
    assert hub.log == []


def test_revisions_that_are_none(hub: Hub, tmp_path: Path) -> None:
    revisions = [
        *("../../x", "a/../b", "./a", "/etc", "a//b", "a/", "a\\b", "a b", "", "-x", "a\0b"),
        *("é" * 300, 3),
    ]
    for answer in run(hub, tmp_path, *({"revision": revision} for revision in revisions)):
        assert_error(answer, "ValueError", "revision must be a branch, tag or commit")
    assert hub.log == []


# -- Trouble ------------------------------------------------------------------


def cached_whole(cache: Path, commit: Commit) -> bool:
    """Whether what lies in the cache's snapshots is as it is in the repository."""
    found = [path for path in cache.glob("**/snapshots/**/*") if path.is_file()]
    return all(path.read_bytes() == commit.files[path.name] for path in found)


@pytest.mark.parametrize("how", ["short", "cut"])
def test_a_truncated_download_leaves_nothing_half(
    hub: Hub, repo: Repo, tmp_path: Path, how: str
) -> None:
    repo.broken = {"tokenizer.json": how}
    # The client tells its log of each of its own attempts to go on.
    broken, cached = run(hub, tmp_path, {}, {"local_files_only": True}, quiet=how == "short")
    assert_error(broken, "ConnectionError", REPO, "nothing incomplete is kept", "try again")
    assert_error(cached, "FileNotFoundError", REPO)
    assert not list(tmp_path.glob("**/snapshots/*/tokenizer.json"))
    assert list(tmp_path.glob("**/snapshots/*/tokenizer_config.json"))
    assert cached_whole(tmp_path, repo.branches["main"])
    repo.broken = {}
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]
    assert cached_whole(tmp_path, repo.branches["main"])


def test_an_update_that_breaks_off_leaves_the_former(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]
    repo.branches["main"] = repo.branches["v2/next"]
    repo.broken = {"tokenizer.json": "short"}
    assert run(hub, tmp_path, {}, {"local_files_only": True}) == [loaded(FIRST)] * 2
    hub.stop()
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]


def test_a_hub_that_is_down_is_not_needed_if_cached(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    repo.listing = 503, b"<html>maintenance</html>"
    (down,) = run(hub, tmp_path, {})
    assert_error(down, "ConnectionError", REPO, "503", "try again")
    repo.listing = None
    run(hub, tmp_path, {})
    repo.listing = 503, b"<html>maintenance</html>"
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]


def test_an_answer_that_is_not_the_hubs(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    bodies = [
        b"<html>please log in</html>",
        b"{}",
        b'{"id": "x", "sha": null, "siblings": []}',
        b'{"id": "x", "sha": "../../../../x", "siblings": [{"rfilename": "tokenizer.json"}]}',
    ]
    for i, body in enumerate(bodies):
        hub.repos[f"answers/n{i}"] = Repo(repo.branches, listing=(200, body))
    jobs = [{"model_name_or_path": name} for name in hub.repos if name != REPO]
    answers = run(hub, tmp_path, *jobs)
    assert len(answers) == len(bodies)
    for answer in answers:
        assert_error(answer, "ConnectionError", "127.0.0.1", "HF_ENDPOINT", "proxy")
    assert hub.asked_for("HEAD", "GET") == []


def test_a_file_too_large_for_a_tokenizer_is_not_downloaded(
    hub: Hub, repo: Repo, tmp_path: Path
) -> None:
    repo.sizes = {"tokenizer.json": 2**40, "model.safetensors": 2**40}
    (answer,) = run(hub, tmp_path, {})
    assert_error(answer, "ValueError", "tokenizer.json", "1,099,511,627,776", "the limit is")
    assert hub.asked_for("HEAD", "GET") == []
    repo.sizes = {"model.safetensors": 2**40}
    assert run(hub, tmp_path, {}) == [loaded(FIRST)]


def test_a_silent_server_is_not_waited_for_for_ever(hub: Hub, repo: Repo, tmp_path: Path) -> None:
    repo.listing = None, b""
    program = "hub._SECONDS_TO_LIST = 1\n" + PROGRAM
    (answer,) = run(hub, tmp_path, {}, program=program)
    assert_error(answer, "ConnectionError", REPO, "try again")


def test_the_client_is_asked_for_by_name(hub: Hub, tmp_path: Path) -> None:
    program = """
sys.modules["huggingface_hub"] = None
try:
    load("someone/some-model")
except ImportError as error:
    print(json.dumps(str(error)))
"""
    message = run(hub, tmp_path, program=program)
    assert "from_huggingface needs" in message and "pip install huggingface_hub" in message
