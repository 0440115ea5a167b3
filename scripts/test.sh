#!/bin/sh
# The whole test suite and, beside it, `make check`, random schedules in virtual time, and a sample of compiled modules.
# What these say goes to files. What `make check` finds is shown at once, the rest when all are done. Fails when one of
# them fails.
#
# Three workers on two cores: those with tests of processes mostly wait (tests/conftest.py).
#
# Seeds that nobody has played before, chosen by the commit: the same commit plays the same ones, so that what is red is
# red again. SIM_SCHEDULES=5000 plays so many of them; SIM_SECONDS=300 plays seeds drawn by chance for so long.
set -u
BIN=.venv/bin
SCHEDULES=${SIM_SCHEDULES:-1000} # one or two minutes of one core, at 13 to 35 in a second of CPU
head=$(git rev-parse --verify --quiet HEAD 2>/dev/null | cut -c1-7)
first=$((0x${head:-0}))
SEEDS=$first-$((first + SCHEDULES - 1))
said=$(mktemp) && checks=$(mktemp) && compiled=$(mktemp) || exit 1
if [ -n "${SIM_SECONDS:-}" ]; then
    nice -n 5 "$BIN/python" -m chaos.simulate --seconds "$SIM_SECONDS" >"$said" 2>&1 &
else
    nice -n 5 "$BIN/python" -m chaos.simulate --seeds "$SEEDS" >"$said" 2>&1 &
fi
schedules=$!

check() {
    nice -n 5 make --no-print-directory check >"$checks" 2>&1 &
    made=$!
    trap 'kill "$made"; exit 143' TERM
    wait "$made" || {
        cat "$checks"
        return 1
    }
}
check &
checking=$!

# In a process group of its own, so that pip and the compilers end with it.
nice -n 5 "$BIN/python" -c 'import os; os.setpgid(0, 0); os.execl("scripts/compiled.sh", "compiled.sh", "--sample")' \
    >"$compiled" 2>&1 &
compiling=$!

# A job in the background ignores the terminal's Ctrl-C, so that it is ended here, however this script ends.
end() {
    kill "$schedules" "$checking" 2>/dev/null
    kill -- "-$compiling" 2>/dev/null
    wait "$schedules" "$checking" "$compiling" 2>/dev/null
    rm -f "$said" "$checks" "$compiled"
}
trap 'end; trap - EXIT; exit 130' INT
trap 'end; trap - EXIT; exit 143' TERM HUP
trap end EXIT

"$BIN/python" -m pytest -n 3 --dist loadgroup --no-loadscope-reorder --durations=10 "$@"
tests=$?

wait "$checking"
checked=$?
[ "$checked" -ne 0 ] || cat "$checks"
echo "random schedules:"
wait "$schedules"
found=$?
if [ "$found" -eq 0 ]; then
    sed -n '1p' "$said"
    tail -n 2 "$said"
else
    cat "$said"
fi
echo "compiled modules, a sample:"
wait "$compiling"
sampled=$?
if [ "$sampled" -eq 0 ]; then
    grep -v "^SKIPPED\|^$" "$compiled" | tail -n 6
else
    cat "$compiled"
fi
[ "$checked" -eq 0 ] || echo "make check failed; what it said is above"
[ "$tests" -eq 0 ] && [ "$found" -eq 0 ] && [ "$sampled" -eq 0 ] && [ "$checked" -eq 0 ]
