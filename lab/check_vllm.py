"""Import what the demo needs; take out torchvision, torchaudio and torchcodec where they break that.

An index may serve builds of these three for another torch than vLLM's; text models need none of them.
"""

import subprocess
import sys

NEEDED = "import torch, transformers, vllm; import vllm.entrypoints.openai.api_server"
EXTRAS = ("torchvision", "torchaudio", "torchcodec")


def imports(code: str) -> str:
    """The last line of the error, or nothing."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no message"])[-1]


def installed(name: str) -> bool:
    return not imports(f"import importlib.metadata as m; m.version({name!r})")


def main() -> int:
    # A broken torchvision shows only when a model's processor is looked up, so each is imported by name.
    broken = [name for name in EXTRAS if installed(name) and imports(f"import {name}")]
    if broken or imports(NEEDED):
        present = [name for name in EXTRAS if installed(name)]
        if present:
            print(f"{', '.join(broken or present)} cannot be imported beside this torch: removing {', '.join(present)}")
            subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *present], check=True)
    error = imports(NEEDED)
    if error:
        print(f"vLLM's CPU build cannot be imported: {error}", file=sys.stderr)
        print(
            "If the package index has no CPU build of torch, add one: "
            "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo",
            file=sys.stderr,
        )
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
