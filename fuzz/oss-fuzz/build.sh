#!/bin/bash -eu
# Build one target for each reader of fuzz/readers.py.
pip3 install . jinja2 numpy
readers=$(python3 -c 'import sys; sys.path.insert(0, "fuzz"); import readers; print(*readers.READERS, sep="\n")')
while read -r reader; do
    target=fuzz_${reader//[^a-z]/_}
    cat > "$target.py" << PROGRAM
import sys
sys.path.insert(0, "fuzz")
import run
sys.argv[1:1] = ["$reader", "--atheris"]
run.main()
PROGRAM
    compile_python_fuzzer "$target.py" --paths fuzz --hidden-import readers --hidden-import mutate
done <<< "$readers"
