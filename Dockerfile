# The service beside an engine (docs/deploying.md): `docker build -t turnwise .`
# No shell, no package manager, no root; it writes nothing, so its file system may be read-only.
ARG BUILD=docker.io/library/python:3.11-slim-bookworm
ARG BASE=gcr.io/distroless/python3-debian12:nonroot

FROM ${BUILD} AS build
# For a mirror, or for wheels in a mounted folder.
ARG PIP_INDEX_URL
ARG PIP_NO_INDEX
ARG PIP_FIND_LINKS
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN python3 -m pip install --no-cache-dir --target /app '/source[serve]' && rm -rf /app/bin

FROM ${BASE}
COPY --from=build /app /app
ENV PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8400
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["/usr/bin/python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8400/healthz', timeout=2)"]
ENTRYPOINT ["/usr/bin/python3", "-m", "turnwise", "serve", "--host", "0.0.0.0", "--port", "8400"]
CMD ["/model"]
