"""Run README's example with the installed package: python try_readme.py README.md.

It must print what README shows, and the engine in C must be in use.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path


def main(readme: str) -> int:
    """Run the first example of a page; return 1 unless it prints what the page shows."""
    text = Path(readme).read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.M | re.S)
    assert example, f"{readme}: no example"
    printed = io.StringIO()
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        os.chdir(folder)
        exec(compile(example[1], readme, "exec"), {})
        os.chdir(before)
    import bpe_tokenizer

    native = sys.modules["_bpe_tokenizer.native"] if bpe_tokenizer.ACCELERATED else None
    print(bpe_tokenizer.__file__, getattr(native, "INSTRUCTIONS", "the engine in Python"))
    print(printed.getvalue(), end="")
    return printed.getvalue() != example[2] or native is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
