# One static binary and nothing else. Build the binary first (see docs/guide/containers.md):
#   RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target x86_64-unknown-linux-gnu
FROM scratch
COPY target/x86_64-unknown-linux-gnu/release/quorate /quorate
EXPOSE 7000 8000 9000
ENTRYPOINT ["/quorate"]
CMD ["server", "--config", "/etc/quorate.toml"]
