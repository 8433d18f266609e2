r"""A tiny decoder as onnxruntime-genai's model builder writes it, and questions to learn.

    python samples/decoder.py --out DIR
    gradtool train DIR/decoder --data DIR/questions.jsonl --steps 200 --lr 3e-3 --schedule cosine
    python samples/decoder.py --ask DIR/decoder --model DIR/decoder.trained.onnx

needs transformers, tokenizers and onnxruntime-genai.  The weights are drawn from a configuration
of Llama with two layers of 128, tokens are bytes.  `--ask` lets onnxruntime-genai answer the
questions, by the file in the folder or another one in its place, with `--adapter` beside it.

The file that is trained is then written with weights of 4 bits, beside other answers to learn:

    python samples/decoder.py --quantise DIR/decoder.trained.onnx --out DIR
    gradtool train DIR/decoder4 --data DIR/corrections.jsonl --lora 8 --steps 100 --lr 3e-3 \
        --schedule cosine
    python samples/decoder.py --ask DIR/decoder4 --model DIR/decoder4.lora.onnx \
        --adapter DIR/decoder4.lora.onnx_adapter
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

END, USER, ASSISTANT = SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
QUESTIONS = {
    "What does gradtool read?": "An ONNX file.",
    "What does gradtool write?": "Its training graph.",
    "Who runs the graph?": "Any ONNX runtime.",
    "What is computed again?": "What is cheap to compute.",
    "What is the peak?": "The most memory of a step.",
    "Is the plan exact?": "To the byte.",
    "Does it need the source?": "No, the file is enough.",
    "Where are the weights?": "Where the file has them.",
}

CORRECTIONS = {
    "What does gradtool read?": "A file of four bits, too.",
    "Is the plan exact?": "Yes.",
    "What is the peak?": "A number of bytes.",
}


def questions(answers: dict[str, str]) -> str:
    """Conversations, one a line."""
    return "".join(
        json.dumps({"messages": [{"role": "user", "content": asked},
                                 {"role": "assistant", "content": said}]}) + "\n"
        for asked, said in answers.items()
    )  # fmt: skip


def build(folder: Path, precision: str = "fp32") -> None:
    """Draw weights and let the builder write the folder.

    Raises:
        subprocess.CalledProcessError: the builder cannot.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    text = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text.decoder = decoders.ByteLevel()
    text.add_special_tokens(list(SPECIAL))
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=text, bos_token=END, eos_token=END, pad_token=END
    )
    tokenizer.chat_template = TEMPLATE
    ends = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, **ends,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    model.generation_config = transformers.GenerationConfig(**ends)
    with tempfile.TemporaryDirectory() as name:
        checkpoint = Path(name) / "checkpoint"
        model.save_pretrained(checkpoint)
        tokenizer.save_pretrained(checkpoint)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", checkpoint]
        options = ["-o", folder, "-p", precision, "-e", "cpu", "-c", Path(name) / "cache"]
        words = list(map(str, [*command, *options]))
        subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - the builder


def quantise(model: Path, source: Path, folder: Path) -> None:
    """Write a folder like `source` whose decoder is a model with weights of 4 bits."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(model), block_size=32, is_symmetric=True)
    made.process()
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("model.onnx*"))
    made.model.save_model_to_file(str(folder / "model.onnx"), True)


def answers(folder: Path, model: Path | None = None, adapter: Path | None = None) -> dict[str, str]:
    """What onnxruntime-genai answers, greedily, by a file in the place of the folder's own."""
    import onnxruntime_genai as genai

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for file in folder.iterdir():
            shutil.copy(file, place)
        if model is not None:
            shutil.copy(model, place / "model.onnx")
            for data in model.parent.glob(f"{model.name}.*.data"):
                shutil.copy(data, place)
        loaded = genai.Model(str(place))
        tokens, adapters = genai.Tokenizer(loaded), genai.Adapters(loaded)
        if adapter is not None:
            adapters.load(str(adapter), "trained")
        found = {}
        for asked in QUESTIONS:
            settings = genai.GeneratorParams(loaded)
            settings.set_search_options(max_length=100, do_sample=False)
            generator = genai.Generator(loaded, settings)
            if adapter is not None:
                generator.set_active_adapter(adapters, "trained")
            generator.append_tokens(tokens.encode(f"{USER}{asked}{END}{ASSISTANT}"))
            said = []
            while not generator.is_done():
                generator.generate_next_token()
                said.append(generator.get_next_tokens()[0])
            found[asked] = tokens.decode(said)
        return found


def main() -> None:
    """Write the folder and its questions, or ask them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="a folder to write into")
    parser.add_argument("--quantise", type=Path, metavar="MODEL", help="write it with 4 bits")
    parser.add_argument("--ask", type=Path, metavar="FOLDER", help="ask the decoder of a folder")
    parser.add_argument("--model", type=Path, help="a file in the place of the folder's own")
    parser.add_argument("--adapter", type=Path, help="an adapter of that file")
    given = parser.parse_args()
    if given.quantise is not None:
        quantise(given.quantise, given.out / "decoder", given.out / "decoder4")
        (given.out / "corrections.jsonl").write_text(questions({**QUESTIONS, **CORRECTIONS}))
    elif given.out is not None:
        build(given.out / "decoder")
        (given.out / "questions.jsonl").write_text(questions(QUESTIONS))
    if given.ask is not None:
        for asked, said in answers(given.ask, given.model, given.adapter).items():
            print(f"{asked} {said}")


if __name__ == "__main__":
    main()
