"""train.js in Chromium: its gradients, its steps and its losses are those of differences, training/ and PyTorch."""

import dataclasses

import pytest
import torch
from page_trainer import BATCH, KERNELS, N_STEPS, OPTIM, SET_WEIGHTS, in_json, new_run
from torch.testing import assert_close

from training.optim.schedule import lr_factor
from training.step import TrainingStep

PLAIN = "({ allocate: (n) => new Float64Array(n), multiply: plainProduct })"
COMPILED = "inWebAssembly(new WebAssembly.Module(Uint8Array.from(atob(kernel), (letter) => letter.charCodeAt(0))))"
SHAPES = [(1, 1, 8, 8, 5), (2, 2, 8, 8, 7), (1, 4, 16, 5, 3)]  # layers, heads, width, context, V
GRADIENTS = f"""
const gpt = new LearningGPT(config, V, 2, {PLAIN});
const uniform = makeRandom(1);
const normal = makeNormal(uniform);
gpt.initialise(normal);
const draw = () => Int32Array.from({{ length: gpt.N }}, () => Math.floor((1 - uniform()) * V));
const [ids, targets] = [draw(), draw()];
targets[3] = -1;  // as at the end of a text
for (const {{ weight }} of Object.values(gpt.parameters)) {{
  weight.values.forEach((w, i, all) => (all[i] += 0.2 * normal()));
}}
gpt.forward(ids, targets);
gpt.backward(ids);
const far = 1e-5;
return Object.fromEntries(Object.entries(gpt.parameters).map(([name, {{ weight, gradient }}]) => {{
  const slopes = Array.from(weight.values, (w, i) => {{
    const loss = (value) => ((weight.values[i] = value), gpt.forward(ids, targets));
    const slope = (loss(w + far) - loss(w - far)) / (2 * far);
    weight.values[i] = w;
    return slope;
  }});
  return [name, [[...gradient.values], slopes]];
}}));
"""
STEPS = f"""{SET_WEIGHTS}
const gpt = new LearningGPT(config, V, B, {COMPILED});
setWeights(gpt, weights);
const losses = starts.map((places, i) => gpt.learn(Uint16Array.from(ids), places, optim, factors[i]));
const plain = Object.entries(gpt.copyWeights()).map(([name, values]) => [name, [...values]]);
return {{ losses, weights: Object.fromEntries(plain) }};
"""
TRAIN = ["compute/train.js", "compute/random.js"]


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_those_of_finite_differences_in_float64(browser, shape):
    names = ("n_layer", "n_head", "n_embd", "block_size")
    config = dict(zip(names, shape, strict=False)) | {"logit_softcap": 2.0}
    found = browser.run_in_worker(TRAIN, GRADIENTS, config=config, V=shape[-1])
    for name, (gradient, slopes) in found.items():
        assert_close(torch.tensor(gradient), torch.tensor(slopes), rtol=0, atol=1e-6, msg=name)
        assert max(map(abs, slopes)) > 1e-3, name


@pytest.mark.parametrize("model", [{}, {"n_layer": 1, "n_head": 1}, {"n_head": 8, "n_embd": 48}])
@pytest.mark.parametrize("kernel", KERNELS, ids=["with fused products", "plain"])
def test_three_steps_are_those_of_training(browser, tmp_path, model, kernel):
    state = new_run(tmp_path, **model)
    step, given = TrainingStep(state), in_json(state.model)
    given["starts"] = [step.batches.starts(i * BATCH).tolist() for i in range(N_STEPS)]
    given["factors"] = [lr_factor(OPTIM, i, N_STEPS) for i in range(N_STEPS)]
    given |= {"ids": state.split.train.tolist(), "optim": dataclasses.asdict(OPTIM), "kernel": kernel}
    found = browser.run_in_worker(TRAIN, STEPS, V=len(state.corpus.vocabulary), B=BATCH, **given)
    losses = [(step.run(), state.take_mean_loss())[1] for _ in range(N_STEPS)]
    assert_close(found["losses"], losses, rtol=0, atol=1e-5)
    for name, p in state.model.named_parameters():
        differences = (torch.tensor(found["weights"][name]) - p.detach().flatten()).abs()
        decays = differences > 1e-4  # of a weight whose update is nearly 0: whether it decays depends on its sign
        assert decays.sum() <= 2, name
        assert (differences <= 1e-4 + decays * OPTIM.muon_lr * OPTIM.weight_decay).all(), name
        assert (p.detach().flatten() - torch.tensor(given["weights"][name])).abs().max() > 1e-3, name
