"""Random models and the weights of their pages, read back without the code of the page."""

import base64
import gzip
import json
import random

import numpy as np
import torch
from helpers import make_checkpoint

from data.vocabulary import Vocabulary
from model.gpt import GPT
from page import weights as packing


def packed(config):
    """Return a random model, header and weights of its page, and the model in float64 with the weights of the page."""
    vocabulary = Vocabulary("abcdefghijkl\n")
    model = GPT(config, len(vocabulary))
    with torch.no_grad():
        for name, x in model.named_parameters():
            x.add_(torch.randn_like(x), alpha=0.3)
            x.mul_(10 ** -random.Random(len(x)).uniform(0, 4) if "embedding" in name or "ngrams.proj" in name else 1)
        if config.ngrams:
            memory = model.memories["ngrams"]
            memory.counts.random_(0, 9)
            memory.prior.fill_(7)
            memory.symbols.copy_(1 + torch.randperm(len(vocabulary)))  # as in a model that was fine-tuned
    header, weights = packing.payload(make_checkpoint(model=model, characters=vocabulary.characters))
    header = json.loads(json.dumps(header))
    rounded = GPT(config, len(vocabulary)).double().eval()
    rounded.load_state_dict(unpacked(header["tensors"], weights))
    return model, header, weights, rounded


def unpacked(tensors, weights):
    content = gzip.decompress(base64.b64decode(weights))
    found = {}
    for name, place in tensors.items():
        size = int(np.prod(place["shape"]))
        numbers = np.frombuffer(content, place["dtype"], size, place["offset"]).reshape(place["shape"])
        found[name] = torch.from_numpy(numbers.astype(np.float64))
    if packing.SCALES in found:
        found[packing.ROWS] *= found.pop(packing.SCALES)
    return found
