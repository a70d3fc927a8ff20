# cirf in a container. PyTorch's CUDA build is the default; for the CPU alone:
#   docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu -t cirf .
#   docker run --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/work" -v cirf-cache:/cache cirf run mine.yaml
FROM python:3.12-slim

ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://pypi.org/simple
ARG EXTRAS=serve

# HOME and USER serve any --user: a folder of the host is writable only to its owner, who may have no name in here.
ENV CIRF_CACHE=/cache/cirf HF_HOME=/cache/huggingface HOME=/cache USER=cirf PYTHONUNBUFFERED=1

WORKDIR /opt/cirf
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY recipes recipes
COPY sweeps sweeps
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$TORCH" \
    && pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" \
    && useradd cirf && mkdir -p /cache /work && chmod 0777 /cache /work

USER cirf
WORKDIR /work
VOLUME /cache
EXPOSE 8000
ENTRYPOINT ["cirf"]
CMD ["--help"]
