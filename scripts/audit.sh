#!/bin/sh
# Known vulnerabilities of what requirements.lock names: pip-audit asks pypi.org. Fails if there is one.
#
# With --if-reachable, for `make check`: once a day for each lock, and where pypi.org does not answer within 3 s it says
# so and is content.
set -eu
tools=.venv/tools/bin
asked="$(date -u +%F) $(sha256sum <requirements.lock)"
if [ "${1:-}" = --if-reachable ]; then
    if [ "$(cat .venv/audited 2>/dev/null || true)" = "$asked" ]; then exit 0; fi
    first=$(sed -n 's|^\([A-Za-z0-9._-]*\)==\([^ ;]*\).*|\1/\2|p' requirements.lock | head -n 1)
    if ! timeout 5 .venv/bin/python -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=3).close()' \
        "https://pypi.org/pypi/$first/json" 2>/dev/null; then
        echo "pip-audit: pypi.org does not answer, so nobody was asked for known vulnerabilities (make audit)"
        exit 0
    fi
fi
[ -x "$tools/python" ] || .venv/bin/python -m venv .venv/tools
"$tools/python" -m pip install -q pip-audit
timeout 300 "$tools/pip-audit" --strict --require-hashes --disable-pip -r requirements.lock
echo "$asked" >.venv/audited
