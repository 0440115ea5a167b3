#!/bin/sh
# The whole test suite and, beside it, random schedules in virtual time with fresh seeds: five minutes of them, or
# SIM_SECONDS. What they say goes to a file, and is shown when both are done. Fails when either fails.
set -u
BIN=.venv/bin
SECONDS_OF_SCHEDULES=${SIM_SECONDS:-300}
# Without all-die, ours and ours-apart: docs/simulation.md, Open, says what is to be done about them.
FAMILIES=together,released,apart,sparse,crossing,modes,silent,expiry
said=$(mktemp) || exit 1
nice -n 5 "$BIN/python" -m chaos.simulate --seconds "$SECONDS_OF_SCHEDULES" --family "$FAMILIES" >"$said" 2>&1 &
schedules=$!

# A job in the background ignores the terminal's Ctrl-C, so that it is ended here, however this script ends.
end() {
    kill "$schedules" 2>/dev/null
    wait "$schedules" 2>/dev/null
    rm -f "$said"
}
trap 'end; trap - EXIT; exit 130' INT
trap 'end; trap - EXIT; exit 143' TERM HUP
trap end EXIT

"$BIN/python" -m pytest -n 2 --dist loadgroup --durations=10 "$@"
tests=$?

echo "random schedules:"
wait "$schedules"
found=$?
if [ "$found" -eq 0 ]; then
    sed -n '1p' "$said"
    tail -n 2 "$said"
else
    cat "$said"
fi
[ "$tests" -eq 0 ] && [ "$found" -eq 0 ]
