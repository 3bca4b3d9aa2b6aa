"""The installed command.  While it loads, Ctrl-C ends it at once, without a traceback."""

import signal
import sys


def main() -> int:
    """Run the command line; see `bpe_tokenizer.main`."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:  # not where a shell ignores Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from bpe_tokenizer import main as run
    except ImportError as error:  # `regex` is missing, or the parts are of different versions
        print(f"bpe-tokenizer: error: {error}", file=sys.stderr)
        return 1
    try:
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:  # before or after `run` handles it
        return 128 + 2
