"""Writes image archives from files. Needs neither tools nor a base image.

`write` writes one architecture: an OCI layout that is also a `docker save` archive. `write_index` writes several architectures: an OCI
layout with an image index.
"""

import gzip
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
OCI = "application/vnd.oci.image"


class Image:
    """An image of one architecture. `files` maps a path in the image to its content (bytes), or to a file or folder (Path)."""

    def __init__(self, files, entry_point, ports=(), user="65532:65532", environment=None, architecture=None, labels=None):
        layer = pack(files)
        self.config = to_json({
            "architecture": architecture or ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {
                "Entrypoint": entry_point,
                "User": user,
                "Env": [f"{name}={value}" for name, value in (environment or {}).items()],
                "ExposedPorts": {f"{port}/tcp": {} for port in ports},
                "Labels": labels or {},
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        })  # fmt: skip
        self.layer = layer
        self.manifest = to_json({
            "schemaVersion": 2,
            "mediaType": f"{OCI}.manifest.v1+json",
            "config": descriptor(f"{OCI}.config.v1+json", self.config),
            "layers": [descriptor(f"{OCI}.layer.v1.tar", layer)],
        })  # fmt: skip

    def blobs(self):
        return {blob(content): content for content in (self.layer, self.config, self.manifest)}

    def descriptor(self):
        return descriptor(f"{OCI}.manifest.v1+json", self.manifest)


def write(target, reference, files, entry_point, **options):
    """Writes the archive of one architecture. The options are those of `Image`."""
    image = Image(files, entry_point, **options)
    entries = image.blobs() | layout(image.descriptor(), reference)
    docker = [{"Config": blob(image.config), "RepoTags": [reference], "Layers": [blob(image.layer)]}]
    Path(target).write_bytes(pack(entries | {"manifest.json": to_json(docker)}))


def write_index(target, reference, images):
    """Writes the archive of several architectures: architecture to Image."""
    index = to_json({
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [
            {**image.descriptor(), "platform": {"architecture": architecture, "os": "linux"}}
            for architecture, image in sorted(images.items())
        ],
    })  # fmt: skip
    entries = {blob(index): index} | layout(descriptor(f"{OCI}.index.v1+json", index), reference)
    for image in images.values():
        entries |= image.blobs()
    Path(target).write_bytes(pack(entries))
    return digest(index)


def layout(described, reference):
    """Returns the files of an OCI layout with one entry."""
    # The first is for containerd, the second for other tools.
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    index = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.index.v1+json",
        "manifests": [{**described, "annotations": names}],
    }
    return {"oci-layout": to_json({"imageLayoutVersion": "1.0.0"}), "index.json": to_json(index)}


def pack(files, time=0):
    """Returns a reproducible tar archive: without owners, with one time (seconds since 1970)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        folders = set()
        for path, content in sorted(flatten(files), key=lambda file: file[0]):
            for folder in reversed(Path(path).parents[:-1]):
                if folder not in folders:
                    folders.add(folder)
                    tar.addfile(entry(str(folder), tarfile.DIRTYPE, 0o755, time))
            data = content if isinstance(content, bytes) else content.read_bytes()
            executable = not isinstance(content, bytes) and content.stat().st_mode & 0o111
            mode = 0o755 if executable else 0o644
            tar.addfile(entry(path, tarfile.REGTYPE, mode, time, len(data)), io.BytesIO(data))
    return buffer.getvalue()


def pack_gzip(files, folder, time):
    """Returns a reproducible compressed archive of the files in a folder, with one time (seconds since 1970)."""
    content = pack({f"{folder}/{path}": data for path, data in files.items()}, time)
    return gzip.compress(content, mtime=time)


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


def entry(path, kind, mode, time, size=0):
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime, info.size = kind, mode, time, size
    return info


def to_json(value):
    return json.dumps(value, sort_keys=True).encode()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob(content):
    return f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"


def descriptor(kind, content):
    return {"mediaType": kind, "digest": digest(content), "size": len(content)}
