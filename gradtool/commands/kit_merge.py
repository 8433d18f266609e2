"""The command `gradtool kit merge`."""

from __future__ import annotations

from pathlib import Path

import click

from gradtool.commands.call import Call, as_command
from gradtool.commands.options import file_flag, switch


@as_command("kit merge")
@click.argument("kit", type=click.Path(readable=False))
@click.argument("state", type=click.Path(readable=False))
@file_flag("-o/--output", "FILE", "Where to write; default MODEL.trained.onnx, or MODEL.lora.onnx.")
@switch("--force", "Overwrite the output.")
@switch("--lora-adapter", "Leave the weights as they are, and write adapters beside them: "
        "MODEL.lora.onnx, and MODEL.lora.onnx_adapter for onnxruntime.")  # fmt: skip
@click.option("--model", metavar="FILE", type=click.Path(readable=False),
              help="Where the model is that KIT was made of; default: where it was.")  # fmt: skip
def command(
    call: Call,
    /,
    *,
    kit: str,
    state: str,
    output: str | None,
    force: bool,
    lora_adapter: bool,
    model: str | None,
) -> None:
    """Write the weights of STATE into the model that KIT was made of.

    STATE is a .safetensors file, or a folder of binaries that are called as those of the kit. The
    file's nodes, opset, names and metadata stay.
    """
    from gradtool.commands.writing import default_target
    from gradtool.errors import UsageError
    from gradtool.io import atomic
    from gradtool.kit import manifest
    from gradtool.kit.merge import merge_kit
    from gradtool.text.units import format_bytes

    source = model or manifest.read(Path(kit)).original
    kind = "lora" if lora_adapter else "trained"
    target = output or default_target(Path(source).name, kind)
    if target != "-":
        atomic.target(target, force=force)
    elif lora_adapter:
        raise UsageError("--lora-adapter writes two files: name them with -o FILE")
    files = merge_kit(kit, state, target, model=model, adapter=lora_adapter, force=force)
    for path, size in files:
        tell = call.reporter.say if target == "-" else call.reporter.line
        tell(f"wrote {path} ({format_bytes(size)})")
