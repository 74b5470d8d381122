"""A mail server in the cluster, the password of svc for it, and the mails that it accepted."""

import secrets

NAME, PORT = "mail", 2525
# Secret with the URL for the release, and Secret of the server with the passwords that it accepts.
URL, PASSWORDS = "e2e-mail", "e2e-mail-server"
FILE = "/secret/passwords"
VALUES = {"existingSecret": URL, "toFiles": False}


def install(cluster, image):
    password = secrets.token_hex(24)
    for name, data in ((URL, url(password)), (PASSWORDS, passwords(password))):
        cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
    metadata, labels = {"name": NAME}, {"app": NAME}
    ports = {"selector": labels, "ports": [{"port": PORT}]}
    cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports})
    template = {"metadata": {"labels": labels}, "spec": pod(image)}
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": deployment})
    cluster.rolled_out(NAME)


def url(password):
    return {"smtp-url": f"smtp://svc:{password}@{NAME}:{PORT}?tls=none"}


def passwords(*accepted):
    return {"passwords": "\n".join(accepted)}


def recipients(cluster):
    """Returns the recipients of the accepted mails."""
    return set(cluster.kubectl("logs", f"deployment/{NAME}").split())


def pod(image):
    container = {
        "name": NAME,
        "image": image,
        "args": ["/mail_server.py"],
        "env": [{"name": "PASSWORDS", "value": FILE}, {"name": "PORT", "value": str(PORT)}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "secret", "mountPath": "/secret"}],
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "secret", "secret": {"secretName": PASSWORDS}}],
    }
