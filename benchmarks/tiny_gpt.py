"""Does a small GPT learn faster with a larger vocabulary?  The runs behind docs/learn/16.

python benchmarks/tiny_gpt.py                       # about thirteen minutes on one core
python benchmarks/tiny_gpt.py --compute 0.02 --seeds 0 --sizes 257 512 --output /tmp/try.json
python benchmarks/draw_docs.py tiny-gpt             # draw the figure of the result

It needs torch, and reads english.txt of ../shared/corpora.  Each model is trained with the same
compute, counted in floating-point operations, so other programs on the machine change nothing.
The result is written to tiny_gpt.json, beside this script.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from common import END_OF_TEXT, SHARED
from torch import nn

import bpe_tokenizer
from bpe_tokenizer import BPETokenizer

RESULT = Path(__file__).with_suffix(".json")
SIZES = [257, 512, 1024, 2048, 4096, 8192]  # 257 is the bytes and the end of a text
SEEDS = [0, 1]
COMPUTE = 3.0  # 10**12 floating-point operations for each model
MEASURED_AT = [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1]  # of the compute
LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 2, 128, 4, 128, 8
LEARNING_RATE = 3e-3
HELD_OUT_EVERY = 20  # document
HELD_OUT_BYTES = 80_000


# -- The model ----------------------------------------------------------------


class TinyGPT(nn.Module):
    """A GPT: one table turns ids into vectors, and vectors into predictions."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        nn.init.normal_(self.table.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the scores of every next token."""
        length = ids.shape[1]
        hidden = self.table(ids) + self.places.weight[:length]
        for layer in self.layers:
            hidden = layer(hidden, src_mask=self.mask[:length, :length], is_causal=True)
        return self.norm(hidden) @ self.table.weight.T


def operations_per_token(vocab_size: int) -> int:
    """Count the floating-point operations that learning from one token takes.

    Six for each weight that is multiplied (two forward, four backward), and those of attention:
    the count of the PaLM paper (arXiv:2204.02311, appendix B).
    """
    weights = LAYERS * 12 * WIDTH**2 + vocab_size * WIDTH
    return 6 * weights + 12 * LAYERS * WIDTH * CONTEXT


# -- Training and measuring ---------------------------------------------------


def learning_rate(done: float) -> float:
    """Return the learning rate at a share of the compute: rise for 5 %, then fall to a tenth."""
    if done < 0.05:
        return LEARNING_RATE * done / 0.05
    return LEARNING_RATE * (1 - 0.9 * (done - 0.05) / 0.95)


def bits_per_byte(model: TinyGPT, tokenizer: BPETokenizer, documents: list[str]) -> float:
    """Return the bits that the model needs for a byte of held-out text.

    Windows don't overlap.  The token between documents isn't text, and doesn't count.
    """
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    assert isinstance(end, int)
    ids = join(tokenizer, documents)
    # Every window predicts CONTEXT tokens.  What fills the last one doesn't count.
    ids += [end] * (-(len(ids) - 1) % CONTEXT)
    inputs = torch.tensor(ids)
    nats = 0.0
    windows = range(0, len(ids) - 1, CONTEXT)
    with torch.no_grad():
        for first in range(0, len(windows), BATCH):
            batch = torch.stack(
                [inputs[at : at + CONTEXT + 1] for at in windows[first : first + BATCH]]
            )
            nats += nn.functional.cross_entropy(
                model(batch[:, :-1]).flatten(0, 1),
                batch[:, 1:].flatten(),
                ignore_index=end,
                reduction="sum",
            ).item()
    return nats / math.log(2) / size_of(documents)


def join(tokenizer: BPETokenizer, documents: list[str]) -> list[int]:
    """Return the ids of documents, with the special token before each."""
    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    assert isinstance(end, int)
    ids: list[int] = []
    for document in tokenizer.encode_ordinary_batch(documents):
        ids.append(end)
        ids.extend(document)
    return ids


def train(
    tokenizer: BPETokenizer, ids: torch.Tensor, held_out: list[str], seed: int, compute: float
) -> Iterator[dict[str, float]]:
    """Train a model; yield what it has read and how good it is, a few times."""
    torch.manual_seed(seed)
    model = TinyGPT(tokenizer.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1, betas=(0.9, 0.95))
    per_step = BATCH * CONTEXT * operations_per_token(tokenizer.vocab_size) / 1e12
    steps = round(compute / per_step)
    measured_after = {round(steps * share): share for share in MEASURED_AT}
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step / steps)
        starts = torch.randint(len(ids) - CONTEXT, (BATCH,)).tolist()
        batch = torch.stack([ids[start : start + CONTEXT + 1] for start in starts])
        scores = model(batch[:, :-1]).flatten(0, 1)
        loss = nn.functional.cross_entropy(scores, batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step in measured_after:
            yield {
                "compute": step * per_step,
                "tokens": step * BATCH * CONTEXT,
                "bits_per_byte": bits_per_byte(model, tokenizer, held_out),
            }


# -- All runs -----------------------------------------------------------------


def texts() -> tuple[list[str], list[str]]:
    """Return the documents to learn from, and some held out."""
    path = SHARED / "corpora" / "english.txt"
    documents = path.read_text(encoding="utf-8").split(END_OF_TEXT)
    held_out: list[str] = []
    for document in documents[::HELD_OUT_EVERY]:
        held_out.append(document)
        if size_of(held_out) >= HELD_OUT_BYTES:
            break
    kept = [document for place, document in enumerate(documents) if place % HELD_OUT_EVERY]
    return kept, held_out


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Train every model; return all figures."""
    documents, held_out = texts()
    held_out_bytes = size_of(held_out)
    largest = BPETokenizer("cl100k").train(
        documents, max(options.sizes), special_tokens=[END_OF_TEXT], verbose=False
    )
    runs = []
    for size in options.sizes:
        tokenizer = largest.with_vocab_size(size)
        ids = torch.tensor(join(tokenizer, documents))
        bytes_per_token = held_out_bytes / sum(map(tokenizer.count_tokens, held_out))
        for seed in options.seeds:
            started = time.process_time()
            points = list(train(tokenizer, ids, held_out, seed, options.compute))
            made = {
                "vocab_size": size,
                "seed": seed,
                "parameters": sum(each.numel() for each in TinyGPT(size).parameters()),
                "bytes_per_token": round(bytes_per_token, 4),
                "cpu_seconds": round(time.process_time() - started, 1),
                "points": [
                    {name: round(value, 4) for name, value in point.items()} for point in points
                ],
            }
            runs.append(made)
            found = f"{points[-1]['bits_per_byte']:.3f} bits per byte, {made['cpu_seconds']:.0f} s"
            print(f"{size:,} tokens, seed {seed}: {found}", flush=True)
    text = {
        "trained_on_bytes": size_of(documents),
        "held_out_bytes": held_out_bytes,
        "held_out_documents": len(held_out),
    }
    return {**facts(), "text": text, "compute": options.compute, "runs": runs}


def size_of(documents: list[str]) -> int:
    """Return the number of bytes of documents."""
    return sum(len(document.encode()) for document in documents)


def facts() -> dict[str, Any]:
    """Return what was run, and where."""
    return {
        "measured": time.strftime("%Y-%m-%d"),
        "hardware": f"one thread, {processor()}",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "bpe_tokenizer": bpe_tokenizer.__version__,
        },
        "model": {
            "layers": LAYERS,
            "width": WIDTH,
            "heads": HEADS,
            "context": CONTEXT,
            "batch": BATCH,
            "learning_rate": LEARNING_RATE,
        },
    }


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "")


def main() -> None:
    """Train, write the result, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, metavar="N")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, metavar="N")
    parser.add_argument(
        "--compute", type=float, default=COMPUTE, metavar="N", help="10^12 operations per model"
    )
    parser.add_argument("--output", type=Path, default=RESULT, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = run(options)
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"Wrote {options.output}")


if __name__ == "__main__":
    main()
