"""Store a draft checkpoint in 8 bits: python lab/compress_draft.py DRAFT_FOLDER TARGET_FOLDER.

Made src/specdyno/demo/draft from the bfloat16 EAGLE-3 head trained for SmolLM2-135M-Instruct.
"""

import shutil
import sys
from pathlib import Path

from specdyno.demo import eightbit

source, target = Path(sys.argv[1]), Path(sys.argv[2])
target.mkdir(parents=True, exist_ok=True)
shutil.copyfile(source / "config.json", target / "config.json")
eightbit.compress(source / "model.safetensors", target / "weights.q8.safetensors")
print(f"{(target / 'weights.q8.safetensors').stat().st_size / 1e6:.1f} MB")
