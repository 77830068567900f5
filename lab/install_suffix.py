"""Install what vLLM's suffix decoding needs of arctic-inference: its suffix tree, built from its source distribution.

The version is the one that vLLM names in its own hint. Only the pure Python of `suffix_decoding` and its C++ extension
are taken; the package then imports as `arctic_inference`, as vLLM expects.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

SOURCE = "arctic-inference==0.1.1"
TAKEN = ("LICENSE", "arctic_inference/__init__.py", "arctic_inference/suffix_decoding", "csrc/suffix_decoding")
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
BUILD_FILES = Path(__file__).with_name("suffix")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources, project = downloaded(Path(folder, "download")), Path(folder, "project")
        shutil.copytree(BUILD_FILES, project)
        for name in TAKEN:
            copy(sources / name, project / name)
        subprocess.run([*PIP, "install", str(project)], check=True)
    subprocess.run([sys.executable, "-c", CHECK], check=True)


def downloaded(folder: Path) -> Path:
    """The unpacked source distribution; without isolation pip reads its version with the torch that is here."""
    only_sources = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation")
    subprocess.run([*PIP, "download", *only_sources, "--dest", str(folder), SOURCE], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, **SAFELY)
    return next(path for path in folder.iterdir() if path.is_dir())


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


CHECK = """
from arctic_inference.suffix_decoding import SuffixDecodingCache
cache = SuffixDecodingCache(max_tree_depth=8)
cache.start_request(0, [1, 2, 3, 4, 1, 2])
draft = cache.speculate(0, [1, 2], max_spec_tokens=2, max_spec_factor=4.0, min_token_prob=0.1)
assert list(draft.token_ids) == [3, 4], draft
print("suffix decoding: the suffix tree of arctic-inference is installed")
"""


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError:
        sys.exit(f"{SOURCE}: the step above failed; it needs the package index and a C++20 compiler")
