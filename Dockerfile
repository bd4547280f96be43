# Lattice with PyTorch, etcd and everything the tests need; the entry point is the agent.
#   docker build . -t lattice-agent
#   docker run --rm --entrypoint pytest lattice-agent tests
# BASE is any image with Python 3.11 or newer (with venv), and apt-get or what apt-get would install here. What the base
# sets for pip is used: a base with wheels in it, PIP_FIND_LINKS and PIP_NO_INDEX builds without a network.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

RUN for program in etcd ip openssl ps make git ssh sshd; do command -v $program >/dev/null || missing=1; done; \
    [ -z "$missing" ] || ( \
      apt-get update \
      && apt-get install -y --no-install-recommends etcd-server etcd-client iproute2 util-linux openssl procps make \
           git openssh-client openssh-server \
      && rm -rf /var/lib/apt/lists/* )

RUN python3 -m venv /opt/lattice
ENV PATH=/opt/lattice/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# torch alone first, then the rest: this layer is built again only when a requirement changes.
WORKDIR /lattice
COPY requirements requirements
RUN pip install -q torch==2.13.0 && pip install -q -r requirements/dev.txt 'setuptools>=77'

COPY . .
RUN pip install -q --no-deps --no-build-isolation -e .

ENV LATTICE_FRAMEWORK=pytorch
ENTRYPOINT ["lattice", "run"]
