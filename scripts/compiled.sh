#!/bin/sh
# The tests of what can be compiled, with compiled modules: a copy of this tree in build/compiled in which they lie beside
# their sources, so that they are found first. Random schedules are played with both, and must come to the same.
# ARGS go to pytest, in place of the list of tests; --sample, which `make test` asks for, takes the tests of a minute.
set -eu
BIN=$PWD/.venv/bin
TREE=$PWD/build/compiled
SEEDS=${SEEDS:-0-499}
why=$("$BIN/python" -c 'import setup; print(setup.lacking())')
if [ -n "$why" ]; then
    echo "nothing is compiled: $why"
    [ "${1:-}" = --sample ] # without a compiler, `make test` says so and goes on
    exit
fi
if [ "${1:-}" = --sample ]; then
    export ONCEWAY_OPTIMIZATION=0
    SEEDS=0-99
    set -- -q tests/test_compiled.py tests/amqp10 tests/interrouter
fi
rm -rf "$TREE"
mkdir -p "$TREE"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$TREE" 2>/dev/null || true
ln -s "$PWD/.venv" "$TREE/.venv"
if [ -d tests/interop/node_modules ]; then ln -s "$PWD/tests/interop/node_modules" "$TREE/tests/interop/node_modules"; fi
echo "compiling, some four minutes of CPU"
(cd "$TREE" && ONCEWAY_COMPILED=1 "$BIN/python" -m pip wheel -q --no-deps -w build/wheel .)
"$BIN/python" -m zipfile -e "$TREE"/build/wheel/onceway-*.whl "$TREE/unpacked"
(cd "$TREE/unpacked" && find . -name '*.so' | xargs cp --parents -t ..)
rm -rf "$TREE/unpacked" "$TREE/build"

# The same histories: the lines that count schedules and events are the same but for the time that it took.
played() { "$BIN/python" -m chaos.simulate --seeds "$SEEDS" | sed -n 's/ events, .*//p'; }
pure=$(played)
cd "$TREE"
export PYTHONPATH="$TREE"
"$BIN/onceway" --version | grep compiled
with=$(played)
[ -n "$pure" ] && [ "$pure" = "$with" ] || { printf 'the schedules went otherwise:\n%s\n%s\n' "$pure" "$with"; exit 1; }
echo "$with events, the same as without"
demo=$("$BIN/onceway" demo --no-spark --count 2000) || { echo "$demo"; exit 1; }
echo "$demo" | tail -n 1
# Of the simulation without the tests that change the product's classes, or look into its objects from outside.
if [ $# -eq 0 ]; then
    set -- tests/test_compiled.py tests/amqp10 tests/mqtt tests/interrouter tests/router tests/interop tests/chaos tests/cli tests/simulation/test_scenarios.py \
        tests/simulation/test_random_schedules.py tests/simulation/test_real_clients.py tests/simulation/test_pacing.py
fi
exec "$BIN/python" -m pytest -n 2 --dist loadgroup "$@"
