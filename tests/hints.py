"""Calls that mypy must accept with an installed copy, then mistakes that it must find.

`make hints` runs mypy --strict, which also fails if an `ignore` has no mistake to ignore.
"""

from bpe_tokenizer import BatchEncoding, BPETokenizer, TensorBatch

tokenizer = BPETokenizer("gpt2")
ids: list[int] = tokenizer.encode("text")
called: list[int] = tokenizer("text", add_special_tokens=True)
batch: BatchEncoding = tokenizer("text", padding=True)
tensors: TensorBatch = tokenizer(["text"], return_tensors="pt")
pair: dict[str, list[int]] = tokenizer("question", "answer")

text: str = tokenizer.encode("text")  # type: ignore[assignment]
tokenizer.encode(5)  # type: ignore[arg-type]
padded: list[int] = tokenizer("text", padding=True)  # type: ignore[assignment]
