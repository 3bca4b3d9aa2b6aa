"""What people do with a tokenizer of transformers does the same on this library's engine."""

from __future__ import annotations

import contextlib
import copy
import io
from pathlib import Path
from typing import Any

import pytest
from oracles import need

transformers = need("transformers")
torch = need("torch")
datasets = need("datasets")

import tiny_models  # noqa: E402  (needs numpy)

from bpe_tokenizer_tools.dropin import patched_transformers, to_transformers  # noqa: E402
from bpe_tokenizer_tools.dropin.tokenizers import Tokenizer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
CHATML = (
    "{% for m in messages %}{{ '<s>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content + '</s>' }}{% endgeneration %}{% else %}{{ m.content + '</s>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)
TALK = [{"role": "user", "content": "return the merge"}, {"role": "assistant", "content": "number"}]


@pytest.fixture(scope="module")
def model_folder(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_models.write_safetensors(folder, tiny_models.model(True))
    return folder


@pytest.fixture(scope="module")
def both(model_folder: Path) -> tuple[Any, Any, Any]:
    """Return the tokenizer of the tiny model, unpatched, patched, and from our own object."""
    load = transformers.AutoTokenizer.from_pretrained
    theirs = load(str(model_folder))
    with patched_transformers():
        ours = load(str(model_folder))
    own = to_transformers(tiny_models.tokenizer())
    for each in (theirs, ours, own):
        each.chat_template = CHATML
        each.pad_token = "<pad>"
    assert isinstance(ours._tokenizer, Tokenizer) and isinstance(own._tokenizer, Tokenizer)
    return theirs, ours, own


def texts() -> list[str]:
    return [line for line in tiny_models.text().splitlines() if line][:24]


def as_lists(value: Any) -> Any:
    if isinstance(value, dict) or hasattr(value, "items"):
        return {key: as_lists(each) for key, each in value.items()}
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    return [as_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def assert_all_alike(both: tuple[Any, Any, Any], run: Any) -> None:
    expected, *others = [as_lists(run(each)) for each in both]
    assert expected
    for other in others:
        assert other == expected


def collators() -> dict[str, Any]:
    of = transformers
    return {
        "with padding": lambda tok: of.DataCollatorWithPadding(tok, pad_to_multiple_of=8),
        "language modeling": lambda tok: of.DataCollatorForLanguageModeling(tok, mlm=False),
        "sequence to sequence": lambda tok: of.DataCollatorForSeq2Seq(tok, padding=True),
        "token classification": lambda tok: of.DataCollatorForTokenClassification(tok),
    }


@pytest.mark.parametrize("name", sorted(collators()))
def test_collators(both: tuple[Any, Any, Any], name: str) -> None:
    def run(tok: Any) -> Any:
        rows = [dict(tok(text)) for text in texts()[:5]]
        for row in rows:
            if name.startswith(("sequence", "token")):
                row["labels"] = list(row["input_ids"])
        return collators()[name](tok)(rows)

    assert_all_alike(both, run)


@pytest.mark.parametrize("batched", [False, True])
def test_a_data_set_is_mapped(both: tuple[Any, Any, Any], batched: bool) -> None:
    rows = datasets.Dataset.from_dict({"text": texts()})

    def run(tok: Any) -> Any:
        mapped = rows.map(
            lambda row: tok(row["text"], truncation=True, max_length=12), batched=batched
        )
        return mapped.to_dict()

    assert_all_alike(both, run)


def test_a_data_set_is_mapped_in_processes(both: tuple[Any, Any, Any]) -> None:
    rows = datasets.Dataset.from_dict({"text": texts()})
    assert_all_alike(both, lambda tok: rows.map(_Encode(tok), batched=True, num_proc=2).to_dict())


class _Encode:
    def __init__(self, tok: Any) -> None:
        self.tok = tok

    def __call__(self, rows: Any) -> Any:
        return self.tok(rows["text"])


def test_chats(both: tuple[Any, Any, Any]) -> None:
    for options in (
        {"return_dict": True, "return_assistant_tokens_mask": True},
        {"return_dict": True, "return_tensors": "pt", "add_generation_prompt": True},
        {"tokenize": False},
        {"return_dict": True, "truncation": True, "max_length": 9, "padding": "max_length"},
    ):
        assert_all_alike(both, lambda tok: tok.apply_chat_template(TALK, **options))  # noqa: B023


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(str(model_folder))


def test_a_pipeline_generates(both: tuple[Any, Any, Any], model: Any) -> None:
    def run(tok: Any) -> Any:
        pipe = transformers.pipeline("text-generation", model=model, tokenizer=tok)
        return pipe(texts()[:3], max_new_tokens=12, do_sample=False)

    assert_all_alike(both, run)


def test_generation_stops_at_strings(both: tuple[Any, Any, Any], model: Any) -> None:
    def run(tok: Any) -> Any:
        given = tok(texts()[0], return_tensors="pt")
        whole = tok.decode(model.generate(**given, max_new_tokens=24, do_sample=False)[0])
        stop = whole[-6:-3]
        ids = model.generate(
            **given, max_new_tokens=24, do_sample=False, stop_strings=[stop], tokenizer=tok
        )
        return whole, tok.decode(ids[0])

    assert_all_alike(both, run)


def test_text_is_streamed(both: tuple[Any, Any, Any], model: Any) -> None:
    def run(tok: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            streamer = transformers.TextStreamer(tok, skip_prompt=True, skip_special_tokens=True)
            given = tok(texts()[1], return_tensors="pt")
            model.generate(**given, max_new_tokens=16, do_sample=False, streamer=streamer)
        return out.getvalue()

    assert_all_alike(both, run)


def test_ten_steps_of_training(
    both: tuple[Any, Any, Any], model_folder: Path, tmp_path: Path
) -> None:
    def run(tok: Any) -> Any:
        model = transformers.AutoModelForCausalLM.from_pretrained(str(model_folder))
        rows = datasets.Dataset.from_dict({"text": texts()})
        rows = rows.map(lambda row: tok(row["text"]), batched=True, remove_columns=["text"])
        options = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=10,
            per_device_train_batch_size=2,
            report_to=[],
            use_cpu=True,
            seed=3,
            logging_steps=5,
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=model,
            args=options,
            train_dataset=rows,
            data_collator=transformers.DataCollatorForLanguageModeling(tok, mlm=False),
            processing_class=tok,
        )
        loss = trainer.train().training_loss
        trainer.save_model(str(tmp_path / "saved"))
        assert (tmp_path / "saved" / "tokenizer.json").exists()
        return loss

    assert_all_alike(both, run)


def test_what_harnesses_ask_for(both: tuple[Any, Any, Any]) -> None:
    """What vLLM, lm-evaluation-harness and others read of a tokenizer."""
    for name in (
        *("all_special_ids", "all_special_tokens", "is_fast", "model_max_length", "padding_side"),
        *("truncation_side", "vocab_size", "bos_token_id", "eos_token_id", "pad_token_id"),
        "special_tokens_map",
    ):
        expected, patched, _ = [getattr(each, name) for each in both]
        assert patched == expected, name
    assert_all_alike(both, lambda tok: tok.get_added_vocab())
    assert_all_alike(both, len)
    assert_all_alike(both, lambda tok: tok(texts()[:2], return_tensors="pt", padding="longest"))

    def mask(tok: Any) -> Any:
        ids = tok("merge", add_special_tokens=False)["input_ids"]
        return tok.get_special_tokens_mask(ids, already_has_special_tokens=True)

    assert_all_alike(both, mask)


# -- Libraries that stand on transformers' tokenizers ---


@pytest.fixture
def copies(both: tuple[Any, Any, Any]) -> tuple[Any, ...]:
    """Return tokenizers for a library that changes those it gets."""
    return tuple(copy.deepcopy(each) for each in both)


def arguments_of(config: Any, folder: Path, **options: Any) -> Any:
    """Make the arguments of a short and silent training."""
    always = {"report_to": [], "use_cpu": True, "seed": 3, "save_strategy": "no", "bf16": False}
    always |= {"disable_tqdm": True, "max_steps": 2, "per_device_train_batch_size": 2}
    return config(output_dir=str(folder), **{**always, **options})


def conversations() -> Any:
    lines = texts()
    return [
        [{"role": "user", "content": a}, {"role": "assistant", "content": b}]
        for a, b in zip(lines[::2], lines[1::2])
    ]


SFT = {
    "texts": ({"text": texts()}, {}),
    "texts, packed": ({"text": texts()}, {"packing": True, "max_length": 32}),
    "texts, cut": ({"text": texts()}, {"max_length": 8, "pad_to_multiple_of": 4}),
    "prompts and completions": (
        {"prompt": texts()[::2], "completion": texts()[1::2]},
        {"completion_only_loss": True},
    ),
    "conversations": ({"messages": conversations()}, {}),
    "conversations, answers only": ({"messages": conversations()}, {"assistant_only_loss": True}),
}


@pytest.mark.parametrize("kind", SFT)
def test_trl_prepares_and_tunes(
    copies: tuple[Any, ...], model_folder: Path, tmp_path: Path, kind: str
) -> None:
    trl = need("trl")
    rows, options = SFT[kind]

    def run(tok: Any) -> Any:
        trainer = trl.SFTTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(str(model_folder)),
            args=arguments_of(trl.SFTConfig, tmp_path, **options),
            train_dataset=datasets.Dataset.from_dict(rows),
            processing_class=tok,
        )
        batch = next(iter(trainer.get_train_dataloader()))
        rows_prepared = trainer.train_dataset.to_list()
        assert rows_prepared
        return {"rows": rows_prepared, "batch": dict(batch), "loss": trainer.train().training_loss}

    assert_all_alike(copies, run)


@pytest.mark.parametrize("as_talk", [False, True])
def test_trl_prepares_and_tunes_preferences(
    copies: tuple[Any, ...], model_folder: Path, tmp_path: Path, as_talk: bool
) -> None:
    trl = need("trl")
    columns = dict(zip(("prompt", "chosen", "rejected"), (texts()[i::3] for i in range(3))))
    if as_talk:
        columns = {
            name: [
                [{"role": "user" if name == "prompt" else "assistant", "content": line}]
                for line in lines
            ]
            for name, lines in columns.items()
        }

    def run(tok: Any) -> Any:
        trainer = trl.DPOTrainer(
            model=transformers.AutoModelForCausalLM.from_pretrained(str(model_folder)),
            args=arguments_of(trl.DPOConfig, tmp_path),
            train_dataset=datasets.Dataset.from_dict(columns),
            processing_class=tok,
        )
        batch = next(iter(trainer.get_train_dataloader()))
        rows = trainer.train_dataset.to_list()
        return {"rows": rows, "batch": dict(batch), "loss": trainer.train().training_loss}

    assert_all_alike(copies, run)


def test_sentences_become_vectors(both: tuple[Any, Any, Any], model_folder: Path) -> None:
    library = need("sentence_transformers")

    def run(tok: Any) -> Any:
        made = library.SentenceTransformer(str(model_folder), device="cpu")
        made[0].processor = tok
        made.max_seq_length = 24
        assert made.tokenizer is tok
        given = made.preprocess(texts()[:6])
        return {"given": given, "vectors": made.encode(texts()[:6]).tolist()}

    assert_all_alike(both, run)
    with patched_transformers():
        loaded = library.SentenceTransformer(str(model_folder), device="cpu")
    assert isinstance(loaded.tokenizer._tokenizer, Tokenizer)


def test_a_harness_evaluates(both: tuple[Any, Any, Any], model: Any) -> None:
    harness = need("lm_eval.models.huggingface")
    instance = need("lm_eval.api.instance").Instance
    lines = texts()

    def requests(kind: str, given: list[Any]) -> list[Any]:
        return [
            instance(request_type=kind, doc={}, arguments=each, idx=i)
            for i, each in enumerate(given)
        ]

    def run(tok: Any) -> Any:
        lm = harness.HFLM(pretrained=model, tokenizer=tok, device="cpu", batch_size=2)
        assert lm.tokenizer is tok
        until = {"until": ["\n", "return"], "max_gen_toks": 12, "do_sample": False}
        return {
            "likely": lm.loglikelihood(
                requests("loglikelihood", [*zip(lines[:6], lines[6:12]), ("", lines[0])])
            ),
            "rolling": lm.loglikelihood_rolling(
                requests("loglikelihood_rolling", [(line * 9,) for line in lines[:3]])
            ),
            "generated": lm.generate_until(
                requests("generate_until", [(line, until) for line in lines[:4]])
            ),
            "chat": lm.apply_chat_template(TALK[:1]),
            "ids": lm.tok_encode(lines[0]),
            "batch": [*lm.tok_batch_encode(lines[:3], left_truncate_len=7)],
            "back": lm.tok_decode(lm.tok_encode(lines[0])),
            "ends": [lm.eot_token_id, lm.prefix_token_id],
        }

    assert_all_alike(both, run)


def test_langchain_cuts_by_tokens(both: tuple[Any, Any, Any]) -> None:
    splitters = need("langchain_text_splitters")
    text = tiny_models.text()[:4000]

    def run(tok: Any) -> Any:
        return [
            getattr(splitters, name)
            .from_huggingface_tokenizer(tok, chunk_size=40, chunk_overlap=8)
            .split_text(text)
            for name in ("RecursiveCharacterTextSplitter", "CharacterTextSplitter")
        ]

    assert_all_alike(both, run)


def test_semchunk_cuts_by_tokens(both: tuple[Any, Any, Any]) -> None:
    semchunk = need("semchunk")
    text = tiny_models.text()[:4000]

    def run(tok: Any) -> Any:
        chunker = semchunk.chunkerify(tok, 24, memoize=False)
        return chunker(text, offsets=True, overlap=0.25), chunker([text[:500], "the"])

    assert_all_alike(both, run)


@pytest.mark.parametrize("name", ["TokenChunker", "SentenceChunker", "RecursiveChunker"])
def test_chonkie_cuts_by_tokens(both: tuple[Any, Any, Any], name: str) -> None:
    chonkie = need("chonkie")
    text = tiny_models.text()[:4000]

    def run(tok: Any) -> Any:
        chunks = getattr(chonkie, name)(tok, chunk_size=40)(text)
        return [(each.text, each.start_index, each.end_index, each.token_count) for each in chunks]

    assert_all_alike(both, run)


def test_its_hash_for_caches_of_data_sets(both: tuple[Any, Any, Any]) -> None:
    """`datasets` finds what it has mapped before by this hash; use must not change it."""
    hash_of = datasets.fingerprint.Hasher.hash
    for tok in both[1:]:
        before = hash_of(tok)
        tok(texts()[:3])
        tok.decode([1, 2, 3])
        assert hash_of(tok) == before
        assert hash_of(copy.deepcopy(tok)) == before
