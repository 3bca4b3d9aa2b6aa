"""Run every benchmark and print the tables.

python benchmarks/run.py [--quick] [--json] [--corpus FILE...]
"""

from __future__ import annotations

import argparse

import bench_encode
import bench_train
import common


def main() -> None:
    """Run them all with their default options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_options(parser)
    parser.add_argument("--quick", action="store_true", help="less text: is everything in order?")
    options = parser.parse_args()
    corpus = ["--corpus", *map(str, options.corpus)] if options.corpus else []
    few = ["--megabytes", "1"] if options.quick else []
    once = ["--repeat", "1"] if options.quick else []
    tables = bench_encode.collect(bench_encode.build_parser().parse_args([*corpus, *few]))
    tables += bench_train.collect(bench_train.build_parser().parse_args([*corpus, *few, *once]))
    common.finish("all", tables, options.json)


if __name__ == "__main__":
    main()
