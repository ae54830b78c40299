"""Write text with the model of this folder: python example.py "The " 200

Needs only onnxruntime and numpy. step.onnx reads one character, with the cache of those before it, and returns the
logits of the next one and the new cache. window.onnx reads a whole window and returns the logits at every position.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent
TEMPERATURE, SEED = 0.8, 0


def empty_cache(step):
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32}
    return {each.name: np.zeros(each.shape, types[each.type]) for each in step.get_inputs() if each.name != "ids"}


def write(prompt, length):
    characters = json.loads((FOLDER / "vocabulary.json").read_text(encoding="utf-8"))
    prompt = prompt or characters[0]
    if unknown := set(prompt) - set(characters):
        sys.exit(f"the model does not know {unknown}")
    step = onnxruntime.InferenceSession(FOLDER / "step.onnx")
    generator = np.random.default_rng(SEED)
    text, unread, cache = prompt, prompt, empty_cache(step)
    block_size, n_read = cache["keys_0"].shape[2], 0
    print(prompt, end="")
    for _ in range(length):
        if n_read + len(unread) > block_size:  # full: start again with the newest half
            unread, cache, n_read = text[-block_size // 2 :], empty_cache(step), 0
        for character in unread:
            ids = np.array([[characters.index(character)]])
            logits, *values = step.run(None, {"ids": ids, **cache})
            cache = dict(zip(cache, values, strict=True))
        n_read += len(unread)
        scores = logits[0, 0] / TEMPERATURE
        probabilities = np.exp(scores - scores.max())
        unread = characters[generator.choice(len(characters), p=probabilities / probabilities.sum())]
        text += unread
        print(unread, end="", flush=True)
    print()


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else 200)
