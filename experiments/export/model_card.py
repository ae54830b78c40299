"""The README.md of an exported model: what it is, how good it is and how to load it."""

import math

from training.runs.checkpoint import Checkpoint
from training.runs.portable import plain_name, without_paths

LIBRARIES = {
    "safetensors": "-r requirements.txt safetensors",
    "huggingface": "torch transformers",
    "onnx": "onnxruntime numpy",
}
LOADING = {
    "safetensors": """The weights are `model.safetensors`, the settings `config.json`, and `vocabulary.json` lists the
characters in the order of their ids. In the project that trained it:

```bash
python sample.py --checkpoint {name}
python train.py --config my.yaml --from {name} data.corpus=my.txt
```
""",
    "huggingface": """```python
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

model, tokenizer = AutoModelForCausalLM.from_pretrained("{name}"), AutoTokenizer.from_pretrained("{name}")
write = pipeline("text-generation", model=model, tokenizer=tokenizer)
print(write("The ", max_new_tokens={length})[0]["generated_text"])
```

Prompt and new characters together must fit into {block_size} characters. There are no special tokens.
""",
    "onnx": """`step.onnx` reads one character and the key-value cache, `window.onnx` {block_size} characters at once;
`vocabulary.json` lists the characters in the order of their ids. `example.py` writes text:

```bash
python example.py "The " 200
```
""",
}


def model_card(checkpoint: Checkpoint, *, form: str, name: str, machine: str | None) -> str:
    """Return the page, in Markdown, of a model in a folder of this name. form: "safetensors", ...

    machine: on which it was trained, if that is known.
    """
    config, corpus, progress = checkpoint.config(), checkpoint.corpus, checkpoint.progress
    block_size = config.model.block_size
    loss = progress.get("best_loss", math.inf)
    is_of_best = progress.get("best_step") == checkpoint.step and math.isfinite(loss)
    measured = f"{loss:.4f} nats per character" if is_of_best else "not measured at this step"
    rows = {
        "vocabulary": f"{len(checkpoint.characters):,} {checkpoint.vocabulary.unit}s",
        "parameters": f"{sum(value.numel() for value in checkpoint.model.values()):,}",
        "context length": f"{block_size} {checkpoint.vocabulary.unit}s",
        "text": f"{plain_name(corpus['name'])}, SHA-256 {corpus['digest']}",
        "steps": f"{checkpoint.step:,}",
        "validation loss": f"{measured}, context length {block_size}",
        "trained on": machine or "a machine that is not recorded",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    settings = "\n".join(
        f"{section}.{key}={value}"
        for section, values in checkpoint.settings.items()
        for key, value in without_paths(values).items()
    )
    loading = LOADING[form].format(name=name, block_size=block_size, length=max(1, min(100, block_size - 4)))
    return f"""# {name}: a character-level GPT

| | |
|---|---|
{table}

## Loading

`pip install {LIBRARIES[form]}`

{loading}
## Settings

```
{settings}
```
"""
