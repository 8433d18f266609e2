"""PyTorch's side of `finetune.py`, in a process of its own: peft on the checkpoint in a folder.

    python finetune_torch.py FOLDER LENGTH STEPS MODE

FOLDER is a transformers checkpoint.  MODE is `float32` or `bfloat16` (autocast), with
`-checkpoint` behind it for gradient checkpointing.  One example of LENGTH tokens, LoRA of rank 16
beside every product, AdamW.  Prints JSON: seconds of a step (the least), and the high-water marks
of the anonymous memory of the process and of the pages of files that it maps, in bytes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext

import numpy as np
import peft
import torch
import transformers
from job_clock import Anonymous

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def main() -> None:
    """Train some steps, and say what they take."""
    folder, length, steps, mode = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    meter = Anonymous()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.use_cache = False
    if mode.endswith("-checkpoint"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=16, lora_alpha=16, lora_dropout=0.0, target_modules=TARGETS)
    )
    model.train()
    chosen = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=1e-4)
    tokens = torch.from_numpy(
        np.random.default_rng(0).integers(0, model.config.vocab_size, (1, length))
    )
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        narrow = mode.startswith("bfloat16")
        with torch.autocast("cpu", torch.bfloat16) if narrow else nullcontext():
            loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    anonymous = meter.stop()
    print(json.dumps({"step": min(seconds), "anonymous": anonymous, "mapped": meter.files}))


if __name__ == "__main__":
    main()
