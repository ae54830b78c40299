"""The first hour of a researcher, who works in Jupyter: resumes, fine-tunes, exchanges models and compares seeds."""

import base64
import json
import math
import re
import statistics

import pytest
from nanogpt_files import nanogpt_checkpoint, write_files
from pages_in_browser import rows
from person import Person

pytestmark = pytest.mark.nightly

# What Jupyter and Colab set for each line that begins with an exclamation mark.
JUPYTER = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
SMALL = "model.n_layer=2 model.block_size=64 train.batch_size=16"
BASE = f"--config configs/selmere.yaml {SMALL}"
PRICES = "CORVIN:\nThe ship is late, and the salt costs 5 € and 20 ß a sack.\n\n"
FORMULAS = "MARA:\nThe tide is late: λ = 2 µ / 7.\n\n"

FROM_PYTHON = """
from training.trained_model import load_model

model = load_model("runs/base")
print(model.generate("The ", 60, seed=1))
print(f"{-model.log_probabilities(open('passage.txt').read()).mean():.4f} nats")
for weights in model.attention_weights("The ship"):
    print(f"{tuple(weights.shape)}, sums to {weights.sum():.2f}")
"""


def test_the_first_hour_of_a_researcher(tmp_path, browser):
    for library in ("transformers", "nbclient", "ipykernel"):
        pytest.importorskip(library)
    researcher = Person(tmp_path, browser, **JUPYTER)
    resumes_with_another_learning_rate(researcher)
    scores_two_splits(researcher)
    finds_the_same_numbers_from_python(researcher)
    fine_tunes_a_fine_tuned_model_on_new_characters(researcher)
    gives_the_model_to_a_colleague(researcher)
    loads_a_model_with_transformers(researcher)
    brings_a_model_of_nanogpt(researcher)
    compares_seeds(researcher)
    compares_the_heads_of_two_models(researcher)
    runs_the_notebook(researcher)


def resumes_with_another_learning_rate(researcher):
    settings = "train.name=base train.max_steps=30 train.eval_every_steps=10 data.split=[0.81,0.09,0.1]"
    researcher.types(f"python train.py {BASE} {settings}")
    assert "model.n_head" in researcher.mistypes("python train.py --resume runs/base model.n_head=4")
    assert "did you mean runs/base?" in researcher.mistypes("python train.py --resume runs/bas")
    screen = researcher.types("python train.py --resume runs/base train.max_steps=40 optim.muon_lr=0.01")
    records = researcher.records("runs/base")
    (changes,) = [str(record["changes"]) for record in records if "changes" in record]
    for name in ("train.max_steps", "optim.muon_lr"):
        assert name in screen
        assert name in changes
    assert [record["step"] for record in records if "val_loss" in record] == [10, 20, 30, 40]
    assert f"Best validation loss {researcher.best_loss('runs/base'):.4f} nats" in screen


def scores_two_splits(researcher):
    score = "python -m experiments.score --checkpoint runs/base"
    assert f"the validation split of selmere: {researcher.best_loss('runs/base'):.4f} nats" in researcher.types(score)
    assert "the test split of selmere: " in researcher.types(f"{score} --split test")
    assert "deviation" not in researcher.types(f"{score} runs/base")  # of one model, given twice


def finds_the_same_numbers_from_python(researcher):
    researcher.writes("passage.txt", "The ship is late, and the tide is late.")
    researcher.writes("from_python.py", FROM_PYTHON)
    screen = researcher.types("python from_python.py")
    text, loss = re.fullmatch(r"(?s)(The .*)\n([\d.]+ nats)\n(?:\(2, 8, 8\), sums to 16.00\n){2}", screen).groups()
    options = '--checkpoint runs/base --prompt "The " --length 60 --seed 1'
    assert f"\n{text}\n" in researcher.types(f"python sample.py {options}")
    assert f": {loss}" in researcher.types("python -m experiments.score --checkpoint runs/base --text passage.txt")


def fine_tunes_a_fine_tuned_model_on_new_characters(researcher):
    """The first batch shows that the weights came along: it costs less than the mean of their loss and of guessing."""
    few = "train.max_steps=15 train.eval_every_steps=15 train.log_every_steps=1"
    half_way = (researcher.best_loss("runs/base") + math.log(60)) / 2
    researcher.writes("prices.txt", PRICES * 200)
    researcher.writes("formulas.txt", (PRICES + FORMULAS) * 100)
    for ancestor, name, new in (("base", "prices", "€"), ("prices", "formulas", "λ")):
        sample = f'--prompt "MARA: Quick! {new}" --length 10'
        message = researcher.mistypes(f"python sample.py --checkpoint runs/{ancestor} {sample}")
        assert f"{new!r} (U+{ord(new):04X}) is not in the vocabulary" in message
        start = f"--from runs/{ancestor} data.corpus={name}.txt train.name={name}"
        researcher.types(f"python train.py {BASE} {start} {few}")
        train_losses = [each["train_loss"] for each in researcher.records(f"runs/{name}") if "train_loss" in each]
        assert researcher.best_loss(f"runs/{name}") < train_losses[-1] + 0.5 < train_losses[0] < half_way
        assert f"\nMARA: Quick! {new}" in researcher.types(f"python sample.py --checkpoint runs/{name} {sample}")
    start = "--config runs/prices/config.yaml --from runs/prices data.corpus=formulas.txt"
    researcher.types(f"python train.py {start} train.name=by-its-config {few}")
    assert researcher.best_loss("runs/by-its-config") == researcher.best_loss("runs/formulas")
    narrow = f"{BASE} --from runs/base model.n_embd=64 train.name=narrow"
    assert "model.n_embd" in researcher.mistypes(f"python train.py {narrow}")
    assert not (researcher.home / "runs/narrow").exists()


def gives_the_model_to_a_colleague(researcher):
    researcher.types("python -m experiments.export --checkpoint runs/base --to safetensors --output exported/base")
    for command in ("sample.py --seed 3 --length 60", "-m experiments.score --text passage.txt"):
        ours, theirs = (researcher.types(f"python {command} --checkpoint {path}/base") for path in ("runs", "exported"))
        name, length = "runs/base/checkpoints/best.safetensors", ours.rfind("\nSampled") % len(ours)
        assert theirs.startswith(ours[:length].replace(name, "exported/base/model.safetensors"))
    assert "add --text FILE" in researcher.mistypes("python -m experiments.score --checkpoint exported/base")


def loads_a_model_with_transformers(researcher):
    settings = "data.corpus=selmere train.name=gpt2 train.dtype=float32 train.max_steps=30 train.eval_every_steps=30"
    shape = "model.n_layer=2 model.n_head=2 model.n_embd=32 model.block_size=32 train.batch_size=8"
    researcher.types(f"python train.py --config configs/shakespeare_gpt2.yaml {shape} {settings}")
    export = "python -m experiments.export --to huggingface --output exported/gpt2 --checkpoint"
    assert "configs/shakespeare_gpt2.yaml" in researcher.mistypes(f"{export} runs/base")
    researcher.types(f"{export} runs/gpt2")
    (lines,) = re.findall(r"(?s)```python\n(.*?)```", researcher.reads("exported/gpt2/README.md"))
    greedy = 'print(write("The ", max_new_tokens=20, do_sample=False)[0]["generated_text"])'
    researcher.writes("exported/load.py", f"{lines}{greedy}\n")
    theirs = researcher.types("python load.py", folder="exported").rpartition("\nThe ")[2]
    options = '--checkpoint runs/gpt2 --prompt "The " --length 20 --temperature 0'
    assert f"\nThe {theirs}Sampled" in researcher.types(f"python sample.py {options}")


def brings_a_model_of_nanogpt(researcher):
    write_files(researcher.home, nanogpt_checkpoint(bias=False))
    researcher.writes("my.txt", "What costs $5 & 3 cents?\n" * 100)
    assert "import_nanogpt" in researcher.mistypes("python sample.py --checkpoint ckpt.pt")
    files = "--checkpoint ckpt.pt --vocabulary meta.pkl --output runs/from-nanogpt"
    screen = researcher.types(f"python -m experiments.import_nanogpt {files}")
    tune = (
        "train.py --config runs/from-nanogpt/config.yaml --from runs/from-nanogpt data.corpus=my.txt train.name=tuned"
    )
    assert tune in screen
    sample = "python sample.py --length 50 --checkpoint"
    assert re.search(r"\na[abcxyz \n]{50}\n", researcher.types(f"{sample} runs/from-nanogpt --prompt a"))
    researcher.types(f"python {tune} train.max_steps=10 train.eval_every_steps=10")
    assert "\nabc $5" in researcher.types(f"{sample} runs/tuned --prompt 'abc $5'")


def compares_seeds(researcher):
    settings = "train.name=seeds train.seed=0,1 train.max_steps=12 train.eval_every_steps=6"
    researcher.types(f"python -m experiments.sweep {BASE} {settings}")
    seeds = [f"runs/seeds/seed={seed}" for seed in (0, 1)]
    losses = [researcher.best_loss(run) for run in seeds]
    mean, deviation = statistics.mean(losses), statistics.stdev(losses)
    score = f"python -m experiments.score --checkpoint {' '.join(seeds)}"
    spread = f"mean of 2 models: {mean:.4f} nats per character, standard deviation {deviation:.4f}"
    assert spread in researcher.types(score)
    assert "no mean: the models are not seeds of one variant" in researcher.types(f"{score} runs/base")
    row = ["2", f"{mean:.4f} ± {deviation / 2**0.5:.4f}"]
    printed = researcher.types("python -m experiments.report runs/seeds").partition("\nReport")[0]
    researcher.types("python -m experiments.report runs/seeds --pack seeds.jsonl")
    assert researcher.types("python -m experiments.report seeds.jsonl").startswith(printed)
    assert re.search(r" +".join(row), printed)
    researcher.looks_at("runs/seeds/report.html", "seeds")
    assert rows(researcher.browser, "tbody tr")[0][1:3] == row


def compares_the_heads_of_two_models(researcher):
    screen = researcher.types("python -m experiments.heads --checkpoint runs/base runs/prices --output two.html")
    for run in ("base", "prices"):
        assert f"Validation loss {researcher.best_loss(f'runs/{run}'):.4f} over" in screen
    researcher.looks_at("two.html", "two")


def runs_the_notebook(researcher):
    """Only the training is shorter; the cells after it are as they stand in the project."""
    file, name = "experiments/tour.ipynb", "train.name=tour "
    short = f"{name}train.max_steps=20 train.eval_every_steps=10 "
    researcher.writes(file, researcher.reads(file).replace(name, short))
    researcher.types(f"python -m jupyter execute --inplace {file}")
    outputs = [output for cell in json.loads(researcher.reads(file))["cells"] for output in cell.get("outputs", ())]
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    assert f"Best validation loss {researcher.best_loss('runs/tour'):.4f} nats" in printed
    surprises = re.findall(r"(?m)^'.' +[\d.]+ bits #*$", printed)
    assert len(surprises) == len("The ship is late, and the tide is xylophone.") - 1
    pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", ())]
    for name, picture in zip(("notebook-loss", "notebook-head"), pictures, strict=True):
        (researcher.pictures / f"{name}.png").write_bytes(base64.b64decode("".join(picture)))
