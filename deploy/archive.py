"""Writes an image archive from files: an OCI layout that is also a `docker save` archive. Needs neither tools nor a base image."""

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
OCI = "application/vnd.oci.image"


def write(target, reference, files, entry_point, ports=(), user="65532:65532", environment=None):
    """Writes the archive. `files` maps a path in the image to its content (bytes), or to a file or folder (Path)."""
    layer = pack(files)
    config = to_json({
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {
            "Entrypoint": entry_point,
            "User": user,
            "Env": [f"{name}={value}" for name, value in (environment or {}).items()],
            "ExposedPorts": {f"{port}/tcp": {} for port in ports},
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    })  # fmt: skip
    manifest = to_json({
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": descriptor(f"{OCI}.config.v1+json", config),
        "layers": [descriptor(f"{OCI}.layer.v1.tar", layer)],
    })  # fmt: skip
    index = {
        **descriptor(f"{OCI}.manifest.v1+json", manifest),
        # The first is for containerd, the second for other tools.
        "annotations": {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference},
    }
    entries = {blob(content): content for content in (layer, config, manifest)}
    entries["oci-layout"] = to_json({"imageLayoutVersion": "1.0.0"})
    entries["index.json"] = to_json({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [index]})
    entries["manifest.json"] = to_json([{"Config": blob(config), "RepoTags": [reference], "Layers": [blob(layer)]}])
    Path(target).write_bytes(pack(entries))


def pack(files):
    """Returns a reproducible tar archive: without time stamps and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders = set()
        for path, content in sorted(flatten(files), key=lambda file: file[0]):
            for folder in reversed(Path(path).parents[:-1]):
                if folder not in folders:
                    folders.add(folder)
                    tar.addfile(entry(str(folder), tarfile.DIRTYPE, 0o755))
            data = content if isinstance(content, bytes) else content.read_bytes()
            executable = not isinstance(content, bytes) and content.stat().st_mode & 0o111
            tar.addfile(entry(path, tarfile.REGTYPE, 0o755 if executable else 0o644, len(data)), io.BytesIO(data))
    return buffer.getvalue()


def flatten(files):
    """Yields every file: (path in the archive, content)."""
    for path, content in files.items():
        path = path.lstrip("/")
        if isinstance(content, bytes) or not content.is_dir():
            yield path, content
            continue
        for file in content.rglob("*"):
            if file.is_file():
                yield f"{path}/{file.relative_to(content)}", file


def entry(path, kind, mode, size=0):
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.size = kind, mode, size
    return info


def to_json(value):
    return json.dumps(value, sort_keys=True).encode()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob(content):
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def descriptor(kind, content):
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}
