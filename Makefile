# One target for each check. A target runs in the activated environment, and its line below says
# what must be installed there if the extra "dev" is not enough. `.ci/run` makes an environment for
# each and runs them all. `make` alone lists them. It takes GNU make.

SHELL := bash
OUT ?= $(CURDIR)/build/checks
DIST ?= $(CURDIR)/dist
# `python -m` tests the code in this folder; `pytest` alone tests the installed copy.
PYTEST := python -m pytest -q -p no:cacheprovider
PYTEST_INSTALLED := pytest -q -p no:cacheprovider

# The tests of the extension, which compare it with the engine in Python, and those that use it most.
EXTENSION := tests/accelerator
# Other libraries' own tests.
THEIR_TESTS := tests/dropin/test_their_own_tests.py
# Those that take longest begin first, or one process would be left with them at the end.
LONGEST := $(THEIR_TESTS) tests/scale/test_scale_ray.py tests/chat/test_tiny_chat_model.py tests/scale/test_scale_faults.py \
	tests/module/test_saving.py tests/formats/test_hub.py
# Those that backends matter to most; `backends` runs all of them, slow ones and all examples, too.
BACKENDS := tests/backends tests/adapting/test_adapt_model.py $(wildcard tests/chat/test_chat*.py) \
	tests/chat/test_conversation.py tests/chat/test_tiny_chat_model.py tests/formats/test_gguf.py \
	tests/module/test_round_trips.py tests/checking/test_check.py tests/formats/test_convert.py
# Those that an engine matters to most.
ENGINES := tests/module tests/formats tests/training tests/test_warnings.py
CORE := $(patsubst %,tests/module/test_%.py,engine encode train streaming special_tokens object)

.PHONY: help format lint types test test-more test-slow test-python packages hints alone no-compiler core extension \
	transformers4 fuzz fuzz-seeds loaders uses their-tests grammars optimum backends warnings sanitizers docs site pictures

help:
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1 - \2/p' Makefile | awk -F ' - ' '{ printf "%-14s%s\n", $$1, $$2 }'

format: ## the code is formatted; `ruff format .` formats it
	ruff format --check .

lint: ## ruff finds nothing
	ruff check .

types: ## mypy finds nothing
	mypy --strict

test: ## all tests except slow ones, with the engine in use and a quarter of the random examples
	python -m pytest -n auto --dist loadfile

test-more: test-slow test-python ## slow tests, skipped ones, all random examples, except LEFT_TO; then the tests of the Python engine, or those MARKED

test-slow:
	python -m pytest -n auto --dist loadfile --no-loadscope-reorder --slow \
		-m "slow or hypothesis or skipped_before" $(addprefix --ignore=,$(LEFT_TO)) \
		$(filter-out $(LEFT_TO),$(LONGEST)) tests

test-python:
	python -m pytest -n auto --dist loadfile --slow --engine python -k "not either" -m "$(MARKED)" $(ENGINES)

docs: ## the documentation as a web site, in build/site; needs `pip install '.[docs]'`
	python docs/site/build.py

site: export BPE_TOKENIZER_REQUIRE = mkdocs,material,mkdocstrings,selenium,chromium
site: ## the site builds without a warning and fetches nothing; needs '.[docs]', core's packages, selenium and Chromium
	$(PYTEST) --slow tests/test_site.py

pictures: ## redraws the pictures in docs/; needs core's packages, selenium, Chromium, rich and matplotlib
	python docs/site/pictures.py

# The date of all files in them: that of the version.
packages: export SOURCE_DATE_EPOCH ?= $(shell python -c 'import calendar, re; \
	print(calendar.timegm([*map(int, re.search(r"\] - (\d+)-(\d+)-(\d+)", open("CHANGELOG.md").read()).groups()), 0, 0, 0]))')
packages: ## the source archive and the wheel made from it, in dist/: built twice, both times the same bytes
	python -m build --outdir $(DIST) .
	rm -rf $(OUT)/again && python -m build --outdir $(OUT)/again .
	for file in $(OUT)/again/*; do cmp "$$file" "$(DIST)/$$(basename "$$file")" || exit 1; done
	python -m zipfile -l $$(ls $(OUT)/again/*.whl) | grep -F dist-info/sboms/bpe-tokenizer.cdx.json

hints: ## mypy reads the hints of an installed copy; needs `pip install .`, not editable
	mkdir -p $(OUT)/hints
	cp tests/hints.py $(OUT)/hints/
	cd $(OUT)/hints && mypy --strict --config-file= hints.py

alone: ## the module copied alone into an empty folder; in an environment with requirements.txt only
	rm -rf $(OUT)/alone && mkdir -p $(OUT)/alone
	cp bpe_tokenizer.py $(OUT)/alone/
	cd $(OUT)/alone && python -c 'import argparse, shutil; shutil.copy(argparse.__file__, "corpus.txt")'
	cd $(OUT)/alone && python bpe_tokenizer.py train --corpus corpus.txt --output t --vocab-size 600 --quiet
	cd $(OUT)/alone && python bpe_tokenizer.py info --tokenizer t
	cd $(OUT)/alone && python bpe_tokenizer.py encode --tokenizer t --text - < corpus.txt > ids.txt
	cd $(OUT)/alone && set -o pipefail && \
		python -m bpe_tokenizer decode --tokenizer t --ids - < ids.txt | cmp - corpus.txt
	cd $(OUT)/alone && python -c 'from bpe_tokenizer import BPETokenizer; \
		text = open("corpus.txt", encoding="utf-8", newline="").read(); \
		tokenizer = BPETokenizer().train(text, 500, verbose=False); \
		tokenizer.save("u", verbose=False); \
		loaded = BPETokenizer.from_pretrained("u", verbose=False); \
		assert loaded == tokenizer and loaded.decode(loaded.encode(text)) == text'

no-compiler: ## the source archive installs without a C compiler and says so; in an empty environment
	mkdir -p $(OUT)/no-compiler
	BPE_TOKENIZER_REQUIRE_ACCELERATOR=0 CC=/no/compiler pip install -v $(DIST)/*.tar.gz \
		> $(OUT)/no-compiler/log 2>&1 || { cat $(OUT)/no-compiler/log; exit 1; }
	grep -F 'bpe-tokenizer: the accelerator was not built (' $(OUT)/no-compiler/log
	cd $(OUT)/no-compiler && python -W error -c 'import bpe_tokenizer; assert not bpe_tokenizer.ACCELERATED'
	cd $(OUT)/no-compiler && bpe-tokenizer train --corpus $(CURDIR)/README.md --output t --vocab-size 600 --quiet
	cd $(OUT)/no-compiler && set -o pipefail && bpe-tokenizer info --tokenizer t | grep -x 'accelerated *: False'

# Random examples are the same in each run; `test-more` tries them all.
core: export BPE_TOKENIZER_EXAMPLES = 0.1
extension: export BPE_TOKENIZER_EXAMPLES = 0.1
core: ENGINE = accelerated
core: ## the core with ENGINE=python or accelerated; needs pytest hypothesis tokenizers jinja2
	$(PYTEST_INSTALLED) --ignore=tests/module/test_huggingface.py --ignore=tests/accelerator --engine $(ENGINE) tests

# Without what is the same in each Python, which `test-more` runs: the sweeps of patterns over all characters,
# what compiles the extension or its core itself, and failures of the memory and threads that are not Python's.
extension: ## the extension compared with the Python engine; needs core's packages
	$(PYTEST_INSTALLED) --engine both --slow \
		-k "not core_alone and not wide_instructions and not test_every_character and not cut_every_character \
			and not cuts_every_character and not every_allocation_may_fail and not a_thread_that_was_stopped" \
		$(EXTENSION) tests/patterns/test_split_patterns.py

transformers4: ## what this library saves loads there too; needs transformers==4.57.6
	$(PYTEST_INSTALLED) --engine both tests/module/test_huggingface.py tests/dropin/test_dropin_transformers.py

loaders: export BPE_TOKENIZER_REQUIRE = $(LOADERS)
loaders: ## saved files load in LOADERS, modules that clash with others or are built on tiktoken; needs them and core's packages
	$(PYTEST_INSTALLED) tests/dropin/test_loaders.py tests/dropin/test_dropin_tiktoken.py

uses: export BPE_TOKENIZER_REQUIRE = $(USES)
uses: ## training stacks, harnesses, text splitters and servers' plugins; needs the packages that .ci/run installs
	$(PYTEST) tests/dropin/test_dropin_uses.py tests/dropin/test_twin.py tests/dropin/test_servers.py
	$(PYTEST) -k litellm tests/dropin/test_dropin_tiktoken.py

their-tests: export BPE_TOKENIZER_REQUIRE = parameterized,tokenizers,transformers,torch,tokenizers_source,transformers_source
their-tests: ## transformers' and tokenizers' own tests, from their source archives, which pip downloads
	$(PYTEST) --slow $(THEIR_TESTS)

grammars: export BPE_TOKENIZER_REQUIRE = llguidance,xgrammar,transformers,sentencepiece
grammars: ## grammar engines take tokenizers; needs llguidance xgrammar transformers sentencepiece and core's packages
	$(PYTEST) tests/dropin/test_dropin_grammars.py

optimum: export BPE_TOKENIZER_REQUIRE = optimum.intel,openvino,numpy,transformers
optimum: ## optimum-intel converts models, and they run; needs it, and it wants older libraries than the others
	$(PYTEST) --engine python tests/backends/test_openvino_conversion.py
	$(PYTEST) --engine python -k openvino tests/backends/test_generation.py

# MLX compiles kernels in TMPDIR and loads them from there.
backends: export BPE_TOKENIZER_REQUIRE = llama_cpp,mlx_lm,openvino,transformers,torch,gguf,numpy,jinja2
backends: export TMPDIR = $(OUT)/tmp
backends: ## models run and vocabularies load; needs all backends, and a missing one is a failure
	mkdir -p $(OUT)/tmp
	$(PYTEST) --slow $(BACKENDS)
	$(PYTEST) -k chat tests/test_module_alone.py
	# In its own process: these tests send it signals, and a process that had loaded all four
	# libraries once crashed.
	$(PYTEST) tests/chat/test_terminal.py

warnings: ## gcc and clang compile the extension with all warnings as errors
	@for compiler in gcc clang; do \
		if command -v $$compiler; then \
			CC=$$compiler python accelerator/tools/build.py $(OUT)/with-$$compiler || exit 1; \
		else echo "no $$compiler here"; fi; \
	done

# The core in C, run by libFuzzer, from the inputs kept in tests/data/fuzz; core.c has image.c in it.
FUZZ_SEEDS := tests/data/fuzz/core.zip
CORE_SOURCES := $(filter-out %/image.c,$(wildcard $(addsuffix /*.c,$(addprefix accelerator/,base encode find scan train))))
$(OUT)/fuzz-core: fuzz/core.c $(wildcard accelerator/*/*.[ch])
	mkdir -p $(OUT)/fuzz-corpus
	python -m zipfile -e $(FUZZ_SEEDS) $(OUT)/fuzz-corpus
	clang -std=c11 -g -O2 -Wall -Wextra -Werror -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
		-pthread -Iaccelerator $(CORE_SOURCES) fuzz/core.c -o $@

SECONDS ?= 120
fuzz: ## gives readers mutated files for SECONDS, then the core in C inputs, if there is clang; see fuzz/README.md
	python fuzz/run.py --seconds $(SECONDS) --seed 1
	@if command -v clang; then \
		$(MAKE) $(OUT)/fuzz-core && cd $(OUT) && \
		./fuzz-core fuzz-corpus -len_control=0 -max_len=3000 -max_total_time=$(SECONDS); \
	else echo "no clang here, so the core in C gets no inputs: apt-get install clang"; fi

fuzz-seeds: $(OUT)/fuzz-core ## keeps the inputs that `make fuzz` has found to reach new code
	rm -rf $(OUT)/fuzz-seeds && mkdir $(OUT)/fuzz-seeds
	$(OUT)/fuzz-core -set_cover_merge=1 -use_counters=0 $(OUT)/fuzz-seeds $(OUT)/fuzz-corpus
	rm -f $(FUZZ_SEEDS) && cd $(OUT)/fuzz-seeds && TZ=UTC python -m zipfile -c $(CURDIR)/$(FUZZ_SEEDS) *

# Without the sweeps over all characters, which are many and alike, without the tests that compile the
# extension or its core themselves, and without the fuzzer's test: the last line runs it for longer.
sanitizers: export BPE_TOKENIZER_EXAMPLES = 0.25
sanitizers: export BPE_TOKENIZER_ACCELERATOR_DIR = $(OUT)/checked
sanitizers: export PYTHONMALLOC = malloc
sanitizers: export ASAN_OPTIONS = detect_leaks=0
sanitizers: PRELOAD = LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libubsan.so)"
sanitizers: ## the extension with every access to memory checked
	python accelerator/tools/build.py $(OUT)/checked --sanitize
	$(PRELOAD) $(PYTEST) --engine both --slow \
		-k "not every_character and not core_alone and not wide_instructions and not fuzzer_runs" $(EXTENSION)
	$(PRELOAD) $(PYTEST) $(CORE)
	$(PRELOAD) PYTHONPATH=$(OUT)/checked python accelerator/tools/fuzz.py --seconds 40
