"""Calls that mypy must accept with an installed copy, then mistakes that it must find.

`make hints` runs mypy --strict, which also fails if an `ignore` has no mistake to ignore.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typing_extensions import assert_type

from bpe_tokenizer import BatchEncoding, BPETokenizer, EncodingResult, TensorBatch, count_pretokens

tokenizer = BPETokenizer("gpt2")
assert_type(tokenizer.encode("text"), list[int])
assert_type(tokenizer.encode_ordinary_batch(["text"]), list[list[int]])
assert_type(tokenizer("text", add_special_tokens=True), list[int])
assert_type(tokenizer("text", padding=True), BatchEncoding)
assert_type(tokenizer(["text"]), BatchEncoding)
assert_type(tokenizer(["text"], return_tensors="pt"), TensorBatch)
pair: dict[str, list[int]] = tokenizer("question", "answer")

batch = tokenizer.encode_batch(["text"])
assert_type(batch, BatchEncoding)
assert_type(batch[0], EncodingResult)
assert_type(batch[:1], list[EncodingResult])
assert_type(batch["input_ids"], list[list[int]])
assert_type(batch["attention_mask"], list[list[int]])
assert_type(batch["tokens"], list[list[str]])
assert_type(batch["offsets"], list[list[tuple[int, int]]])
assert_type(batch.input_ids, list[list[int]])
assert_type([result.tokens for result in batch], list[list[str]])
assert_type(tokenizer.encode_batch(["text"], return_tensors="np"), TensorBatch)
assert_type(tokenizer(["text"], truncation="longest_first", max_length=9), BatchEncoding)

messages = [{"role": "user", "content": "text"}]
assert_type(tokenizer.apply_chat_template(messages), list[int])
assert_type(
    tokenizer.apply_chat_template(messages, "chatml", add_generation_prompt=False), list[int]
)
assert_type(tokenizer.apply_chat_template(messages, template="chatml", tools=[]), list[int])
assert_type(tokenizer.apply_chat_template(messages, "chatml", tokenize=False), str)
assert_type(tokenizer.apply_chat_template(messages, return_dict=True), dict[str, Any])
assert_type(tokenizer.apply_chat_template([messages], return_dict=True), dict[str, Any])
assert_type(tokenizer.apply_chat_template([messages], "chatml"), list[list[int]])
assert_type(tokenizer.apply_chat_template((messages, messages), tools=[]), list[list[int]])
assert_type(tokenizer.apply_chat_template([messages], tokenize=False), list[str])
# The type of a tensor depends on the library, that of other results on flags given by position.
assert_type(tokenizer.apply_chat_template(messages, "chatml", return_tensors="pt"), Any)
assert_type(tokenizer.apply_chat_template(messages, "chatml", None, None, False), Any)


def lines() -> Iterator[str]:
    yield "text"


# A corpus is text, a path, or any iterable of them.
assert_type(tokenizer.train("text", 300), BPETokenizer)
tokenizer.train(Path("corpus.txt"), 300)
tokenizer.train(["one.txt", Path("two.txt")], 300)
tokenizer.train([Path("one.txt"), Path("two.txt")], 300)
tokenizer.train(lines(), 300)
tokenizer.train(counts=count_pretokens(lines()), vocab_size=300)

text: str = tokenizer.encode("text")  # type: ignore[assignment]
tokenizer.encode(5)  # type: ignore[arg-type]
padded: list[int] = tokenizer("text", padding=True)  # type: ignore[assignment]
tokenizer.train(5)  # type: ignore[arg-type]
tokenizer.train([b"text"])  # type: ignore[list-item]
count_pretokens([["text"]])  # type: ignore[list-item]
words: list[str] = batch["input_ids"]  # type: ignore[assignment]
batch[0].missing  # type: ignore[attr-defined]
ids: list[int] = tokenizer.apply_chat_template(messages, tokenize=False)  # type: ignore[assignment]
ids = tokenizer.apply_chat_template([messages])  # type: ignore[assignment]

# Old names of parameters still work, with a warning; hints have the new ones alone.
assert_type(tokenizer.convert_ids_to_tokens(ids=[97]), Any)
assert_type(tokenizer.convert_tokens_to_ids(tokens=["a"]), Any)
tokenizer.convert_ids_to_tokens(i=[97])  # type: ignore[call-arg]
tokenizer.convert_tokens_to_ids(t=["a"])  # type: ignore[call-arg]
