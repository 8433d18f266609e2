"""A deployed decoder of 4 bits adapted, beside peft on its checkpoint in the same run.

    python benchmarks/finetune.py CHECKPOINT FOLDER [--draw] [--length 512] [--steps 3]
        [--threads 1] [--modes float32 float32-checkpoint bfloat16]

needs torch, transformers, peft and, for `--draw`, onnxruntime-genai.  CHECKPOINT is a folder of
transformers, FOLDER what onnxruntime-genai's model builder made of it; `--draw` makes both first,
in the shape of Qwen3-0.6B with random weights (some 4 GiB of disk and 6 of memory for a minute).
One example of `--length` tokens, LoRA of rank 16 beside every product of the layers, AdamW; ours is
one command, with one plan for both figures.  Each side is a process of its own.  Printed are the
least seconds of a step, tokens a second, and the high-water marks of the anonymous memory of the
process and of the pages of files that it maps (libraries, and weights that lie there); beside them,
ours over each.  Exit code 1: ours takes more than `MEMORY` of the memory of peft in
float32 as it comes, or more than its time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MEMORY, RANK = 0.45, 16
MODES = ["float32", "float32-checkpoint", "bfloat16"]


def draw(checkpoint: Path, folder: Path) -> None:
    """A checkpoint of random weights, a tokenizer of one token a byte, and the file of 4 bits."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = transformers.Qwen3Config(
        vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, max_position_embeddings=4096,
        tie_word_embeddings=True, rope_theta=1e6,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Qwen3ForCausalLM(config)
    model.generation_config = transformers.GenerationConfig(bos_token_id=0, eos_token_id=1)
    model.save_pretrained(checkpoint)
    del model
    text = Tokenizer(models.BPE(vocab={chr(33 + n): n for n in range(94)}, merges=[]))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = dict(zip(("bos_token", "eos_token", "pad_token"), '"#!', strict=True))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=text, **special)
    made.save_pretrained(checkpoint)
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", checkpoint]
    options = ["-o", folder, "-p", "int4", "-e", "cpu", "-c", folder / "cache"]
    subprocess.run(list(map(str, [*builder, *options])), check=True, capture_output=True)


def child(words: list[str], folder: Path, threads: int) -> dict[str, Any]:
    """Run a side in a folder. Returns what it measured."""
    clock = folder / "clock.json"
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "JOB_CLOCK": str(clock)}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = str(threads)
    ran = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if ran.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {ran.returncode}\n{ran.stderr}")
    return json.loads(clock.read_text() if clock.exists() else ran.stdout.splitlines()[-1])


def ours(model: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Adapt the file by the command line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocabulary = json.loads((model / "genai_config.json").read_text())["model"]["vocab_size"]
        shape = (asked.steps, asked.length)
        tokens = np.random.default_rng(0).integers(0, vocabulary, shape)
        np.savez(folder / "tokens.npz", input_ids=tokens, labels=tokens)
        return child(
            ["-m", "gradtool", "train", str(model / "model.onnx"), "--data", "tokens.npz",
             "--batch", "1", "--steps", str(asked.steps), "--loss", "causal", "--only-loss",
             "--lora", str(RANK), "--lora-target", "*layers*", "--plan", asked.plan, "--run", "run",
             "--lr", "1e-4", "--checkpoint-every", str(asked.steps), "-o", "adapted.onnx",
             "--callback", "job_clock:Mark", "-q"],
            folder, asked.threads,
        )  # fmt: skip


def main() -> int:
    """Print a row for each side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draw", action="store_true", help="make both first")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plan", default="sqrt")
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    asked = parser.parse_args()
    checkpoint, model = asked.checkpoint.resolve(), asked.folder.resolve()
    if asked.draw:
        draw(checkpoint, model)
    rows = {"gradtool, 4 bits": ours(model, asked)}
    for mode in asked.modes:
        words = [str(HERE / "finetune_torch.py"), str(checkpoint), str(asked.length)]
        with tempfile.TemporaryDirectory() as name:
            rows[f"peft, {mode}"] = child([*words, str(asked.steps), mode], Path(name),
                                          asked.threads)  # fmt: skip
    first = rows["gradtool, 4 bits"]
    head = f"{'':<26}{'step':>10}{'tokens/s':>10}{'anonymous':>12}{'mapped':>12}"
    print(f"{head}{'time':>8}{'memory':>8}")
    for name, row in rows.items():
        time, memory = (first[what] / row[what] for what in ("step", "anonymous"))
        print(
            f"{name:<26}{row['step']:>8.1f} s{asked.length / row['step']:>10.1f}"
            f"{row['anonymous'] / 2**30:>8.2f} GiB{row['mapped'] / 2**30:>8.2f} GiB"
            f"{time:>8.2f}{memory:>8.2f}"
        )
    base = rows.get("peft, float32")
    if base is None:
        return 0
    return int(first["anonymous"] > MEMORY * base["anonymous"] or first["step"] > base["step"])


if __name__ == "__main__":
    sys.exit(main())
