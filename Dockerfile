# kctl serve as an image:   docker build -t kctl . && docker run --rm -p 9092:9092 kctl
# Its metrics are on port 9404 (/metrics, /healthz, /readyz).
# Clients on other machines need the address that they reach the container under:
#   docker run --rm -p 9092:9092 -e KCTL_ADVERTISED=kafka.example.com:9092 -v kafka:/data kctl

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY kctl kctl
RUN python -m venv --without-pip /kctl \
    && pip install --no-cache-dir --quiet --python /kctl/bin/python .

FROM python:3.12-slim
COPY --from=build /kctl /kctl
RUN useradd --system --uid 10001 --no-create-home kctl && install -d -o kctl /data
USER kctl
ENV PATH=/kctl/bin:$PATH KCTL_ADVERTISED=localhost:9092 PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
    CMD ["python3", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9404/healthz', timeout=4)"]
CMD ["sh", "-c", "exec kctl serve --data-dir /data --metrics-port 0.0.0.0:9404 --listener PLAINTEXT://0.0.0.0:9092 -c advertised.listeners=PLAINTEXT://$KCTL_ADVERTISED"]
