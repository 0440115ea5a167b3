# The image of a router: `make image`, or `docker build -t onceway .`
# BASE may be any image of Debian's family with python3 3.11 or newer and its venv module.
ARG BASE=docker.io/library/python:3.13-slim-bookworm

FROM ${BASE} AS build
# What modules are compiled with, for this Python; python3-dev where it is Debian's own.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && if python3 -c 'import os, sys, sysconfig; sys.exit(os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; \
       then apt-get install --yes --no-install-recommends python3-dev; fi
COPY . /src
# pip has done its work then.
RUN python3 -m venv /opt/onceway \
    && /opt/onceway/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r /src/requirements.lock \
    && ONCEWAY_COMPILED=1 /opt/onceway/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /src \
    && /opt/onceway/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
LABEL org.opencontainers.image.title="onceway" org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 onceway \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin onceway \
    && install --directory --owner=onceway --group=onceway --mode=0700 /var/lib/onceway
COPY --from=build /opt/onceway /opt/onceway
# ONCEWAY_STATUS: the router's admin listener, as the health check finds it.
ENV PATH=/opt/onceway/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    ONCEWAY_STATE_DIR=/var/lib/onceway \
    ONCEWAY_STATUS=http://127.0.0.1:8671
USER 10001:10001
VOLUME /var/lib/onceway
EXPOSE 1883 5671 5672 7671 8080 8443 8671 8883
# A router drains on it.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=15s --start-period=2m CMD ["sh", "-c", "exec onceway status \"$ONCEWAY_STATUS\""]
ENTRYPOINT ["onceway"]
CMD ["--help"]
