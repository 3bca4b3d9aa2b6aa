"""The cache of compiled vocabularies: what comes out of it, and what does not."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import random
import shutil
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, extension, read_corpus
from images import with_checksum
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import SPLIT_PATTERNS, AddedToken, BPETokenizer, FileFormatError

native = extension()
cache: Any = need("_bpe_tokenizer.cache")
FOLDER = Path(native.__file__ or "").parent.parent
TEXT = "Grüße, 世界! def f(x): return x+1  # don't <|x|> \U0001f600\n\n  12345"
pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there is no cache here")


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """Run these tests once: only one engine has a cache."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_LEAST_TOKENS", 0)
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def trained() -> BPETokenizer:
    tokens = ["<|begin_of_text|>", AddedToken("<|x|>", special=False), "<|a long special token|>"]
    tokenizer = BPETokenizer("cl100k")
    text = (ROOT / "bpe_tokenizer.py").read_text(encoding="utf-8")
    tokenizer.train(text, 1_500, special_tokens=tokens, verbose=False, num_workers=1)
    tokenizer.chat_templates["default"] = "{{ messages }}"
    return tokenizer


@pytest.fixture
def saved(trained: BPETokenizer, tmp_path: Path) -> Path:
    trained.save(tmp_path / "saved", verbose=False)
    return tmp_path / "saved"


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.bpe")) if folder.exists() else []


def is_mapped() -> bool:
    """Return whether this process has a file of the cache mapped."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("needs Linux")
    names = {line.split()[-1] for line in maps.read_text().splitlines() if ".bpe" in line}
    return bool(names)


def check_same(loaded: BPETokenizer, expected: BPETokenizer) -> None:
    """Check all that can be seen of two tokenizers."""
    assert loaded == expected
    assert loaded.definition == expected.definition
    assert list(loaded.definition.vocab.items()) == list(expected.definition.vocab.items())
    assert list(loaded.definition.merges) == list(expected.definition.merges)
    assert loaded.get_vocab() == expected.get_vocab()
    assert list(loaded.get_vocab()) == list(expected.get_vocab())
    assert loaded.merges == expected.merges
    assert loaded.vocab_size == expected.vocab_size
    assert loaded.max_id == expected.max_id
    assert loaded.added_tokens == expected.added_tokens
    assert loaded.chat_templates == expected.chat_templates
    assert loaded.bos_token == expected.bos_token
    assert loaded._rest() == expected._rest()
    assert pickle.dumps(loaded) == pickle.dumps(expected)
    assert loaded.fingerprint == expected.fingerprint
    for options in ({}, {"allowed_special": "all"}, {"add_special_tokens": True}):
        ids = loaded.encode(TEXT, **options)
        assert ids == expected.encode(TEXT, **options)
        assert loaded.decode(ids) == expected.decode(ids)
        assert loaded.convert_ids_to_tokens(ids) == expected.convert_ids_to_tokens(ids)
    result = loaded.encode_with_offsets(TEXT)
    assert result.offsets == expected.encode_with_offsets(TEXT).offsets
    assert loaded.convert_tokens_to_ids(["the", "Ġthe", "<|x|>", "no such"]) == (
        expected.convert_tokens_to_ids(["the", "Ġthe", "<|x|>", "no such"])
    )


# -- What comes out ------------------------------------------------------------


def read_without_cache(path: Path) -> BPETokenizer:
    return bpe_tokenizer._from_read(BPETokenizer, *bpe_tokenizer._read_parts(path, None, []))


def test_a_cached_load_equals_a_fresh_one(
    saved: Path, trained: BPETokenizer, folder: Path, tmp_path: Path
) -> None:
    first = BPETokenizer.from_file(saved)
    assert len(kept(folder)) == 1
    before = kept(folder)[0].stat().st_mtime_ns
    second = BPETokenizer.from_file(saved)
    assert kept(folder)[0].stat().st_mtime_ns == before
    for each in (first, second, pickle.loads(pickle.dumps(second))):
        check_same(each, read_without_cache(saved))
        assert each == trained
    second.save(tmp_path / "again", verbose=False)
    for file in saved.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("format", ["tokenizer.json", "tiktoken", "gpt2", "vocab.json"])
def test_every_format(
    format: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = BPETokenizer("gpt2", normalizer=None)
    tokenizer.train(read_corpus("english")[:50_000], 900, verbose=False, num_workers=1)
    tokenizer.add_special_tokens(["<|x|>"])
    path = tmp_path / {"tiktoken": "a.tiktoken", "gpt2": "g"}.get(format, "tokenizer.json")
    if format == "vocab.json":
        names = {tokenizer.definition.write(t): i for t, i in tokenizer.definition.vocab.items()}
        merges = [[tokenizer.definition.write(part) for part in pair] for pair in tokenizer.merges]
        pattern = SPLIT_PATTERNS["gpt2"]
        data = {"vocab": names, "merges": merges, "split_pattern": pattern}
        path = tmp_path / "plain.json"
        path.write_text(json.dumps(data))
    else:
        tokenizer.export(path, format)
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", "0")
    expected = BPETokenizer.from_file(path)
    assert not kept(folder)
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(folder))
    for _ in range(2):
        check_same(BPETokenizer.from_file(path), expected)
        assert len(kept(folder)) == 1


def test_published_vocabularies(
    vocab_dir: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", "0")
    expected = BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken")
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", str(folder))
    for _ in range(2):
        check_same(BPETokenizer.from_file(vocab_dir / "r50k_base.tiktoken"), expected)
    assert len(kept(folder)) == 1


def test_options_and_files_beside_count(saved: Path, folder: Path, tmp_path: Path) -> None:
    path = saved / "tokenizer.json"
    plain = BPETokenizer.from_file(path)
    assert plain.chat_templates
    (saved / "chat_template.jinja").write_text("another")
    assert BPETokenizer.from_file(path).chat_templates == {"default": "another"}
    more = BPETokenizer.from_file(path, special_tokens=["<new>", "<newer>"])
    assert more.encode("<newer>", allowed_special="all") == [1_501]
    assert more.get_vocab()["<newer>"] == 1_501
    assert BPETokenizer.from_file(path, special_tokens={"<y>": 2_000}).max_id == 2_000
    assert BPETokenizer.from_file(path).max_id == 1_499
    data = json.loads(path.read_text())
    data["model"]["merges"].pop()
    path.write_text(json.dumps(data))
    assert len(BPETokenizer.from_file(path).merges) == len(plain.merges) - 1
    assert len(kept(folder)) == 5


def test_a_file_that_is_wrong_is_refused_each_time(saved: Path, folder: Path) -> None:
    path = saved / "tokenizer.json"
    path.write_text(path.read_text().replace('"merges": [', '"merges": [["x", "no token"], ', 1))
    for _ in range(2):
        with pytest.raises(FileFormatError, match=r"merges\[0\]"):
            BPETokenizer.from_file(path)
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            BPETokenizer.from_file(saved / "missing.json")
        with pytest.raises(ValueError, match="own split pattern"):
            BPETokenizer.from_file(saved, split_pattern="gpt2")
    assert not kept(folder)


# -- What does not -------------------------------------------------------------


@pytest.mark.parametrize("value", ["0", "", "relative"])
def test_it_can_be_switched_off_or_be_elsewhere(
    value: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", value)
    monkeypatch.chdir(tmp_path)
    BPETokenizer.from_file(saved)
    places = {"": home / ".cache" / "bpe_tokenizer", "relative": tmp_path / "relative"}
    if value == "0":
        assert not list(home.iterdir())
        return
    assert len(kept(places[value])) == 1
    assert stat.S_IMODE(places[value].stat().st_mode) == 0o700
    assert stat.S_IMODE(kept(places[value])[0].stat().st_mode) == 0o600
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    BPETokenizer.from_file(saved)
    assert len(kept(tmp_path / "xdg" / "bpe_tokenizer")) == (value == "")


def test_small_vocabularies_are_left_out(
    saved: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LEAST_TOKENS", 4_096)
    BPETokenizer.from_file(saved)
    assert not kept(folder)


def damages(content: bytes) -> list[bytes]:
    """Return what could become of a file."""
    chance = random.Random(1)
    found = [content[:size] for size in (0, 1, 100, 4096, len(content) // 2, len(content) - 1)]
    found += [content + b"\0", bytes(len(content)), content[64:], content[:64] + content]
    places = [*range(0, 160, 3), *(chance.randrange(len(content)) for _ in range(100))]
    for at in places:
        changed = bytearray(content)
        changed[at] ^= 1 << chance.randrange(8)
        found.append(bytes(changed))
    return found


def test_a_damaged_file_is_made_again(saved: Path, trained: BPETokenizer, folder: Path) -> None:
    BPETokenizer.from_file(saved)
    (file,) = kept(folder)
    content = file.read_bytes()
    assert all(native.Encoder.from_image(damaged) is None for damaged in damages(content))
    for damaged in damages(content)[::9]:
        file.unlink()
        file.write_bytes(damaged)
        file.chmod(0o600)
        assert BPETokenizer.from_file(saved) == trained
        assert native.Encoder.from_image(file.read_bytes())
    assert kept(folder) == [file]


def use(encoder: Any, whole: bool) -> None:
    """Do with an encoder what reads all of its memory; answers may be wrong."""
    texts = [TEXT * 3, "ab" * 3_000, "\0\1\2\3" * 40, bytes(range(128)).decode()]
    for pattern in ("gpt2", "cl100k"):
        for added in ({}, {b"<x>": 1_499}):
            try:
                made = native.Encoder(encoder, [], pattern, whole, added)
            except ValueError:  # it has no token for some byte, say
                continue
            for text in texts:
                ids = made.encode(text)
                made.offsets(text, ids)
                assert len(made.decode(ids)) == len(text.encode())
    tokens, _ = encoder.listed(True)
    for token in tokens[::7]:
        encoder.id_of(token)
    encoder.merges(0, 10**6)
    encoder.token(encoder.largest_id)


@pytest.mark.parametrize("whole", [False, True])
def test_a_forged_file_does_no_harm(whole: bool, trained: BPETokenizer) -> None:
    chance = random.Random(2)
    definition = trained.definition
    small = dict(list(definition.vocab.items())[:600])
    merges = [
        (left, right)
        for left, right in definition.merges
        if left < 600
        and right < 600
        and trained._id_to_bytes[left] + trained._id_to_bytes[right] in small
    ]
    image = native.Encoder(small, merges, None, ignore_merges=whole).image(b"rest")
    assert with_checksum(image) == image
    numbers = len(image) // 8
    used = [i for i in range(numbers) if image[8 * i : 8 * i + 8].strip(b"\0\xff")]
    passed = 0
    for number in range(100):
        changed = bytearray(image)
        at = 8 * (2 + number % 16 if number < 32 else chance.choice(used))
        kinds = [0, 1, 2**32 - 1, 2**64 - 1, chance.randrange(2**64), chance.randrange(2**11)]
        changed[at : at + 8] = struct.pack("=Q", chance.choice(kinds))
        found = native.Encoder.from_image(with_checksum(changed))
        if found:
            passed += 1
            use(found[0], whole)
    assert passed


def test_a_forged_rest_is_ignored(saved: Path, trained: BPETokenizer, folder: Path) -> None:
    BPETokenizer.from_file(saved)
    (file,) = kept(folder)
    encoder, rest = native.Encoder.from_image(file.read_bytes())
    for forged in (b"", b"[", b"{}", b"[1, 2, 3, 4, 5]", b"null", rest.replace(b"prefix", b"x")):
        file.unlink()
        file.write_bytes(encoder.image(forged))
        file.chmod(0o600)
        assert BPETokenizer.from_file(saved) == trained


def test_what_others_could_write_to_is_not_used(
    saved: Path, trained: BPETokenizer, folder: Path, tmp_path: Path
) -> None:
    BPETokenizer.from_file(saved)
    (file,) = kept(folder)
    good = file.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(good)
    other.chmod(0o600)
    file.unlink()
    file.symlink_to(other)
    assert cache._open(file) is None
    assert cache._open(other) is not None
    for mode in (0o620, 0o602, 0o666):
        other.chmod(mode)
        assert cache._open(other) is None
    file.unlink()
    os.mkfifo(file)
    assert BPETokenizer.from_file(saved) == trained  # and it does not wait for a writer
    folder.chmod(0o777)
    file.unlink(missing_ok=True)
    assert BPETokenizer.from_file(saved) == trained
    assert not kept(folder)
    folder.chmod(0o700)
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert BPETokenizer.from_file(saved) == trained
    assert not kept(tmp_path / "moved")


def test_another_users_files_are_not_used(
    saved: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BPETokenizer.from_file(saved)
    (file,) = kept(folder)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache._open(file) is None
    assert not cache._is_usable(folder)
    file.unlink()
    BPETokenizer.from_file(saved)
    assert not kept(folder)


def test_without_room_it_loads_all_the_same(
    saved: Path, trained: BPETokenizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("a file is in its place")
    assert BPETokenizer.from_file(saved) == trained
    folder.unlink()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(cache.os, "rename", full)
        assert BPETokenizer.from_file(saved) == trained
    assert not list(folder.iterdir())  # nothing is left behind
    monkeypatch.setenv("BPE_TOKENIZER_CACHE", "/proc/nowhere")
    assert BPETokenizer.from_file(saved) == trained


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    saved: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = cache.core._read_parts

    def _read_parts(path: Path, *rest: Any) -> Any:
        parts = reader(path, *rest)
        (saved / "chat_template.jinja").write_text("new")
        return parts

    monkeypatch.setattr(cache.core, "_read_parts", _read_parts)
    BPETokenizer.from_file(saved)
    assert not kept(folder)
    assert BPETokenizer.from_file(saved).chat_templates == {"default": "new"}


def test_what_is_used_least_recently_goes_first(
    saved: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved / "chat_template.jinja"

    def load(text: str) -> None:
        path.write_text(text)
        BPETokenizer.from_file(saved)

    load("one")
    (first,) = kept(folder)
    (folder / ".1.0.bpe").write_bytes(b"left by one that was killed")
    (folder / "mine.txt").write_text("stays")
    for file, days in ((first, 3), (folder / ".1.0.bpe", 2)):
        os.utime(file, (time.time() - days * 86_400,) * 2)
    monkeypatch.setattr(cache, "MOST_BYTES", int(first.stat().st_size * 2.5))
    load("two")
    assert first in kept(folder)
    assert not (folder / ".1.0.bpe").exists()
    load("one")  # is used again
    assert time.time() - first.stat().st_mtime < 86_400
    for file in kept(folder):
        if file != first:
            os.utime(file, (time.time() - 1_000,) * 2)
    load("three")
    assert first in kept(folder)
    assert len(kept(folder)) == 2
    assert (folder / "mine.txt").exists()


# -- Several processes ---------------------------------------------------------

LOAD = """
import sys
from _bpe_tokenizer import cache
from bpe_tokenizer import BPETokenizer
cache._LEAST_TOKENS = 0
print(BPETokenizer.from_file(sys.argv[1]).fingerprint)
"""


def test_several_writers_at_once(saved: Path, trained: BPETokenizer, folder: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(FOLDER)])
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, str(saved)],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    assert {run.communicate()[0].strip() for run in runs} == {trained.fingerprint}
    assert len(kept(folder)) == 1
    assert BPETokenizer.from_file(saved) == trained


def _ids(tokenizer: BPETokenizer) -> list[int]:
    return tokenizer.encode(TEXT)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_map_what_was_pickled(
    method: str, trained: BPETokenizer, folder: Path, saved: Path
) -> None:
    loaded = BPETokenizer.from_file(saved)
    loaded = BPETokenizer.from_file(saved)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_ids, [loaded] * 4) == [trained.encode(TEXT)] * 4
    again = pickle.loads(pickle.dumps(loaded))
    again = pickle.loads(pickle.dumps(loaded))
    check_same(again, read_without_cache(saved))
    assert is_mapped()


def test_a_tokenizer_outlives_its_file(saved: Path, folder: Path) -> None:
    BPETokenizer.from_file(saved)
    loaded = BPETokenizer.from_file(saved)
    shutil.rmtree(folder)
    check_same(loaded, read_without_cache(saved))


def test_no_secret_of_the_process_is_kept(saved: Path, folder: Path) -> None:
    seeds = set()
    for _ in range(3):
        BPETokenizer.from_file(saved)
        (file,) = kept(folder)
        seeds.add(file.read_bytes()[17 * 8 : 18 * 8])
        file.unlink()
    assert len(seeds) == 3
