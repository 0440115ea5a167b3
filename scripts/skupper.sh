#!/bin/sh
# scripts/skupper.sh CHECKOUT [NAME ...]: system tests of skupper-router, from a checkout of its repository, against routers of
# Onceway. Prints each test with its result, and the output of each NAME to .venv/skupper/NAME.log.
set -u
[ -f "$1/tests/system_test.py" ] || { echo "skupper.sh: $1 is no checkout of skupper-router" >&2; exit 2; }
checkout=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.." || exit
here=$PWD/.venv/skupper
python=$PWD/.venv/bin/python
mkdir -p "$here/bin" "$here/registry"
cp -r "$checkout/python" "$here/"
sed 's/\${[A-Za-z_]*}//' "$checkout/python/skupper_router/_skupper_router_site.py.in" >"$here/python/skupper_router/_skupper_router_site.py"
printf '#!/bin/sh\nPYTHONPATH=%s exec %s -m tests.interop.skupper.launcher "$@"\n' "$PWD" "$python" >"$here/bin/skrouterd"
for tool in skmanage skstat; do
    { echo "#!$python" && sed 1d "$checkout/tools/$tool.in"; } >"$here/bin/$tool"
done
chmod +x "$here"/bin/*
[ $# -gt 0 ] || set -- drain dynamic_terminus delivery_abort open_properties failover_list protocol_settings one_router
export PATH="$here/bin:$PATH" PYTHONPATH="$here/python:$checkout/tests:$PWD" QPID_DISPATCH_HOME="$here"
export QPID_SYSTEM_TEST_TIMEOUT="${QPID_SYSTEM_TEST_TIMEOUT:-20}" SKUPPER_REGISTRY="$here/registry"
cd "$here" || exit
failed=0
for name in "$@"; do
    "$python" -m tests.interop.skupper.suite "system_tests_$name" >"$name.log" 2>&1 || failed=1
    grep -E '^(test|setUp|tearDown).* \.\.\. ' "$name.log"
done
exit $failed
