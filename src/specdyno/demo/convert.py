"""Turn a GGUF into a Hugging Face folder once: `python -m specdyno.demo.convert FILE.gguf FOLDER`.

Runs in a process of its own, since it needs torch and transformers, which come with the demo's vLLM and which
specdyno itself never imports.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write weights (bfloat16), configuration, tokenizer and chat template of `gguf` into `folder`."""
    import torch  # noqa: PLC0415 (not a dependency of specdyno: only here, only in the demo)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415 (as above)

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
