"""A private certificate authority for the servers of a namespace, with openssl."""

from cluster import run

NAMES = ("postgres", "nats", "*.nats-cluster")


def create(cluster, directory):
    """Creates the Secrets of the production example: `svc-postgres-ca`, and `svc-nats-tls` with the certificate of all servers."""
    request("ca", "/CN=e2e CA", directory)
    names = ",".join(f"DNS:{name}" for name in NAMES)
    request(
        "tls", "/CN=e2e", directory, "-CA", "ca.crt", "-CAkey", "ca.key",
        "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE",
    )  # fmt: skip
    files = {name: (directory / name).read_text() for name in ("tls.crt", "tls.key", "ca.crt")}
    for name, keys in {"svc-postgres-ca": ["ca.crt"], "svc-nats-tls": files}.items():
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        cluster.apply({**secret, "stringData": {key: files[key] for key in keys}})


def request(name, subject, directory, *options):
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "2",
        "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.crt", *options, directory=directory,
    )  # fmt: skip
