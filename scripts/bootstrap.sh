#!/bin/sh
# Makes .venv from nothing: `scripts/bootstrap.sh runtime` for the demo, `scripts/bootstrap.sh test` for the tests,
# `scripts/bootstrap.sh venv` with nothing in it, to build the wheel.
#
# Needs only Python 3.11 or newer.  What the system lacks is installed with apt-get when we are root; otherwise the
# exact command is printed.  Quick when nothing has changed: a stamp in .venv holds the hash of what was asked for.
# ONCEWAY_PYTHON names another Python; ONCEWAY_NO_APT=1 never calls apt-get; ONCEWAY_NO_SPARK=1 does without Spark,
# ONCEWAY_NO_CHROMIUM=1 without Chromium.
set -eu

want=${1:-runtime}
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
venv=$root/.venv
node=$root/tests/interop

say() { printf 'bootstrap: %s\n' "$*" >&2; }
die() { say "$@"; exit 2; }

case $want in
    venv | runtime) hashed="pyproject.toml scripts/bootstrap.sh" ;;
    test) hashed="pyproject.toml scripts/bootstrap.sh tests/interop/package.json tests/interop/package-lock.json" ;;
    *) die "usage: scripts/bootstrap.sh venv|runtime|test" ;;
esac
# shellcheck disable=SC2086  # a list of files
key=$( { echo "$root"; cat $hashed; } | sha256sum | cut -d' ' -f1)
stamped() { [ "$(cat "$venv/.onceway-$1" 2>/dev/null || true)" = "$key" ] && [ -x "$venv/bin/onceway" ]; }
if stamped "$want"; then exit 0; fi

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && [ -z "${ONCEWAY_NO_APT:-}" ]; }

updated=
update() {
    if [ -z "$updated" ] && can_install; then
        apt-get update -qq >"$1" 2>&1 || { cat "$1" >&2; say "apt-get update failed; going on with the package lists there are"; }
        updated=1
    fi
}

# apt PACKAGE...: installs, or prints the command and fails.
apt() {
    if ! can_install; then
        say "these system packages are missing; please run:  sudo apt-get install --no-install-recommends $*"
        return 1
    fi
    say "installing system packages: $*"
    log=$(mktemp)
    update "$log"
    if ! DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        say "apt-get could not install: $*"
        return 1
    fi
    rm -f "$log"
}

# --- Python and its venv ------------------------------------------------------------------------------------------
python=
for candidate in ${ONCEWAY_PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || die "no Python 3.11 or newer found (looked for ${ONCEWAY_PYTHON:-python3, python3.13, python3.12, python3.11}); on Debian 12:  sudo apt-get install python3 python3-venv"
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        apt "python$minor-venv" || die "cannot make a virtual environment without python$minor-venv"
    fi
    say "making .venv with $("$python" -V)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
if [ "$want" = venv ]; then exit 0; fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@" >&2; }

complete=1
# spark EXTRA WHAT-FOLLOWS: fails where there can be no Spark; everything else goes on without it.
spark() {
    if [ -n "${ONCEWAY_NO_SPARK:-}" ]; then
        say "going on without Spark, as ONCEWAY_NO_SPARK asks for"
        return 1
    fi
    "$venv/bin/python" -c 'import pyspark, pyarrow' 2>/dev/null ||
        say "installing Spark into .venv: a source package of 456 MB, which takes about 80 s (ONCEWAY_NO_SPARK=1 leaves it out)"
    if ! pip install -q -e ".[$1]"; then
        say "pip could not install Spark; going on without it: $2"
        return 1
    fi
}

if [ "$want" = runtime ]; then
    say "installing onceway and what it needs to run into .venv"
    pip install -q -e .
    spark spark "the demo will leave out its last part" || complete=
    [ -z "$complete" ] || echo "$key" >"$venv/.onceway-runtime"
    exit 0
fi

# --- What the tests need beyond it --------------------------------------------------------------------------------
# python-qpid-proton is compiled here: a C compiler, Python's headers; with OpenSSL's and pkg-config it speaks TLS,
# with Cyrus' SCRAM.
if "$venv/bin/python" -c 'import proton' 2>/dev/null; then
    extra=check,docs,proton
else
    lacking=
    command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || lacking="$lacking gcc libc6-dev"
    headers=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    [ -f "$headers/Python.h" ] || lacking="$lacking python$minor-dev"
    command -v pkg-config >/dev/null 2>&1 || lacking="$lacking pkg-config"
    pkg-config --exists openssl 2>/dev/null || lacking="$lacking libssl-dev"
    pkg-config --exists libsasl2 2>/dev/null || lacking="$lacking libsasl2-dev libsasl2-modules"
    extra=check,docs,proton
    # shellcheck disable=SC2086  # a list of packages
    if [ -n "$lacking" ] && ! apt $lacking; then
        extra=check,docs
        complete=
        say "going on without python-qpid-proton: the interop tests with proton will be reported as skipped"
    fi
fi
say "installing onceway with its test tools into .venv (extra: $extra)"
if ! pip install -q -e ".[$extra]"; then
    [ "$extra" = check,docs,proton ] || die "pip could not install the test tools"
    say "python-qpid-proton could not be built; going on without it: its interop tests will be reported as skipped"
    complete=
    pip install -q -e ".[check,docs]"
fi

spark spark-s3 "its tests will be reported as skipped" || complete=

# The load generators of bench/ are C programs.
lacking=
command -v cc >/dev/null 2>&1 || lacking="$lacking gcc libc6-dev"
[ -f /usr/include/proton/proactor.h ] || lacking="$lacking libqpid-proton11-dev"
[ -f /usr/include/mosquitto.h ] || lacking="$lacking libmosquitto-dev"
command -v mosquitto_sub >/dev/null 2>&1 || lacking="$lacking mosquitto-clients"
# shellcheck disable=SC2086  # a list of packages
if [ -n "$lacking" ] && ! apt $lacking; then
    complete=
    say "going on without them: \`make bench\` needs them, and its tests will be reported as skipped"
fi

# The alert rules of monitoring/ are tested with promtool. It is taken out of Debian's package prometheus into .venv:
# nothing is installed, so that no Prometheus is started, and nobody needs to be root.
take_promtool() {
    if command -v promtool >/dev/null 2>&1 || [ -x "$venv/bin/promtool" ]; then return; fi
    if [ -n "${ONCEWAY_NO_APT:-}" ] || ! command -v apt-get >/dev/null 2>&1; then return 1; fi
    say "taking promtool out of the package prometheus, into .venv"
    folder=$(mktemp -d)
    chmod 755 "$folder" # apt-get writes there as a user of its own
    update "$folder/log"
    if (cd "$folder" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .) >"$folder/log" 2>&1; then
        cp "$folder/usr/bin/promtool" "$venv/bin/promtool"
    else
        cat "$folder/log" >&2
    fi
    rm -rf "$folder"
    [ -x "$venv/bin/promtool" ]
}
if ! take_promtool; then
    complete=
    say "going on without promtool, of the package prometheus: the tests of alert rules will be reported as skipped"
fi

# The tests of the store in PostgreSQL start a server of their own. Debian's package would make a cluster and start it
# as a service: the file below forbids that, while the package is installed.
add_postgresql() {
    for server in "$(command -v postgres)" /usr/lib/postgresql/*/bin/postgres; do
        if [ -x "$server" ]; then return; fi
    done
    forbidding=/etc/postgresql-common/createcluster.d/onceway-bootstrap.conf
    if can_install; then
        mkdir -p "${forbidding%/*}"
        echo "create_main_cluster = false" >"$forbidding"
    fi
    added=1
    apt postgresql || added=
    if can_install; then rm -f "$forbidding"; fi
    [ -n "$added" ]
}
if ! add_postgresql; then
    complete=
    say "going on without PostgreSQL's server: the tests of the store in PostgreSQL will be reported as skipped"
fi

# The page of the event bus is looked at in Chromium.
if [ -n "${ONCEWAY_NO_CHROMIUM:-}" ]; then
    complete=
    say "going on without Chromium, as ONCEWAY_NO_CHROMIUM asks for"
elif ! command -v chromium >/dev/null 2>&1; then
    say "Chromium is 124 MB to load and 414 MB on the disk (ONCEWAY_NO_CHROMIUM=1 leaves it out)"
    if ! apt chromium; then
        complete=
        say "going on without Chromium: the test of the event bus's page in a browser will be reported as skipped"
    fi
fi

# rhea, the JavaScript client, runs in node.
lacking=
command -v node >/dev/null 2>&1 || lacking="$lacking nodejs"
command -v npm >/dev/null 2>&1 || lacking="$lacking npm"
# shellcheck disable=SC2086  # a list of packages
if [ -n "$lacking" ] && ! apt $lacking; then
    complete=
    say "going on without node: the interop tests with rhea will be reported as skipped"
else
    say "installing rhea into tests/interop/node_modules"
    if ! (cd "$node" && npm ci --no-audit --no-fund --loglevel=error >&2); then
        complete=
        say "npm could not install rhea: the interop tests with rhea will be reported as skipped"
    fi
fi

if [ -n "$complete" ]; then
    echo "$key" >"$venv/.onceway-test"
    sha=$( { echo "$root"; cat pyproject.toml scripts/bootstrap.sh; } | sha256sum | cut -d' ' -f1)
    echo "$sha" >"$venv/.onceway-runtime"
fi
