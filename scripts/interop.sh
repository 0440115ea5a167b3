#!/bin/sh
# make interop: other clients into .venv/interop, the tests with them, and docs/interop.md from what passed.
# pip, npm, apt-get and gem are asked for the clients; what cannot be had is skipped, and the page says so.
set -u
cd "$(dirname "$0")/.."
here=$PWD/.venv/interop
mkdir -p "$here/deb"
[ -x "$here/python/bin/python" ] || python3 -m venv "$here/python"
"$here/python/bin/pip" install -q azure-servicebus==7.15.0 websocket-client==1.8.0 rabbitmq-amqp-python-client==1.0.1 || echo "no clients from PyPI"
[ -x "$here/azure/bin/python" ] || python3 -m venv "$here/azure" # the last versions that read fields by number
"$here/azure/bin/pip" install -q azure-eventhub==5.15.1 azure-servicebus==7.14.3 || echo "no packages of Azure from PyPI"
[ -x "$here/oslo/bin/python" ] || python3 -m venv "$here/oslo" # whose proton is another one
"$here/oslo/bin/pip" install -q oslo.messaging==14.9.3 pyngus==2.3.1 || echo "no oslo.messaging"
.venv/bin/python -m pip install -q --upgrade --target "$here/connect" 'pandas>=2.2,<3' 'grpcio>=1.76' 'grpcio-status>=1.76' \
    'googleapis-common-protos>=1.71' 'zstandard>=0.25' || echo "no client of Spark Connect" # as pyspark[connect] asks for
(cd "$here" && npm install --no-audit --no-fund --loglevel=error rhea@3.0.5 rhea-promise@3.0.3 @azure/core-amqp@4.4.2 ws@8.18.0 >/dev/null) || echo "no clients from npm"
debian="libqpid-proton11 libqpid-proton11-dev libqpid-proton11-dev-examples mosquitto ruby ruby-faraday ruby-typhoeus
    ruby-oj ruby-hashie ruby-wisper ruby-rack ruby-redis-namespace ruby-webrick"
(cd "$here/deb" && for each in $debian $(apt-get -s install --no-install-recommends $debian | awk '/^Inst/ {print $2}'); do
    [ -n "$(find . -maxdepth 1 -name "${each}_*.deb")" ] ||
        { apt-get download -qq "$each" && dpkg -x "$each"_*.deb root; } || echo "no $each from Debian"
done)
(cd "$here/deb" && for each in root/usr/share/proton/examples/c/send.c root/usr/share/proton/examples/c/receive.c ../../../tests/interop/programs/does.c; do
    cc -I root/usr/include "$each" -o "$(basename "$each" .c)" root/usr/lib/*/libqpid-proton-core.so.10 \
        root/usr/lib/*/libqpid-proton-proactor.so.1
done) || echo "no clients in C"
mkdir -p "$here/gems"
for each in routemaster-client:3.2.3 routemaster-drain:3.7.2; do
    [ -d "$here/gems/${each%:*}-${each#*:}" ] || (export INTEROP="$here" PYTHONPATH="$PWD" && cd "$here/gems" &&
        ../../bin/python -m tests.interop.debian gem fetch "${each%:*}" -v "${each#*:}" &&
        ../../bin/python -m tests.interop.debian gem unpack "${each%:*}-${each#*:}.gem") || echo "no ${each%:*} from RubyGems"
done
INTEROP=$here .venv/bin/python -m pytest tests/interop tests/spark/test_connect.py tests/examples/test_rhea_exactly_once.py tests/examples/test_java_exactly_once.py \
    "tests/chaos/test_kills.py::test_two_routers_are_killed_at_once[proton]" -q --junit-xml="$here/run.xml" "$@"
code=$?
.venv/bin/python -m tests.interop.page "$here/run.xml" >docs/interop.md || exit
exit $code
