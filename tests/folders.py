"""Run folders that were changed by hand, with hashes made anew: what a deliberate hand would hand over."""

import json
from pathlib import Path
from typing import Any

from itertime.io import digest, sha256

__all__ = ["rehashed"]


def rehashed(folder: Path, **stated: Any) -> Path:
    """State the hashes of the files as they are, and the entries `stated`, in the manifest of a folder."""
    path = folder / "manifest.json"
    manifest = {**json.loads(path.read_text()), **stated}
    for name in manifest["files"]:
        manifest["files"][name] = sha256(folder / name)
    manifest["result_hash"] = manifest["files"].get("jobs.csv", manifest["result_hash"])
    del manifest["manifest_sha256"]
    path.write_text(json.dumps({**manifest, "manifest_sha256": digest(manifest)}))
    return folder
