"""Names of other tools for things named here: people type them first.

Sources: torch.optim and torch.nn, transformers.TrainingArguments, keras, the usual command lines.
"""

from __future__ import annotations

import re

NAMES: dict[str, tuple[str, ...]] = {
    "lr": ("learning-rate", "step-size", "eta", "base-lr", "init-lr"),
    "schedule": ("lr-schedule", "lr-scheduler", "lr-scheduler-type", "scheduler", "lr-decay"),
    "warmup": ("warmup-steps", "num-warmup-steps", "lr-warmup"),
    "optimizer": ("optim", "opt", "optimiser", "update", "solver"),
    "optimizer-option": ("momentum", "weight-decay", "betas", "beta1", "beta2", "wd", "nesterov",
                         "optim-args", "adam-beta1", "adam-epsilon"),
    "epochs": ("num-epochs", "num-train-epochs", "n-epochs", "max-epochs"),
    "steps": ("max-steps", "num-steps", "iterations", "iters", "max-iter", "n-steps"),
    "batch": ("batch-size", "bs", "per-device-train-batch-size", "train-batch-size", "mini-batch"),
    "micro-batches": ("gradient-accumulation-steps", "grad-accum", "accumulation-steps",
                      "accumulate-grad-batches", "micro-batch-size"),
    "data": ("dataset", "train-data", "train-file", "train", "training-data"),
    "eval": ("validation", "validation-data", "val", "valid", "val-data", "eval-data", "test",
             "eval-file", "validation-file", "test-data"),
    "every": ("eval-steps", "eval-every", "validate-every", "val-check-interval"),
    "metric": ("metrics", "metric-for-best-model", "monitor"),
    "patience": ("early-stopping", "early-stopping-patience"),
    "checkpoint-every": ("save-steps", "save-every", "save-freq", "checkpoint-interval"),
    "keep": ("save-total-limit", "max-checkpoints", "none", "baseline", "store-all", "default"),
    "resume": ("resume-from-checkpoint", "continue", "restart", "restore"),
    "seed": ("random-seed", "random-state", "manual-seed", "rng"),
    "loss": ("criterion", "loss-fn", "loss-function", "objective"),
    "loss-scale": ("grad-scaler", "amp", "fp16-loss-scale", "scaler"),
    "clip-norm": ("max-grad-norm", "grad-clip", "gradient-clip-val", "clip-grad-norm", "clip",
                  "gradient-clipping"),
    "clip-value": ("clip-grad-value",),
    "lora": ("lora-rank", "lora-r", "rank", "peft"),
    "lora-target": ("target-modules", "lora-modules"),
    "wrt": ("params", "parameters", "trainable", "requires-grad", "variables"),
    "no-grad": ("freeze", "frozen", "stop-gradient", "detach"),
    "input-grad": ("input-grads", "grad-inputs", "inputs-grad"),
    "train-mode": ("training-mode", "training"),
    "labels": ("target", "targets", "label"),
    "dim": ("dims", "dimension", "dynamic-dim", "symbol"),
    "shape": ("input-shape", "overwrite-input-shape", "shapes", "input-shapes"),
    "output": ("output-file", "out", "output-path", "output-model", "save-to", "output-dir"),
    "run": ("run-dir", "log-dir", "checkpoint-dir", "logging-dir", "execute", "exec", "forward",
            "benchmark", "infer", "profile"),
    "log": ("report-to", "logger", "loggers", "tensorboard", "wandb", "mlflow", "tb"),
    "callback": ("callbacks", "watcher", "hook", "hooks"),
    "force": ("overwrite", "yes", "overwrite-output-dir"),
    "format": ("output-format", "fmt", "json", "as"),
    "shuffle": ("shuffle-data", "random-order"),
    "ranks": ("nproc-per-node", "num-processes", "world-size", "np", "nproc", "gpus", "workers"),
    "stages": ("pipeline-stages", "pipeline-parallel-size", "pp", "num-stages"),
    "shard": ("zero", "zero-stage", "fsdp", "sharding"),
    "sync-batchnorm": ("sync-bn", "convert-sync-batchnorm"),
    "threads": ("num-threads", "intra-op-num-threads", "nthreads", "omp-num-threads"),
    "device": ("accelerator", "gpu", "cuda-device", "devices"),
    "memory": ("max-memory", "mem", "vram", "gpu-memory", "memory-limit"),
    "budget": ("memory-budget", "max-peak", "budget-bytes"),
    "plan": ("strategy", "checkpointing", "gradient-checkpointing", "remat", "recompute"),
    "inputs": ("input", "feeds", "feed", "npz"),
    "repeat": ("runs", "times", "repetitions"),
    "jobs": ("parallel", "processes"),
    "config": ("config-file", "settings", "conf", "configuration"),
    "verbose": ("debug", "log-level"),
    "quiet": ("silent", "no-progress"),
    "color": ("colour", "colors", "ansi"),
    "version": ("ver",),
    "help": ("usage", "man"),
    # losses
    "ce": ("cross-entropy", "cross-entropy-loss", "softmax-cross-entropy", "xent",
           "categorical-crossentropy", "sparse-categorical-crossentropy", "softmaxloss"),
    "mse": ("mean-squared-error", "mseloss", "l2", "l2-loss", "squared-error"),
    "l1": ("mae", "mean-absolute-error", "l1loss", "absolute-error"),
    "smooth-l1": ("smooth-l1-loss",),
    "huber": ("huber-loss",),
    "bce": ("binary-cross-entropy", "bceloss"),
    "bce-logits": ("bce-with-logits", "bcewithlogitsloss", "sigmoid-bce",
                   "binary-cross-entropy-with-logits", "sigmoid-cross-entropy"),
    "nll": ("nll-loss", "negative-log-likelihood"),
    "kl": ("kl-div", "kldivloss", "kl-divergence", "kullback-leibler"),
    # optimizers
    "sgd": ("gradient-descent", "gd", "stochastic-gradient-descent"),
    "momentum": ("sgd-momentum", "sgdm", "nag"),
    "adam": ("adamoptimizer", "torch-adam", "optax-adam"),
    "adamw": ("adamw-torch", "adamw-hf", "adamwoptimizer", "adamw-torch-fused"),
    # metrics and schedules
    "accuracy": ("acc", "top-1", "categorical-accuracy", "sparse-categorical-accuracy"),
    "top-5": ("acc5", "top-5-accuracy", "top-k-categorical-accuracy"),
    "perplexity": ("ppl",),
    "cosine": ("cosineannealinglr", "cosine-annealing", "cosine-decay"),
    "linear": ("linearlr", "linear-decay"),
    "step": ("steplr", "multistep", "exponentiallr"),
    "one-cycle": ("onecyclelr", "1cycle"),
    "inverse-sqrt": ("noam", "rsqrt", "inverse-square-root"),
    "polynomial": ("polynomiallr", "poly"),
    "constant": ("constantlr", "fixed", "constant-with-warmup"),
    # plans, policies, checks
    "optimal": ("best", "ilp", "checkmate", "milp", "auto"),
    "sqrt": ("chen", "sublinear", "sqrt-n"),
    "dots": ("dots-saveable", "checkpoint-dots", "matmuls"),
    "min-cut": ("partitioner", "min-cut-rematerialization-partition"),
    "finite-diff": ("gradcheck", "numeric", "numerical", "finite-differences", "fd"),
    "ort": ("onnxruntime", "onnxrt"),
    # commands
    "grad": ("gradient", "backward", "autograd", "differentiate", "diff", "build", "backprop"),
    "train": ("fit", "fine-tune", "learn"),
    "report": ("show", "info", "memory-report", "summary", "inspect", "analyze", "stats"),
    "check": ("lint", "validate", "ci", "gate"),
    "compare": ("diff-models", "delta"),
    "operator": ("op", "ops"),
    "ops": ("operators", "list-ops", "coverage", "rules"),
    "doctor": ("env", "env-info", "system-info", "collect-env"),
    "completion": ("completions", "complete", "autocomplete"),
    "schema": ("schemas", "jsonschema"),
    "init": ("setup", "new", "create"),
    "markdown": ("md",),
    "json": ("jsonl", "yaml"),
}  # fmt: skip


def plain(word: str) -> str:
    """A name without case, dashes and other signs: `AdamW` and `adam_w` are one."""
    return re.sub(r"[\W_]+", "", word).lower()


MEANT: dict[str, list[str]] = {}
for _name, _words in NAMES.items():
    for _word in _words:
        MEANT.setdefault(plain(_word), []).append(_name)
