"""Store a checkpoint in 8 bits: python lab/compress_draft.py CHECKPOINT_FOLDER TARGET_FOLDER.

Made src/specdyno/demo/draft and the folders of lab/drafts from the bfloat16 checkpoints trained for
SmolLM2-135M-Instruct. Configuration, tokenizer and chat template are copied as they are.
"""

import shutil
import sys
from pathlib import Path

from specdyno.demo import eightbit

COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

source, target = Path(sys.argv[1]), Path(sys.argv[2])
target.mkdir(parents=True, exist_ok=True)
for name in COPIED:
    if (source / name).is_file():
        shutil.copyfile(source / name, target / name)
eightbit.compress(source / "model.safetensors", target / "weights.q8.safetensors")
print(f"{(target / 'weights.q8.safetensors').stat().st_size / 1e6:.1f} MB")
