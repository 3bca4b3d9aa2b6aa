"""Under-trained tokens found in embeddings: of models trained on the spot, whose text is known."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import struct
import tarfile
import tracemalloc
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import EITHER_ENGINE, run_command
from oracles import need

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer

numpy = need("numpy")
torch = need("torch")
safetensors_torch = need("safetensors.torch")

from bpe_tokenizer_tools.backends import safetensors  # noqa: E402
from bpe_tokenizer_tools.checking.model_doctor import Diagnosis, diagnose  # noqa: E402

pytestmark = EITHER_ENGINE

INPUT, OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
TOKENS, ROWS, WIDTH = 500, 520, 24
PLANTED = (" SolidGoldMagikarp", " StreamerBot", " petertodd")


@dataclass(frozen=True)
class Model:
    """A trained model's tables, and how often training saw each token."""

    tokenizer: BPETokenizer
    tables: dict[str, Any]
    seen: Counter[int]


@functools.cache
def model(tied: bool) -> Model:
    """Train four positions' worth of context to predict the next token of Python's tarfile.

    The vocabulary comes from other text, too, which holds names that the model never sees: how
    glitch tokens come about.
    """
    text = Path(tarfile.__file__).read_text(encoding="utf-8")[:40_000]  # it does not change
    tokenizer = BPETokenizer()
    tokenizer.train([text, *["".join(PLANTED)] * 150], TOKENS - 2, verbose=False)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|unused|>"])
    ids: list[int] = []
    for document in text.split("\n\n"):
        ids += [*tokenizer.encode(document), tokenizer.special_tokens["<|endoftext|>"]]
    return Model(tokenizer, trained(torch.tensor(ids), tied), Counter(ids))


def trained(ids: Any, tied: bool, steps: int = 150) -> dict[str, Any]:
    torch.set_num_threads(1)  # so small a model gains nothing from more
    random = torch.Generator().manual_seed(0)
    table = torch.nn.Parameter(torch.randn(ROWS, WIDTH, generator=random) * 0.1)
    head = table
    if not tied:
        head = torch.nn.Parameter(torch.randn(ROWS, WIDTH, generator=random) * 0.1)
    mixing = torch.nn.Parameter(torch.randn(4, WIDTH, WIDTH, generator=random) * 0.2)
    parameters = [table, mixing, *([] if tied else [head])]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        at = torch.randint(4, len(ids), (256,), generator=random)
        before = table[torch.stack([ids[at - k] for k in range(1, 5)])]
        hidden = torch.tanh(torch.einsum("kbd,kde->be", before, mixing))
        loss = torch.nn.functional.cross_entropy(hidden @ head.T, ids[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {INPUT: table.detach(), **({} if tied else {OUTPUT: head.detach()})}


def save(tables: dict[str, Any], path: Path, dtype: Any = None) -> Path:
    held = {name: table.to(dtype or table.dtype).contiguous() for name, table in tables.items()}
    safetensors_torch.save_file(held, str(path), metadata={"format": "pt"})
    return path


def diagnosed(folder: Path, tied: bool, **options: Any) -> Diagnosis:
    made = model(tied)
    path = save(made.tables, folder / "model.safetensors")
    return diagnose(path, made.tokenizer, **options)


# -- What is found ------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_that_training_never_saw_are_found_and_others_are_not(
    tmp_path: Path, tied: bool
) -> None:
    report, made = diagnosed(tmp_path, tied), model(tied)
    listed = {suspect.id for suspect in report.under_trained}
    ordinary = set(range(TOKENS - 2)) - set(impossible_bytes())
    never = {id_ for id_ in ordinary if not made.seen[id_]}
    assert len(never) > 100
    assert never <= listed
    planted = {made.tokenizer.encode(name)[0] for name in PLANTED}
    assert planted <= never  # each is one token, and not in the model's text
    for name in PLANTED:
        assert len(made.tokenizer.encode(name)) == 1
    trained_well = {id_ for id_ in ordinary if made.seen[id_] >= 50}
    assert len(trained_well) > 80
    assert not trained_well & listed
    # What else is listed was seen a few times only, or else is the exception.
    also = [made.seen[id_] for id_ in listed - never]
    assert len(also) < len(never) / 8 and sorted(also)[len(also) // 2] <= 2


@pytest.mark.parametrize("tied", [True, False])
def test_special_tokens_that_were_never_trained(tmp_path: Path, tied: bool) -> None:
    report = diagnosed(tmp_path, tied)
    score = {suspect.token: suspect.score for suspect in report.special}
    assert set(score) == {"<|endoftext|>", "<|unused|>"}
    assert score["<|unused|>"] > 0.8 and score["<|endoftext|>"] < 0.2
    assert not {suspect.id for suspect in report.special} & {
        suspect.id for suspect in report.under_trained
    }
    assert "1 of 2 special tokens look never trained" in str(report)


def test_a_token_that_is_only_read_is_untrained_as_output(tmp_path: Path) -> None:
    made = model(False)
    bos = made.tokenizer.special_tokens["<|unused|>"]
    tables = {name: table.clone() for name, table in made.tables.items()}
    tables[INPUT][bos] = tables[INPUT][made.tokenizer.encode("self")[0]]  # as if trained
    report = diagnose(save(tables, tmp_path / "x.safetensors"), made.tokenizer)
    (suspect,) = [each for each in report.special if each.id == bos]
    assert suspect.scores["input"] < 0.2 and suspect.scores["output"] > 0.8


def test_padded_rows_and_gaps(tmp_path: Path) -> None:
    made = model(True)
    report = diagnosed(tmp_path, True)
    assert report.padded == list(range(TOKENS, ROWS))
    assert f"{ROWS - TOKENS} rows have no token: {TOKENS} to {ROWS - 1}" in str(report)
    tokenizer = BPETokenizer.from_file(saved(made.tokenizer, tmp_path / "t"))
    tokenizer.add_special_tokens({"<gap>": TOKENS + 5})
    report = diagnose(tmp_path / "model.safetensors", tokenizer)
    assert report.padded == [id_ for id_ in range(TOKENS, ROWS) if id_ != TOKENS + 5]
    assert "500 to 504, 506 to 519" in str(report)


def saved(tokenizer: BPETokenizer, folder: Path) -> Path:
    tokenizer.save(folder, verbose=False)
    return folder


def test_tokens_that_no_text_gives(tmp_path: Path) -> None:
    made = model(True)
    path = saved(made.tokenizer, tmp_path) / "tokenizer.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    merges = data["model"]["merges"]
    gone = merges.pop()  # the last token has no merge any more
    path.write_text(json.dumps(data), encoding="utf-8")
    token = "".join(gone if isinstance(gone, list) else gone.split())
    save(made.tables, tmp_path / "model.safetensors")
    report = diagnose(tmp_path, BPETokenizer.from_file(path))
    (suspect,) = report.unreachable["no merges make it"]
    assert suspect.id == data["model"]["vocab"][token] and suspect.kind == "unreachable"
    assert suspect.id not in {each.id for each in report.under_trained}
    assert "1 token that no text gives: no merges make it" in str(report)


def impossible_bytes() -> list[int]:
    """Ask Python's own decoder which bytes are in no UTF-8."""
    possible = set()
    for code in [*range(0x800), *range(0x800, 0x110000, 64)]:
        if not 0xD800 <= code < 0xE000:
            possible |= set(chr(code).encode())
    return sorted(set(range(256)) - possible)


def test_a_model_that_learned_nothing_is_not_judged(tmp_path: Path) -> None:
    random = torch.Generator().manual_seed(1)
    tables = {INPUT: torch.randn(ROWS, WIDTH, generator=random)}
    report = diagnose(save(tables, tmp_path / "model.safetensors"), model(True).tokenizer)
    assert not report.tells and not report.under_trained
    assert {suspect.score for suspect in report.special} == {None}
    assert "Can't tell which tokens" in str(report) and "can't tell: rows" in str(report)


def test_padding_that_was_set_to_the_mean_is_no_reference(tmp_path: Path) -> None:
    made = model(False)
    tables = {name: table.clone() for name, table in made.tables.items()}
    random = torch.Generator().manual_seed(2)
    seen = [id_ for id_ in range(256, TOKENS - 2) if made.seen[id_] > 20]
    for table in tables.values():  # as transformers' resize_token_embeddings does
        spread = table[seen].std(0) * torch.randn(ROWS - TOKENS, WIDTH, generator=random)
        table[TOKENS:] = table[seen].mean(0) + spread
    report = diagnose(save(tables, tmp_path / "model.safetensors"), made.tokenizer)
    for embedding in report.embeddings:
        used = {group.name: group.used for group in embedding.groups}
        assert used == {"padded rows": False, "impossible bytes": True}
    assert "padded rows look like other tokens" in str(report)
    planted = {made.tokenizer.encode(name)[0] for name in PLANTED}
    assert planted <= {suspect.id for suspect in report.under_trained}


@pytest.mark.filterwarnings("ignore:.*ordinary text")  # small vocabularies
def test_without_reference_rows_a_norm_near_zero_is_suspicious(tmp_path: Path) -> None:
    tokenizers = need("tokenizers")
    letters = [chr(code) for code in range(0x4E00, 0x4E40)]
    vocab = {letter: id_ for id_, letter in enumerate(letters)}
    tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [])).save(str(tmp_path / "tokenizer.json"))
    table = torch.ones(len(vocab), 8)
    table[[5, 9]] *= 0.2
    table[7] *= 0.6
    report = diagnose(
        save({"wte.weight": table}, tmp_path / "model.safetensors"),
        BPETokenizer.from_file(tmp_path / "tokenizer.json"),
    )
    assert [suspect.token for suspect in report.under_trained] == [letters[5], letters[9]]
    assert report.under_trained[0].score == pytest.approx(0.8)
    (indicator,) = report.embeddings[0].indicators
    assert (indicator.name, indicator.reference, indicator.separation) == ("norm", 0.0, None)


def test_a_higher_threshold_lists_fewer(tmp_path: Path) -> None:
    low, high = (diagnosed(tmp_path, True, threshold=each) for each in (0.3, 0.95))
    assert {each.id for each in high.under_trained} < {each.id for each in low.under_trained}
    for report in (low, high):
        scores = [suspect.score for suspect in report.under_trained]
        assert scores == sorted(scores, reverse=True) and min(scores) >= report.threshold


def test_a_vocabulary_of_characters_with_byte_fallback(tmp_path: Path) -> None:
    sentencepiece = need("sentencepiece")
    (tmp_path / "text.txt").write_text(Path(bpe_tokenizer.__file__).read_text("utf-8")[:30_000])
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=600,
        model_type="bpe",
        byte_fallback=True,
        minloglevel=2,
    )
    tokenizer = BPETokenizer.from_file(tmp_path / "tokenizer.model")
    ids = {tokenizer.decode([id_]): id_ for id_ in range(600)}
    bytes_ = [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in impossible_bytes()]
    word = next(id_ for token, id_ in ids.items() if token == "self")
    letter = tokenizer.convert_tokens_to_ids("e")
    table = torch.randn(600, 64, generator=torch.Generator().manual_seed(5)) + 1
    table[[*bytes_, word, letter]] *= 0.05
    path = save({"wte.weight": table}, tmp_path / "model.safetensors")
    report = diagnose(path, tokenizer)
    assert {group.name: group.rows for group in report.embeddings[0].groups} == {
        "impossible bytes": len(bytes_)
    }
    assert {suspect.id for suspect in report.under_trained} == {word, letter}
    assert {report.token(id_).kind for id_ in (word, letter)} == {"text"}
    kinds = Counter(report.token(id_).kind for id_ in range(600))
    assert kinds["byte"] == 256 - len(bytes_) and kinds["impossible byte"] == len(bytes_)
    assert kinds["special"] == 3 and kinds["fragment"] == 0


# -- The figures --------------------------------------------------------------


def reference_ids(tokenizer: BPETokenizer) -> list[int]:
    return [*range(TOKENS, ROWS), *impossible_bytes()]


def whole_text(tokenizer: BPETokenizer) -> list[int]:
    found = []
    for id_ in range(256, TOKENS - 2):
        try:
            tokenizer.decode([id_], errors="strict")
            found.append(id_)
        except UnicodeDecodeError:
            pass
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("tied", [True, False])
def test_figures_are_those_of_torch(tmp_path: Path, tied: bool, dtype: str) -> None:
    made = model(tied)
    save(made.tables, tmp_path / "model.safetensors", getattr(torch, dtype))
    report = diagnose(tmp_path / "model.safetensors", made.tokenizer)
    assert len(report.embeddings) == len(made.tables)
    for embedding, table in zip(report.embeddings, made.tables.values()):
        table = table.to(getattr(torch, dtype)).double()
        norms = torch.linalg.vector_norm(table, dim=1)
        centered = table - table[whole_text(made.tokenizer)].mean(0)
        reference = reference_ids(made.tokenizer)
        for id_ in range(ROWS):
            mean = centered[[other for other in reference if other != id_]].mean(0)
            cosine = torch.nn.functional.cosine_similarity(centered[id_], mean, dim=0)
            assert embedding.values["norm"][id_] == pytest.approx(norms[id_].item(), rel=1e-5)
            assert embedding.values["cosine"][id_] == pytest.approx(cosine.item(), abs=1e-4)


def pairs_in_order(reference: list[float], others: list[float], sign: int) -> float:
    """Count them one by one."""
    order = [(sign * (a - b) < 0) + (a == b) / 2 for a in reference for b in others]
    return sum(order) / len(order)


@pytest.mark.parametrize("tied", [True, False])
def test_indicators_and_scores_are_as_said(tmp_path: Path, tied: bool) -> None:
    report, tokenizer = diagnosed(tmp_path, tied), model(tied).tokenizer
    for embedding in report.embeddings:
        scores = numpy.ones(ROWS)
        for indicator in embedding.indicators:
            values = embedding.values[indicator.name].tolist()
            reference = [values[id_] for id_ in reference_ids(tokenizer)]
            others = [values[id_] for id_ in whole_text(tokenizer)]
            low, high = (sorted(each) for each in (others, reference))
            typical, median = (numpy.median(each) for each in (low, high))
            assert (indicator.typical, indicator.reference) == (typical, median)
            assert indicator.limit == pytest.approx((typical + median) / 2)
            sign = 1 if indicator.name == "norm" and median < typical else -1
            found = pairs_in_order(reference, others, sign)
            assert indicator.separation == pytest.approx(found)
            assert indicator.used is (found >= 0.8)
            if indicator.used:
                way = (numpy.array(values) - typical) / (median - typical)
                scores *= numpy.clip(way, 0, 1)
        scores **= 1 / max(1, sum(each.used for each in embedding.indicators))
        assert embedding.values["score"].tolist() == pytest.approx(scores.tolist())
    for suspect in [*report.under_trained, *report.special]:
        each = [embedding.values["score"][suspect.id] for embedding in report.embeddings]
        assert suspect.score == pytest.approx(sum(each) / len(each))


def test_rows_of_zeros_and_rows_that_are_no_numbers(tmp_path: Path) -> None:
    made = model(True)
    table = made.tables[INPUT].clone()
    table[[40, 300]] = 0
    table[41, 3], table[301, 0], table[ROWS - 1, 2] = math.nan, math.inf, -math.inf
    report = diagnose(save({INPUT: table}, tmp_path / "model.safetensors"), made.tokenizer)
    (embedding,) = report.embeddings
    assert (embedding.zero_rows, embedding.broken_rows) == (2, 3)
    assert "3 rows of model.embed_tokens.weight contain values that aren't finite" in str(report)
    assert report.token(41).score is None and report.token(301).norm == {}
    assert report.tells and math.isfinite(report.under_trained[0].score or math.nan)
    json.dumps(report.to_json(), allow_nan=False)


# -- Files --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_file_and_several_give_the_same(tmp_path: Path, dtype: str) -> None:
    made = model(False)
    (tmp_path / "one").mkdir()
    (tmp_path / "several").mkdir()
    save(made.tables, tmp_path / "one" / "model.safetensors", getattr(torch, dtype))
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    parts = [{INPUT: made.tables[INPUT]}, {"x": torch.ones(3)}, {OUTPUT: made.tables[OUTPUT]}]
    for name, part in zip(names, parts):
        save(part, tmp_path / "several" / name, getattr(torch, dtype))
    index = {"weight_map": {INPUT: names[0], "x": names[1], OUTPUT: names[2]}}
    at = tmp_path / "several" / safetensors.INDEX
    at.write_text(json.dumps(index), encoding="utf-8")
    expected = diagnose(tmp_path / "one", made.tokenizer).to_csv()
    for path in (tmp_path / "one" / "model.safetensors", tmp_path / "several", at):
        assert diagnose(path, made.tokenizer).to_csv() == expected
    assert diagnose(tmp_path / "several" / names[1], made.tokenizer).to_csv() == expected
    (tmp_path / "several" / names[2]).unlink()
    with pytest.raises(FileNotFoundError, match="parts are missing"):
        diagnose(tmp_path / "several", made.tokenizer)


def test_rows_are_those_that_safetensors_reads(tmp_path: Path) -> None:
    table = torch.randn(1000, 7, generator=torch.Generator().manual_seed(3)) * 1e3
    special = torch.tensor([0.0, -0.0, 65504, 1e-8, -1e-40, 3e38, 1.0])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        held = torch.cat([table, special[None]]).to(dtype)
        path = tmp_path / f"{dtype}.safetensors"
        safetensors_torch.save_file({"a": torch.ones(3), "b": held, "c": torch.ones(5)}, str(path))
        expected = safetensors_torch.load_file(str(path))["b"].float().numpy()
        tensor = safetensors.tensors(path)["b"]
        blocks = list(tensor.blocks())
        assert numpy.array_equal(numpy.concatenate([rows for _, rows in blocks]), expected)


def test_a_table_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = torch.arange(40_000.0).reshape(4000, 10)
    path = save({"wte.weight": table}, tmp_path / "model.safetensors")
    monkeypatch.setattr(safetensors, "_BLOCK_BYTES", 4 * 10 * 300)
    starts, blocks = zip(*safetensors.tensors(path)["wte.weight"].blocks())
    assert list(starts) == list(range(0, 4000, 300))
    assert numpy.array_equal(numpy.concatenate(blocks), table.numpy())


def test_a_large_table_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safetensors, "_BLOCK_BYTES", 2**21)
    rows, columns = 16_000, 1024  # 64 MB as float32
    made = model(True)
    table = torch.randn(rows, 1, generator=torch.Generator().manual_seed(4)).bfloat16()
    path = save({INPUT: table.expand(rows, columns)}, tmp_path / "model.safetensors")
    tracemalloc.start()
    try:
        diagnose(path, made.tokenizer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("transformer.wte.weight", None),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
        ("model.language_model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("tok_embeddings.weight", "output.weight"),
        ("backbone.embeddings.weight", "lm_head.weight"),
    ],
)
def test_tables_by_their_usual_names(tmp_path: Path, first: str, second: str | None) -> None:
    made = model(second is None)
    tables = dict(zip((first, second), made.tables.values()))
    others = {"transformer.h.0.attn.weight": torch.ones(4, 4), "wpe.weight": torch.ones(9, 4)}
    path = save({**tables, **others}, tmp_path / "model.safetensors")
    report = diagnose(path, made.tokenizer)
    assert [each.name for each in report.embeddings] == [name for name in (first, second) if name]
    roles = [each.role for each in report.embeddings]
    assert roles == (["tied"] if second is None else ["input", "output"])


def test_tables_named_by_the_user(tmp_path: Path) -> None:
    made = model(False)
    tables = {
        "a": made.tables[INPUT],
        "b": made.tables[OUTPUT],
        "lm_head.weight": torch.ones(ROWS, 3),
    }
    path = save(tables, tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"--input-tensor; tables with the most rows: a \(520 rows"
    ):
        diagnose(path, made.tokenizer)
    report = diagnose(path, made.tokenizer, input_tensor="a", output_tensor="b")
    expected = diagnosed(tmp_path, False)
    assert report.to_csv() == expected.to_csv()
    with pytest.raises(ValueError, match="has no tensor 'c'; it has a, b, lm_head"):
        diagnose(save(tables, path), made.tokenizer, input_tensor="c")
    both = {"encoder.embed_tokens.weight": tables["a"], "decoder.embed_tokens.weight": tables["b"]}
    with pytest.raises(ValueError, match="2 tables could be meant; choose by --input-tensor"):
        diagnose(save(both, path), made.tokenizer)


def test_a_tied_table_that_was_saved_twice_is_one(tmp_path: Path) -> None:
    made = model(True)
    twice = {INPUT: made.tables[INPUT], OUTPUT: made.tables[INPUT].clone()}
    report = diagnose(save(twice, tmp_path / "model.safetensors"), made.tokenizer)
    assert [embedding.role for embedding in report.embeddings] == ["tied"]


def test_an_output_table_that_is_not_found_is_noted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": false}', encoding="utf-8")
    report = diagnosed(tmp_path, True)
    assert "name it with --output-tensor" in str(report)


def test_a_model_of_transformers(tmp_path: Path) -> None:
    transformers = need("transformers")
    made = model(True)
    config = transformers.GPT2Config(
        vocab_size=ROWS, n_embd=WIDTH, n_layer=1, n_head=2, n_positions=8, bos_token_id=0
    )
    gpt2 = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        gpt2.transformer.wte.weight.copy_(made.tables[INPUT])
    gpt2.save_pretrained(str(tmp_path))
    report = diagnose(tmp_path, made.tokenizer)
    assert [(each.name, each.role) for each in report.embeddings] == [
        ("transformer.wte.weight", "tied")
    ]
    assert report.under_trained == diagnosed(tmp_path, True).under_trained


# -- What is refused ----------------------------------------------------------


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype: Any = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE: list[tuple[str, Any, bytes, int | None]] = [
    ("not a safetensors file", {}, b"", 2**63),
    ("not a safetensors file", {}, b"", 100),
    ("not JSON", b"\xff\xfe{}", b"", None),
    ("not JSON", b"[" * 100_000, b"", None),
    ("expected a JSON object", [], b"", None),
    ("expected dtype, shape, data_offsets", {"w": {"dtype": "F32"}}, b"", None),
    ("expected dtype, shape, data_offsets", {"w": entry(dtype=7)}, b"x" * 16, None),
    ("expected dtype, shape, data_offsets", {"w": entry(shape=[-2, -2])}, b"x" * 16, None),
    ("expected dtype, shape, data_offsets", {"w": entry(shape=[2.0, 2])}, b"x" * 16, None),
    ("cut short", {"w": entry(offsets=[0, 10**30])}, b"x" * 16, None),
    ("cut short", {"w": entry(offsets=[8, 24])}, b"x" * 16, None),
    ("cut short", {"w": entry(offsets=[16, 0])}, b"x" * 16, None),
    ("don't fit its 16 bytes", {"w": entry(shape=[2, 3])}, b"x" * 16, None),
    ("don't fit its 16 bytes", {"w": entry(shape=[2**62, 2**62])}, b"x" * 16, None),
    ("don't fit its 16 bytes", {"w": entry(dtype="BF16")}, b"x" * 16, None),
    ("17 dimensions", {"w": entry(shape=[1] * 17)}, b"x" * 16, None),
    (
        "shares bytes with 'v'",
        {"w": entry(), "v": entry(offsets=[8, 24])},
        b"x" * 24,
        None,
    ),
    ("expected a table, got 4", {"wte.weight": entry(shape=[4])}, b"x" * 16, None),
    ("expected a table, got 0 x 4", {"wte.weight": entry(shape=[0, 4], offsets=[0, 0])}, b"", None),
    ("its values are I8", {"wte.weight": entry("I8", [4, 4])}, b"x" * 16, None),
    ("no tensor has the usual name", {"w": entry()}, b"x" * 16, None),
    ("no tensor has the usual name", {}, b"", None),
]


@pytest.mark.parametrize(("message", "header", "data", "length"), HOSTILE)
def test_hostile_files_give_one_clear_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    message: str,
    header: Any,
    data: bytes,
    length: int | None,
) -> None:
    path = write(tmp_path / "model.safetensors", header, data, length)
    saved(model(True).tokenizer, tmp_path)
    options = ["--input-tensor", "wte.weight"] if "expected a table" in message else []
    status, out, err = run(capsys, path, *options)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert message in err and len(err) < 400


def test_a_file_cut_short_anywhere_is_refused(tmp_path: Path) -> None:
    whole = save(model(True).tables, tmp_path / "model.safetensors").read_bytes()
    for size in [0, 1, 7, 8, 9, 50, 100, len(whole) // 2, len(whole) - 1]:
        (tmp_path / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(bpe_tokenizer.FileFormatError, match=r"model\.safetensors"):
            diagnose(tmp_path, model(True).tokenizer)


def test_a_file_cut_short_while_it_is_read(tmp_path: Path) -> None:
    path = save(model(True).tables, tmp_path / "model.safetensors")
    tensor = safetensors.tensors(path)[INPUT]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(bpe_tokenizer.FileFormatError, match="it extends past the end of the file"):
        list(tensor.blocks())


def test_what_does_not_go_together_is_said_in_words(tmp_path: Path) -> None:
    made = model(True)
    small = {INPUT: made.tables[INPUT][: TOKENS - 1]}
    path = save(small, tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"ids up to 499, but .* has only 499 rows: .* not resized"
    ):
        diagnose(path, made.tokenizer)
    with pytest.raises(ValueError, match="threshold"):
        diagnose(path, made.tokenizer, threshold=0)
    with pytest.raises(FileNotFoundError, match="no such file"):
        diagnose(tmp_path / "nothing", made.tokenizer)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"contains no model\.safetensors"):
        diagnose(tmp_path, made.tokenizer)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="pickled"):
        diagnose(tmp_path, made.tokenizer)
    for hostile in ("../x.safetensors", "/etc/passwd", 7, ""):
        index = {"weight_map": {INPUT: hostile}}
        (tmp_path / safetensors.INDEX).write_text(json.dumps(index), encoding="utf-8")
        with pytest.raises(ValueError, match="is not a file name|expected a file with weights"):
            diagnose(tmp_path, made.tokenizer)


def test_two_parts_that_hold_the_same_tensor(tmp_path: Path) -> None:
    for i in (1, 2):
        save(model(True).tables, tmp_path / f"model-0000{i}-of-00002.safetensors")
    with pytest.raises(ValueError, match=r"is in model-00001-of-00002\.safetensors, too"):
        diagnose(tmp_path, model(True).tokenizer)


# -- Output, the command ------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_csv_has_every_token_and_json_what_was_found(tmp_path: Path, tied: bool) -> None:
    report = diagnosed(tmp_path, tied)
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert [int(row["id"]) for row in rows] == list(range(TOKENS))
    roles = ["tied"] if tied else ["input", "output"]
    for row in rows:
        suspect = report.token(int(row["id"]))
        token = model(tied).tokenizer.convert_ids_to_tokens(suspect.id)
        assert (row["token"], row["kind"]) == (token, suspect.kind)
        assert float(row["score"]) == suspect.score
        for role in roles:
            assert float(row[f"norm_{role}"]) == suspect.norm[role]
            assert float(row[f"cosine_{role}"]) == suspect.cosine[role]
            assert float(row[f"score_{role}"]) == suspect.scores[role]
    listed = [int(row["id"]) for row in rows if row["under_trained"] == "1"]
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert sorted(listed) == sorted(each["id"] for each in data["under_trained"])
    assert [each["role"] for each in data["embeddings"]] == roles
    assert data["tells"] is True and data["padded"] == list(range(TOKENS, ROWS))


def test_printed_lists_are_as_long_as_asked(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, True)
    text = [each for each in report.under_trained if each.kind == "text"]
    short = report.show(limit=3)
    assert f"{len(text)} of {report.tokens - report.parts} tokens of text look" in short
    assert f"... and {len(text) - 3} more" in short
    assert all(repr(each.token) in short for each in text[:3])
    assert repr(text[3].token) not in short
    assert all(repr(each.token) in report.show(limit=1000) for each in text)


def test_plots(tmp_path: Path) -> None:
    need("matplotlib")
    report = diagnosed(tmp_path, False)
    report.plot(tmp_path / "plot.svg")
    written = (tmp_path / "plot.svg").read_text("utf-8")
    assert ElementTree.fromstring(written).tag.endswith("svg")
    assert (
        f"<!-- {INPUT} (input embedding) -->" in written
        and f"<!-- {OUTPUT} (output embedding) -->" in written
    )
    assert f"<!-- look under-trained ({len(report.under_trained)}) -->" in written
    assert "<!-- special tokens (2) -->" in written
    report.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match=r"a plot must be a \.png"):
        report.plot(tmp_path / "plot.gif")


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    return run_command(capsys, "doctor", *arguments)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("matplotlib")
    report = diagnosed(tmp_path, True)
    saved(model(True).tokenizer, tmp_path)
    files: list[str | Path] = ["--csv", tmp_path / "t.csv", "--plot", tmp_path / "p.svg"]
    status, out, err = run(capsys, tmp_path, *files, "--limit", "5")
    assert (status, out) == (0, report.show(5) + "\n")
    assert err == f"Wrote {tmp_path / 't.csv'} and {tmp_path / 'p.svg'}\n"
    assert (tmp_path / "t.csv").read_text("utf-8") == report.to_csv()
    other = saved(model(True).tokenizer, tmp_path / "other")
    named = [tmp_path / "model.safetensors", "--tokenizer", other, "--input-tensor", INPUT]
    status, out, err = run(capsys, *named, "--json", "--threshold", "0.9")
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert data["threshold"] == 0.9
    assert len(data["under_trained"]) < len(report.under_trained)


def test_the_command_refuses_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(model(True).tables, tmp_path / "model.safetensors")
    other = saved(model(True).tokenizer, tmp_path / "other")
    for status, message, arguments in [
        (1, "no such file or directory", [tmp_path / "nothing"]),
        (1, "name the model's with --tokenizer", [tmp_path]),  # for none is beside it
        (1, "no such file", [tmp_path, "--tokenizer", tmp_path / "none.json"]),
        (1, "has no tensor 'x'", [tmp_path, "--tokenizer", other, "--output-tensor", "x"]),
        (
            1,
            "a plot must be a .png",
            [tmp_path, "--tokenizer", other, "--plot", tmp_path / "x.txt"],
        ),
        (1, "threshold", [tmp_path, "--tokenizer", other, "--threshold", "7"]),
        (2, "--limit", [tmp_path, "--tokenizer", other, "--limit", "-1"]),
    ]:
        found, out, err = run(capsys, *arguments)
        assert (found, out, err.count("\n")) == (status, "", 1), err
        assert message in err
