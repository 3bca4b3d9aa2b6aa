"""Make a chat model of 630,000 parameters that answers questions about tokenization.

    pip install '.[transformers]'
    python examples/make_tiny_chat_model.py --output tiny-chat
    bpe-tokenizer chat --model tiny-chat/safetensors

In a few minutes on two cores, offline, it trains a tokenizer of this library and a model of the
Llama architecture on the questions and answers in tokenization_qa.txt.  It writes them in the
formats of up to four libraries: safetensors for Transformers, MLX, GGUF for llama.cpp if gguf
is installed, OpenVINO if openvino is.

The training data are conversations in ChatML, one question after another in random order
and spelling.  The model learns to write only the assistant's tokens: the mask of
`apply_chat_template` marks those.  The model knows its answers by heart and
nothing else.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import llama_forms

from bpe_tokenizer import BPETokenizer

QUESTIONS = Path(__file__).with_name("tokenization_qa.txt")
VOCAB_SIZE, CONTEXT = 2_048, 512
CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# -- Questions and answers ----------------------------------------------------

FOLLOW_UPS = ("Tell me more.", "Can you say more?", "Go on.", "More?")
NO_MORE = "That is all I know about it."
SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You answer questions about tokenization.",
    "Answer in one or two sentences.",
    "Be brief.",
)
TURNS = (1, 1, 1, 2, 2, 3, 4, 6)  # how many a conversation has, one as likely as another
TIMES = 24  # how often each question is asked in all of them


@dataclass(frozen=True)
class Entry:
    """Questions that have one answer, and what there is to add to it."""

    questions: tuple[str, ...]
    answer: str
    more: str = NO_MORE


class Turn(NamedTuple):
    """A question, its answer, and the answer to a follow-up."""

    question: str
    answer: str
    more: str


Message = dict[str, str]
Conversation = list[Message]


def read_entries(path: Path) -> list[Entry]:
    """Read blocks of lines: "Q:" a question, "A:" the answer, "More:" what can be added."""
    entries = []
    for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines()]
        said = {key: text for key, _, text in lines}
        questions = tuple(text for key, _, text in lines if key == "Q")
        entries.append(Entry(questions, said["A"], said.get("More", NO_MORE)))
    return entries


def as_typed(question: str, chance: random.Random) -> str:
    """Spell a question as people do who are in a hurry."""
    spell = chance.choice((str, str, str, str.lower, str.lower, str.upper, str.upper))
    return spell(question.rstrip("?.") if chance.random() < 0.4 else question)


def converse(turns: Sequence[Turn], chance: random.Random) -> Conversation:
    """Make a conversation of some turns, perhaps with a system prompt and a follow-up."""
    made: Conversation = []

    def say(question: str, answer: str) -> None:
        made.append({"role": "user", "content": as_typed(question, chance)})
        made.append({"role": "assistant", "content": answer})

    if chance.random() < 0.4:
        made.append({"role": "system", "content": chance.choice(SYSTEM_PROMPTS)})
    for turn in turns:
        say(turn.question, turn.answer)
        if chance.random() < (0.05 if turn.more == NO_MORE else 0.4):
            say(chance.choice(FOLLOW_UPS), turn.more)
    return made


def all_turns(entries: Sequence[Entry]) -> list[Turn]:
    """Return each question with its answer."""
    return [Turn(q, entry.answer, entry.more) for entry in entries for q in entry.questions]


def conversations(
    entries: Sequence[Entry], times: int, chance: random.Random
) -> Iterator[Conversation]:
    """Yield conversations that ask each question that many times."""
    turns = all_turns(entries)
    for _ in range(times):
        chance.shuffle(turns)
        rest = list(turns)
        while rest:
            count = chance.choice(TURNS)
            yield converse(rest[:count], chance)
            del rest[:count]


# -- Tokens -------------------------------------------------------------------


class Example(NamedTuple):
    """A conversation as ids, and a 1 for each that the assistant wrote."""

    ids: list[int]
    mask: list[int]


def train_tokenizer(entries: Sequence[Entry]) -> BPETokenizer:
    """Learn the vocabulary from the questions and answers, as they are and as typed."""
    texts = [text for entry in entries for text in (*entry.questions, entry.answer, entry.more)]
    spelled = [
        spell(q) for entry in entries for q in entry.questions for spell in (str.lower, str.upper)
    ]
    # llama.cpp has no normalizer, and a GGUF file says what to add around a text: nothing.
    tokenizer = BPETokenizer("qwen2", normalizer=None, surround="bos").train(
        [*texts, *spelled, *FOLLOW_UPS, *SYSTEM_PROMPTS, "system\nuser\nassistant\n"],
        VOCAB_SIZE,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        num_workers=1,
        verbose=False,
    )
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    tokenizer.chat_template = CHATML
    return tokenizer


def encode(tokenizer: BPETokenizer, conversation: Conversation) -> Example | None:
    """Encode a conversation; None if it is longer than the context."""
    made = tokenizer.apply_chat_template(
        conversation,
        add_generation_prompt=False,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    if len(made["input_ids"]) > CONTEXT:
        return None
    return Example(made["input_ids"], made["assistant_masks"])


def encode_all(tokenizer: BPETokenizer, some: Iterator[Conversation]) -> list[Example]:
    """Encode all conversations that fit the context."""
    examples = (encode(tokenizer, conversation) for conversation in some)
    return [example for example in examples if example]


# -- The model ----------------------------------------------------------------


def configuration(tokenizer: BPETokenizer) -> dict[str, Any]:
    """Return the model's config.json: with 2,048 tokens, 630,000 parameters."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokenizer.max_id + 1,
        "hidden_size": 128,
        "intermediate_size": 352,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }


def new_model(config: dict[str, Any], seed: int) -> Any:
    """Return a model with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**config))


def weights_of(model: Any) -> dict[str, Any]:
    """Return the weights as arrays, without the output table, which is the embedding."""
    named = {name: weight.detach().numpy() for name, weight in model.state_dict().items()}
    del named["lm_head.weight"]
    return named


def padded(examples: Sequence[Example], pad: int) -> tuple[Any, Any]:
    """Return ids and masks as two tensors; padding has mask 0."""
    import torch

    length = max(len(example.ids) for example in examples)
    rest = [length - len(example.ids) for example in examples]
    ids = [example.ids + [pad] * n for example, n in zip(examples, rest)]
    masks = [example.mask + [0] * n for example, n in zip(examples, rest)]
    return torch.tensor(ids), torch.tensor(masks, dtype=torch.bool)


def logits_of_answers(model: Any, ids: Any, mask: Any) -> tuple[Any, Any]:
    """Return the logits for each token that the assistant wrote, and the token.

    Padding comes last, and a token sees only the tokens before it, so no attention mask is
    needed.
    """
    hidden = model.model(ids[:, :-1]).last_hidden_state[mask[:, 1:]]
    return model.lm_head(hidden), ids[:, 1:][mask[:, 1:]]


def batches(
    examples: Sequence[Example], rows: int, chance: random.Random
) -> Iterator[list[Example]]:
    """Yield batches without end; those in a batch are of about one length, to pad little."""
    while True:
        order = chance.sample(examples, len(examples))
        for start in range(0, len(order), 8 * rows):
            some = sorted(order[start : start + 8 * rows], key=lambda example: len(example.ids))
            groups = [some[i : i + rows] for i in range(0, len(some), rows)]
            yield from chance.sample(groups, len(groups))


def train(
    model: Any,
    examples: Sequence[Example],
    steps: int,
    seconds: float = math.inf,
    *,
    rows: int = 16,
    rate: float = 4e-3,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> int:
    """Train a model; return how many steps were done.

    The learning rate rises for a twentieth of the time and falls to zero over the rest;
    the time is over after `steps` or `seconds`, whichever comes first.
    """
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    pad, started, average, told = model.config.pad_token_id, time.monotonic(), 0.0, 0
    model.train()
    for step, batch in enumerate(batches(examples, rows, random.Random(seed))):
        done = max(step / steps, (time.monotonic() - started) / seconds)
        if done >= told / 10 and step:
            say(f"  {done:4.0%}  step {step:5,}  loss {average:.3f}  {clock(started)}")
            told = math.floor(10 * done) + 1
        if done >= 1:
            return step
        for group in optimizer.param_groups:
            group["lr"] = rate * min(20 * done + 1 / steps, (1 + math.cos(math.pi * done)) / 2)
        logits, targets = logits_of_answers(model, *padded(batch, pad))
        loss: Any = torch.nn.functional.cross_entropy(logits, targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average = loss.item() if not step else 0.95 * average + 0.05 * loss.item()
    raise ValueError("there is nothing to train on")


def clock(started: float) -> str:
    """Return the time that has passed since."""
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    return f"{minutes}:{seconds:02}"


# -- Checking what it has learned ---------------------------------------------


def right_answers(model: Any, examples: Sequence[Example]) -> list[bool]:
    """Return for each answer whether greedy decoding gives it word for word.

    It does if the likeliest token is right after the prompt and after each token of the
    answer; so one pass finds out, without generating.
    """
    import torch

    pad, right = model.config.pad_token_id, []
    model.eval()
    for start in range(0, len(examples), 64):
        some = examples[start : start + 64]
        with torch.inference_mode():
            logits, targets = logits_of_answers(model, *padded(some, pad))
        hits = iter((logits.argmax(-1) == targets).tolist())
        for example in some:
            for before, mark in zip([0, *example.mask], example.mask):
                if mark and not before:
                    right.append(True)
                if mark:
                    right[-1] &= next(hits)
    return right


def share(right: Sequence[bool]) -> str:
    """Write how many of some answers are right."""
    return f"{sum(right):,} of {len(right):,} ({sum(right) / len(right):.1%})"


def report(model: Any, tokenizer: BPETokenizer, entries: Sequence[Entry], seed: int) -> None:
    """Print how many questions are answered word for word."""

    def asked(spell: Callable[[str], str]) -> list[bool]:
        alone = (
            [
                {"role": "user", "content": spell(turn.question)},
                {"role": "assistant", "content": turn.answer},
            ]
            for turn in all_turns(entries)
        )
        return right_answers(model, encode_all(tokenizer, alone))

    unseen = conversations(entries, 2, random.Random(seed + 1))
    print("answered word for word by greedy decoding:")
    print(f"  as written                    {share(asked(str))}")
    print(f"  in small letters, without ?   {share(asked(lambda q: q.lower().rstrip('?.')))}")
    print(f"  in capital letters            {share(asked(str.upper))}")
    in_talk = right_answers(model, encode_all(tokenizer, unseen))
    print(f"  in conversations it never saw {share(in_talk)}")


# -- The forms ----------------------------------------------------------------


class Form(NamedTuple):
    """A form a model is written in: its name in the output folder, by what, needing what."""

    name: str
    write: Callable[..., Path]
    package: str
    backend: str


FORMS = {
    "safetensors": Form("safetensors", llama_forms.write_safetensors, "numpy", "transformers"),
    "gguf": Form("tiny-chat.gguf", llama_forms.write_gguf, "gguf", "llama.cpp"),
    "openvino": Form("openvino", llama_forms.write_openvino, "openvino", "openvino"),
    "mlx": Form("mlx", llama_forms.write_mlx, "numpy", "mlx"),
}


def write_forms(
    folder: Path, names: Sequence[str], model: Any, config: Any, tokenizer: BPETokenizer
) -> dict[str, Path]:
    """Write a model in some forms; return where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = weights_of(model)
    return {
        name: FORMS[name].write(folder / FORMS[name].name, config, weights, tokenizer)
        for name in names
    }


# -- The command --------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n", 1)[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--output", type=Path, default=Path("tiny-chat"), metavar="DIR", help="where to write to")
    add("--steps", type=int, default=800, metavar="N", help="how long to train")
    more = "stop after this many minutes; the result then depends on the speed of the machine"
    add("--minutes", type=float, default=math.inf, metavar="M", help=more)
    add("--seed", type=int, default=0, metavar="N", help="another one makes another model")
    add("--threads", type=int, default=2, metavar="N", help="how many to compute with")
    here = [name for name, form in FORMS.items() if importlib.util.find_spec(form.package)]
    which = f"which to write, of {', '.join(FORMS)}"
    add("--forms", nargs="+", choices=list(FORMS), default=here, metavar="FORM", help=which)
    add("--questions", type=Path, default=QUESTIONS, metavar="FILE", help="what to learn")
    return parser


def check(options: argparse.Namespace) -> None:
    """Find out before the work whether it can be done."""
    needed = {"torch", "transformers", "jinja2", "numpy"}
    needed |= {FORMS[name].package for name in options.forms}
    missing = sorted(name for name in needed if importlib.util.find_spec(name) is None)
    if missing:
        raise SystemExit(
            f"not installed: {', '.join(missing)}; pip install {' '.join(missing)}, or choose "
            "other --forms"
        )
    for name in ("steps", "minutes", "threads"):
        if not getattr(options, name) > 0:
            raise SystemExit(f"--{name} must be more than 0, got {getattr(options, name)}")
    options.output.mkdir(parents=True, exist_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train the tokenizer and the model, write it, and say how good it is."""
    options = build_parser().parse_args(arguments)
    check(options)
    # Threads that wait for each other by sleeping: on a busy machine, spinning takes ages.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(options.threads)
    started = time.monotonic()
    entries = read_entries(options.questions)
    tokenizer = train_tokenizer(entries)
    chance = random.Random(options.seed)
    examples = encode_all(tokenizer, conversations(entries, TIMES, chance))
    print(f"{len(all_turns(entries))} questions, {len(entries)} answers; {tokenizer!r}")
    config = configuration(tokenizer)
    model = new_model(config, options.seed)
    print(f"{model.num_parameters():,} parameters; {len(examples):,} conversations")
    train(model, examples, options.steps, 60 * options.minutes, seed=options.seed)
    report(model, tokenizer, entries, options.seed)
    written = write_forms(options.output, options.forms, model, config, tokenizer)
    print(f"made in {clock(started)} ({time.process_time():.0f} s of processor time); now try")
    for path in written.values():
        print(f"  bpe-tokenizer chat --model {path}")


if __name__ == "__main__":
    main()
