#!/bin/sh
# Known vulnerabilities of what requirements.lock names: pip-audit asks pypi.org, or a service that speaks as osv.dev
# does, whose URL is in OSV_URL. Fails if there is one.
#
# With --if-reachable, for `make check`: once a day for each lock, and where the service does not answer for the first
# package within 3 s it says so and is content. Then the lock with its hashes is what holds.
set -eu
tools=.venv/tools/bin
service=${OSV_URL:-https://pypi.org/pypi}
asked="$(date -u +%F) $service $(sha256sum <requirements.lock)"
if [ "${1:-}" = --if-reachable ]; then
    if [ "$(cat .venv/audited 2>/dev/null || true)" = "$asked" ]; then exit 0; fi
    set -- $(sed -n 's|^\([A-Za-z0-9._-]*\)==\([^ ;]*\).*|\1 \2|p' requirements.lock | head -n 1)
    if ! why=$(timeout 5 .venv/bin/python - "$service" "$@" "${OSV_URL:+osv}" 2>&1 <<'END'
import json, sys, urllib.request
service, name, version, osv = sys.argv[1:]
question = json.dumps({"package": {"name": name, "ecosystem": "PyPI"}, "version": version}).encode()
url, data = (service, question) if osv else (f"{service}/{name}/{version}/json", None)
try:
    urllib.request.urlopen(url, data, timeout=3).close()
except OSError as error:
    sys.exit(f"{url}: {error}")
END
    ); then
        echo "pip-audit: nobody was asked for known vulnerabilities: ${why:-$service: no answer within 5 s}"
        echo "pip-audit: what is installed is held to the versions and hashes of requirements.lock; make audit asks again"
        exit 0
    fi
fi
[ -x "$tools/python" ] || .venv/bin/python -m venv .venv/tools
[ -x "$tools/pip-audit" ] || "$tools/python" -m pip install -q pip-audit
timeout 300 "$tools/pip-audit" --strict --require-hashes --disable-pip ${OSV_URL:+--vulnerability-service osv --osv-url "$OSV_URL"} \
    -r requirements.lock
echo "$asked" >.venv/audited
