# The CPU image, with all programs and the demo model. Any container engine builds it:
#
#   docker build -t baton:0.2.0 .
#
# BASE is an image of Debian 12. DEMO_MODEL=0 leaves the demo model out. REVISION and VERSION become
# labels. The programs are built with the flags of `./baton build`.
ARG BASE=debian:12-slim

FROM ${BASE} AS build
WORKDIR /src
COPY baton .
RUN ./baton deps
COPY . .
RUN ./baton build --programs --no-install \
 && cmake --install build --prefix /out --component programs --strip \
 && cmake --install build --prefix /out --component fetch --strip
# Lists the Debian packages of the libraries that the programs link.
RUN ldd /out/bin/* | awk '$2 == "=>" {print $3}' | sort -u | xargs realpath \
  | xargs dpkg-query -S 2>/dev/null | cut -d: -f1 | sort -u > /out/packages \
 && echo ca-certificates >> /out/packages
ARG DEMO_MODEL=1
RUN mkdir -p /out/models && if [ "$DEMO_MODEL" = 1 ]; then \
    mkdir /out/models/demo && cp common/model/demo/*.json common/model/demo/*.safetensors /out/models/demo; fi

FROM ${BASE}
ARG VERSION=0.2.0
ARG REVISION=
LABEL org.opencontainers.image.title="Baton" \
      org.opencontainers.image.description="Serves large language models with prefill and decode on separate workers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/packages /tmp/packages
RUN apt-get update \
 && xargs -a /tmp/packages apt-get install -y --no-install-recommends \
 && rm -rf /tmp/packages /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/*
COPY --from=build /out/bin/ /usr/bin/
COPY --from=build /out/models/ /usr/share/baton/models/
COPY tests/goodput/slo/ /usr/share/baton/slo/
COPY LICENSE /usr/share/doc/baton/LICENSE
RUN for program in router prefill decode client goodput up fetch; do baton-$program --version || exit 1; done
USER 65532:65532
CMD ["baton-client", "--help"]
