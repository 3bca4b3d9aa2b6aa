"""Tokenizers by name: fetched from a server in this process, checked, kept, found again."""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import Vocabulary, run_command
from oracles import need

from bpe_tokenizer import BPETokenizer
from bpe_tokenizer_tools.formats import by_name
from bpe_tokenizer_tools.formats.tiktoken import PUBLIC_SHA256

TEXT = "The cat's hat, 2024: naïve 東京 🙂\n\n  <|endoftext|> return x"
OPENAI = "https://openaipublic.blob.core.windows.net/encodings/"


class Server(ThreadingHTTPServer):
    """It serves the files of a folder, and remembers what it was asked for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class Handler(SimpleHTTPRequestHandler):
    server: Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache directory, empty; there is no other cache and no proxy."""
    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or name in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    return tmp_path / "cache" / "bpe_tokenizer"


@pytest.fixture
def files(tmp_path: Path, vocab_dir: Path) -> Path:
    """What the server has."""
    folder = tmp_path / "files"
    folder.mkdir()
    shutil.copy(vocab_dir / "r50k_base.tiktoken", folder)
    return folder


@pytest.fixture
def server(cache: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    found = Server(files)
    monkeypatch.setattr(by_name, "_URL", f"http://127.0.0.1:{found.server_port}/")
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that isn't there any more."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    monkeypatch.setattr(by_name, "_URL", f"http://127.0.0.1:{port}/")


def load(name: str = "r50k_base") -> BPETokenizer:
    return BPETokenizer.from_pretrained(name, verbose=False)


def as_tiktoken(name: str) -> str:
    """Return what tiktoken calls the file of an encoding."""
    return hashlib.sha1(f"{OPENAI}{name}.tiktoken".encode()).hexdigest()


# -- Fetching -----------------------------------------------------------------


def test_a_file_is_fetched_once(server: Server, cache: Path, vocab_dir: Path) -> None:
    expected = BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken")
    assert load() == expected
    assert load().encode(TEXT) == BPETokenizer.from_file("gpt2").encode(TEXT)
    assert server.asked == ["/r50k_base.tiktoken"]
    assert [path.name for path in cache.iterdir()] == ["r50k_base.tiktoken"]
    kept = (cache / "r50k_base.tiktoken").read_bytes()
    assert kept == (vocab_dir / "r50k_base.tiktoken").read_bytes()


def test_no_connection_is_made_once_it_is_there(
    offline: None, cache: Path, files: Path, vocab_dir: Path
) -> None:
    cache.mkdir(parents=True)
    shutil.copy(files / "r50k_base.tiktoken", cache)  # by hand, as the error says
    assert load() == BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken")


def test_the_error_offline_says_where_to_put_the_file(offline: None, cache: Path) -> None:
    with pytest.raises(ConnectionError) as caught:
        load("o200k_base")
    message = str(caught.value)
    assert f"{by_name._URL}o200k_base.tiktoken on another machine" in message
    assert message.endswith(f"put it at {cache / 'o200k_base.tiktoken'}")
    assert "Connection refused" in message and "\n" not in message
    assert not cache.exists()


def test_what_is_not_as_published_is_refused(server: Server, cache: Path, files: Path) -> None:
    (files / "r50k_base.tiktoken").write_text("<html>Please log in</html>")
    with pytest.raises(ConnectionError, match="sent something else: its sha256") as caught:
        load()
    assert PUBLIC_SHA256["r50k_base"] in str(caught.value)
    assert not cache.exists()
    with pytest.raises(ConnectionError, match="HTTP Error 404"):
        load("cl100k_base")


def answer_once(content: bytes) -> str:
    """Answer one request with some bytes, whatever it is; return the server's URL."""
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listening, listening.accept()[0] as connection:
            connection.recv(2**16)
            connection.sendall(content)

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}/"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\nIQ== 0", "broke off after 6 of 99 bytes"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: many\r\n\r\n", "invalid literal"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0"),
        (b"", "closed connection without response"),
    ],
)
def test_a_bad_answer_keeps_nothing(
    answer: bytes, message: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_name, "_URL", answer_once(answer))
    with pytest.raises(ConnectionError, match=message) as caught:
        load()
    assert "downloading it failed" in str(caught.value) and "\n" not in str(caught.value)
    assert not cache.exists()


def test_a_damaged_file_in_the_cache_is_replaced(server: Server, cache: Path, files: Path) -> None:
    good = (files / "r50k_base.tiktoken").read_bytes()
    cache.mkdir(parents=True)
    (cache / "r50k_base.tiktoken").write_bytes(good[:-2])
    load()
    assert (cache / "r50k_base.tiktoken").read_bytes() == good


def test_a_damaged_file_is_named_offline(offline: None, cache: Path) -> None:
    cache.mkdir(parents=True)
    (cache / "r50k_base.tiktoken").write_text("IQ== 0\n")
    with pytest.raises(ConnectionError, match=r"r50k_base\.tiktoken is another file, and"):
        load()


def test_a_cache_that_cannot_be_written_is_named(server: Server, cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("no directory")
    with pytest.raises(OSError, match=r"can't keep r50k_base there: .*; set TIKTOKEN_CACHE_DIR"):
        load()
    assert cache.read_text() == "no directory"


# -- Caches -------------------------------------------------------------------


@pytest.mark.parametrize("variable", ["TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"])
def test_tiktoken_and_this_library_share_a_cache(
    variable: str, cache: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = need("tiktoken.load")
    monkeypatch.setenv(variable, str(tmp_path / "shared"))
    data = (files / "r50k_base.tiktoken").read_bytes()
    monkeypatch.setattr(by_name, "_download", lambda name, place: data)
    ours = load()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [as_tiktoken("r50k_base")]
    monkeypatch.setattr(library, "read_file", None)  # neither of them fetches it again
    monkeypatch.setattr(by_name, "_download", None)
    public = importlib.import_module("tiktoken_ext.openai_public")
    theirs = need("tiktoken").Encoding(**public.r50k_base())
    assert theirs.encode_ordinary(TEXT) == ours.encode(TEXT) == load("gpt2").encode(TEXT)
    assert not cache.exists()


def test_what_tiktoken_keeps_by_default_is_copied(
    server: Server, cache: Path, files: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "temporary" / "data-gym-cache"
    shared.mkdir()
    url = f"{by_name._URL}r50k_base.tiktoken"
    place = shared / hashlib.sha1(url.encode()).hexdigest()
    shutil.copy(files / "r50k_base.tiktoken", place)
    load()
    assert server.asked == []
    place.write_text("anybody may write here")
    load()
    assert server.asked == []
    assert [path.name for path in cache.iterdir()] == ["r50k_base.tiktoken"]


def test_an_empty_variable_names_no_cache(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    load()
    assert (tmp_path / "own" / "r50k_base.tiktoken").is_file() and not cache.exists()


# -- Names --------------------------------------------------------------------


def test_a_name_never_shadows_a_path(
    offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = BPETokenizer("o200k")
    own.save("o200k_base", verbose=False)
    own.export("cl100k_base", "tokenizer.json")
    (tmp_path / "hf:org").mkdir()
    own.save("hf:org/model", verbose=False)
    for name in ("o200k_base", "cl100k_base", "hf:org/model"):
        assert load(name) == own


@pytest.mark.parametrize("name", ["gpt2", "p50k_edit", "o200k_harmony"])
def test_encodings_that_share_a_file(
    name: str,
    cache: Path,
    vocab_dir: Path,
    load_vocab: Callable[[str], Vocabulary],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = {"o200k_harmony": "o200k_base"}.get(name, "r50k_base")
    ranks = load_vocab(file)[0]
    public = need("tiktoken_ext.openai_public")
    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: ranks)
    monkeypatch.setattr(public, "data_gym_to_mergeable_bpe_ranks", lambda *_, **__: ranks)
    monkeypatch.setitem(PUBLIC_SHA256, "p50k_base", PUBLIC_SHA256["r50k_base"])  # not here
    data = (vocab_dir / f"{file}.tiktoken").read_bytes()
    monkeypatch.setattr(by_name, "_download", lambda name, place: data)
    given = getattr(public, name)()
    ours, theirs = load(name), need("tiktoken").Encoding(**given)
    assert ours.special_tokens == given["special_tokens"]
    assert ours.vocab_size == len(ranks) + len({*given["special_tokens"].values()})
    for text in (TEXT, "".join(given["special_tokens"]), "<|start|>user<|message|>Hi<|end|>"):
        assert ours.encode(text) == theirs.encode_ordinary(text)
        ids = ours.encode(text, allowed_special="all")
        assert ids == theirs.encode(text, allowed_special="all")
        assert ours.decode([id_ for id_ in ids if id_ != 200018]) == theirs.decode(
            [id_ for id_ in ids if id_ != 200018]  # two special tokens have this id
        )


def test_every_encoding_of_tiktoken_has_its_name() -> None:
    assert set(by_name.NAMES) == set(need("tiktoken").list_encoding_names())


def test_special_tokens_and_a_pattern_may_be_given(server: Server, vocab_dir: Path) -> None:
    given: Any = {"split_pattern": "cl100k", "special_tokens": {"<|x|>": 60000}}
    found = BPETokenizer.from_pretrained("gpt2", verbose=False, **given)
    assert found == BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken", **given)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("o200kbase", "did you mean 'o200k_base'?"),
        ("GPT-4o-mini", "did you mean 'o200k_base', the encoding of gpt-4o?"),
        ("gpt-4", "did you mean 'cl100k_base', the encoding of gpt-4?"),
        ("Qwen/Qwen3-0.6B", "for a repository on the HuggingFace Hub, write 'hf:Qwen/Qwen3-0.6B'"),
        ("CL100K", "did you mean 'cl100k_base'?"),
        (
            "nosuch",
            "expected a directory, a file such as tokenizer.json, hf:org/model, or one of cl100k",
        ),
        ("r50k_base/x", "did you mean 'r50k_base'?"),
        (
            "./tokenizer",
            "or one of cl100k_base, gpt2, o200k_base, o200k_harmony, p50k_base, p50k_edit, ",
        ),
    ],
)
def test_an_unknown_name(
    name: str, message: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    assert message in str(caught.value) and "no such file or directory; " in str(caught.value)


def test_a_name_like_that_of_a_path(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for given, meant in (("model", "models"), ("models/mien", os.path.join("models", "mine"))):
        with pytest.raises(FileNotFoundError, match="no such file or directory; did you") as caught:
            load(given)
        assert str(caught.value).endswith(f"did you mean {meant!r}?")
    for given in ("other/mine", "models/mine2/x", "a\0b"):
        with pytest.raises((FileNotFoundError, ValueError)) as refused:
            load(given)
        assert "did you mean" not in str(refused.value)


@pytest.mark.parametrize(("name", "repo"), [("hf:org/model", "org/model"), ("hf:gpt2", "gpt2")])
def test_a_name_on_the_hub(
    name: str, repo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = BPETokenizer("o200k")
    own.save(tmp_path, verbose=False)
    asked: list[str] = []

    def download(repo: str) -> Path:  # tests/formats/test_hub.py has a Hub
        asked.append(repo)
        return tmp_path

    monkeypatch.setattr(by_name.hub, "download", download)
    assert load(name) == own == BPETokenizer.from_file(name)
    assert asked == [repo, repo]


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:../x"])
def test_what_is_no_repository(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # there is no "../x"
    with pytest.raises(ValueError, match="expected a directory that exists or a repository"):
        load(name)


def test_a_directory_behind_hf(tmp_path: Path) -> None:
    BPETokenizer("o200k").save(tmp_path, verbose=False)
    assert load(f"hf:{tmp_path}") == BPETokenizer("o200k")


# -- Commands -----------------------------------------------------------------


@pytest.fixture
def known(cache: Path, offline: None, files: Path, tmp_path: Path) -> Path:
    """A folder with some text, for a user whose cache has r50k_base."""
    cache.mkdir(parents=True)
    shutil.copy(files / "r50k_base.tiktoken", cache)
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "info --tokenizer gpt2",
        "encode --tokenizer r50k_base --text Hi",
        "decode --tokenizer gpt2 --ids 1",
        "tokens --tokenizer gpt2 {}/text.txt",
        "view Hi --tokenizer gpt2 --with r50k_base",
        "trace Hi --tokenizer gpt2",
        pytest.param("check gpt2", marks=pytest.mark.slow),
        "convert gpt2 {}/out.json",
        "convert gpt2 {}/out.tiktoken",
        "evaluate gpt2 r50k_base --texts {}/text.txt",
        "compare gpt2 own=r50k_base --texts {}/text.txt",
        "align gpt2 r50k_base --text Hi",
        "extend gpt2 --tokens hatstand --output {}/extended",
        "prune gpt2 --corpus {}/text.txt --vocab-size 1000 --output {}/pruned",
        "sweep --tokenizer gpt2 --held-out {}/text.txt --sizes 1000",
        "pack {}/text.txt --tokenizer gpt2 --output {}/packed",
        "register gpt2 web --registry {}/registry",
    ],
)
def test_every_command_takes_a_name(
    command: str, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.split()[0] in ("evaluate", "compare", "pack"):
        need("numpy")
    argv = [part.replace("{}", str(known)) for part in command.split()]
    status, out, err = run_command(capsys, *argv)
    assert (status, "error" in err) == (0, False), err
    assert out or err


def test_the_name_is_what_people_see(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("numpy")
    texts = str(known / "text.txt")
    _, out, _ = run_command(capsys, "evaluate", "gpt2", "r50k_base", "--texts", texts)
    assert "gpt2" in out and "r50k_base" in out
    status, out, err = run_command(capsys, "info", "--tokenizer", "cl100k_base")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("bpe-tokenizer: error: cl100k_base: ") and " put it at " in err
