# tagseg on CPUs, as a user without privileges:
#
#   docker build -t tagseg .
#   docker run --rm --user "$(id -u)" -v "$PWD:/data" tagseg predict photos/ -o predictions
FROM python:3.12-slim AS build
# torch for CPUs, without the libraries for GPUs. Modules are compiled now: the user who runs them cannot write there.
ENV UV_TORCH_BACKEND=cpu UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy
RUN pip install --no-cache-dir uv
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY docker docker
COPY src src
RUN sh docker/install.sh /opt/tagseg

FROM python:3.12-slim
COPY --from=build /opt/tagseg /opt/tagseg
# Caches of any user, whoever --user names.
ENV PATH=/opt/tagseg/bin:$PATH HOME=/tmp
RUN useradd --no-create-home --uid 1000 tagseg
USER tagseg
WORKDIR /data
ENTRYPOINT ["tagseg"]
CMD ["--help"]
