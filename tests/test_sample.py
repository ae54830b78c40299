import dataclasses
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, train_tiny
from helpers import make_checkpoint

import sample
from experiments.score import main as score_command
from model.config import ModelConfig
from model.gpt import GPT
from training.config import Config
from training.config_file import to_dict
from training.runs.checkpoint import save_checkpoint
from training.sampling.texts import DEFAULT, stream_texts
from training.trained_model import load_model


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a working directory that contains a trained run."""
    folder = tmp_path_factory.mktemp("trained")
    train_tiny(folder)
    return folder


@pytest.fixture
def write(trained, monkeypatch):
    """Return a function that runs sample.py with arguments and standard input; it returns status, output and errors."""
    monkeypatch.chdir(trained)

    def run(*arguments, stdin=b""):
        streams = {name: io.BytesIO() for name in ("stdout", "stderr")}
        wrappers = {name: io.TextIOWrapper(stream, encoding="utf-8") for name, stream in streams.items()}
        for name, wrapper in wrappers.items():
            monkeypatch.setattr(sys, name, wrapper)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        try:
            status = sample.main(list(map(str, arguments)))
        finally:
            for wrapper in wrappers.values():
                wrapper.flush()
            monkeypatch.undo()
            monkeypatch.chdir(trained)
        return status, streams["stdout"].getvalue().decode(), streams["stderr"].getvalue().decode()

    return run


def text(result):
    status, output, errors = result
    assert status == 0, errors
    return output


def test_the_newest_run_is_sampled_at_the_given_length(write):
    written = text(write("--length", 50))
    assert len(written) == 50 + 1
    assert text(write("--length", 0)) == "\n"
    assert text(write("--length", 0, "--prompt", "99 bottles")) == "99 bottles\n"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_compiled_model_writes_the_same_text_and_later_starts_find_it_unless_it_is_damaged(
    write, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def sampled(*arguments, **options):
        result = write("--length", 60, *arguments, **options)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        return text(result), result[2].count("Compiling")

    expected, _ = sampled()
    assert sampled("--compile") == (expected, 1)
    assert sampled("--compile") == (expected, 0)
    (package,) = (tmp_path / "character-gpt").iterdir()
    package.write_bytes(package.read_bytes()[:1000])
    assert sampled("--compile") == (expected, 1)
    prompts = {"stdin": b"99 bot\n99 bot\n"}
    assert sampled("--compile", "--interactive", **prompts) == (sampled("--interactive", **prompts)[0], 0)


def test_a_run_folder_or_a_checkpoint_file_can_be_given(write):
    expected = text(write("--length", 30))
    assert text(write("--length", 30, "--checkpoint", "runs/tiny")) == expected
    assert text(write("--length", 30, "--checkpoint", "runs/tiny/checkpoints/best.pt")) == expected


def test_the_same_seed_gives_the_same_text_and_another_seed_another_text(write):
    five, again, six = (text(write("--length", 99, "--seed", seed)) for seed in (5, 5, 6))
    assert five == again
    assert five != six


def test_each_sample_continues_the_prompt_and_the_first_equals_a_single_sample(write):
    alone = text(write("--length", 40, "--prompt", "99 bot"))
    together = text(write("--length", 40, "--prompt", "99 bot", "--samples", 3))
    samples = re.findall(r"--- sample \d ---\n(.{46})\n\n", together, re.DOTALL)
    assert len(set(samples)) == 3
    assert all(s.startswith("99 bot") for s in samples)
    assert samples[0] + "\n" == alone


def test_temperature_0_and_top_k_1_give_the_greedy_text(write):
    likeliest = text(write("--length", 99, "--temperature", 0))
    assert text(write("--length", 99, "--top-k", 1)) == likeliest
    assert text(write("--length", 99, "--top-p", 1e-9)) == likeliest
    assert text(write("--length", 99, "--min-p", 1)) == likeliest
    assert text(write("--length", 99)) != likeliest


def test_a_prompt_can_come_from_a_file_or_from_standard_input(write, trained):
    expected = text(write("--length", 99, "--prompt", "98 bottles\n"))
    (trained / "prompt.txt").write_bytes(b"98 bottles\n")
    assert text(write("--length", 99, "--prompt-file", "prompt.txt")) == expected
    assert text(write("--length", 99, "--prompt-file", "-", stdin=b"98 bottles\n")) == expected


def test_a_prompt_of_a_million_characters_can_be_continued(write, trained):
    (trained / "long.txt").write_text("98 bottles of beer" * 60_000, encoding="utf-8")
    assert len(text(write("--prompt-file", "long.txt", "--length", 5))) == 18 * 60_000 + 5 + 1


def test_many_samples_are_the_same_texts_as_few(write):
    """They are sampled in batches of 64."""
    few, many = (text(write("--length", 5, "--samples", n)) for n in (3, 66))
    assert many.startswith(few)
    assert re.findall(r"--- sample (\d+) ---", many) == [str(n) for n in range(1, 67)]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_samples(tmp_path):
    """The key-value cache of one stream of this model has 2 MB."""
    config = ModelConfig(n_layer=4, n_head=2, n_embd=128, block_size=512)
    model = GPT(config, len(make_checkpoint().characters))
    checkpoint = dataclasses.replace(
        make_checkpoint(), settings=to_dict(Config(model=config)), model=model.state_dict()
    )
    save_checkpoint(checkpoint, tmp_path / "a.pt")
    peaks = []
    for n in (64, 320):
        arguments = [
            "--checkpoint",
            tmp_path / "a.pt",
            "--samples",
            n,
            "--length",
            2,
            "--prompt",
            "ab",
            "--device",
            "cpu",
        ]
        peaks.append(peak_memory_of([sys.executable, ROOT / "sample.py", *arguments]))
    assert peaks[1] - peaks[0] < 100e6


def peak_memory_of(command):
    """Return the largest resident memory of a command in bytes."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    command = [sys.executable, "-c", code, *map(str, command)]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=100).stdout)


@pytest.mark.parametrize("option", [["--interactive"], ["--prompt-file", "-"]])
def test_a_closed_standard_input_produces_a_one_line_error(trained, option):
    command = shlex.join([sys.executable, str(ROOT / "sample.py"), *option])
    finished = subprocess.run(
        ["bash", "-c", f"{command} <&-"], cwd=trained, capture_output=True, text=True, timeout=100
    )
    assert finished.returncode == 2
    assert "standard input, which is closed" in finished.stderr
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize("samples", [1, 3])
def test_sampling_ends_before_the_first_stop_text(write, samples):
    whole = text(write("--length", 200, "--samples", samples))
    stopped = text(write("--length", 200, "--samples", samples, "--stop", " b", "--stop", "zzz"))
    if samples == 1:
        assert " b" in whole
        assert stopped == whole[: whole.index(" b")] + "\n"
    else:
        bodies = [re.split(r"--- sample \d ---\n", output)[1:] for output in (whole, stopped)]
        for before, after in zip(*bodies, strict=True):
            assert after == before.removesuffix("\n\n").split(" b")[0] + "\n\n"


def test_an_incomplete_stop_text_is_printed():
    pieces = []
    stop = sample.StopText(["abcd", "bx"], pieces.append)
    for character in "zabcabx!":
        stop.add(character)
    stop.end()
    assert "".join(pieces) == "zabca"
    pieces.clear()
    stop = sample.StopText(["abcd"], pieces.append)
    for character in "xabc":
        stop.add(character)
    assert "".join(pieces) == "x"  # the possible beginning of a stop text is held back
    stop.end()
    assert "".join(pieces) == "xabc"


def test_an_unknown_character_is_reported_with_its_position_or_skipped(write):
    status, output, errors = write("--prompt", "99 böttles")
    assert (status, output) == (2, "")
    assert "character 5 of the prompt, 'ö' (U+00F6) is not in the vocabulary" in errors
    assert "--unknown skip" in errors
    skipped = text(write("--length", 99, "--prompt", "99 böttles🙂", "--unknown", "skip"))
    assert skipped == text(write("--length", 99, "--prompt", "99 bttles"))
    assert text(write("--length", 99, "--prompt", "öäü", "--unknown", "skip")) == text(write("--length", 99))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--temperature", "-1"], "temperature=-1.0"),
        (["--temperature", "nan"], "temperature=nan"),
        (["--top-k", "0"], "top_k=0"),
        (["--top-p", "2"], "top_p=2.0"),
        (["--min-p", "-1"], "min_p=-1.0"),
        (["--length", "-1"], "--length -1"),
        (["--samples", "0"], "--samples 0"),
        (["--samples", "100000000"], "--samples 100000000 must be at most 10,000"),
        (["--seed", "-1"], "--seed -1"),
        (["--stop", ""], "--stop needs"),
        (["--device", "cuda:99"], "this machine has"),
        (["--checkpoint", "runs/gone"], "no such run or checkpoint"),
        (["--checkpoint", "text.txt"], "is not a checkpoint of this project"),
        (["--checkpoint", "."], "has no checkpoints/best.pt"),
        (["--prompt-file", "gone.txt"], "gone.txt"),
        (["--prompt", "\x1b[31m"], r"'\x1b' (U+001B)"),
        (["--prompt", "\udcff"], r"'\udcff' (U+DCFF)"),
        (["--prompt", "\0"], r"'\x00' (U+0000)"),
    ],
)
def test_a_mistake_produces_a_one_line_error_and_status_2(write, arguments, message):
    status, output, errors = write(*arguments)
    assert (status, output) == (2, "")
    assert message in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert "\x1b" not in errors


def test_the_error_for_a_prompt_that_is_not_utf8_gives_the_offset(write):
    status, _, errors = write("--prompt-file", "-", stdin=b"ab\xff")
    assert status == 2
    assert "standard input is not UTF-8 text: byte 2" in errors


def test_without_a_run_the_error_says_how_to_train_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sample.main([]) == 2
    assert capsys.readouterr().err.endswith(
        "train first with python train.py --config configs/selmere.yaml, or give one with --checkpoint\n"
    )


def test_interactive_mode_continues_each_line_and_survives_mistakes(write):
    status, output, errors = write("--interactive", "--length", 10, stdin="99 bot\nöl\n\n98".encode())
    assert status == 0
    first, second, third = output[:17], output[17:28], output[28:]
    assert first.startswith("99 bot")
    assert len(second) == 11
    assert third.startswith("98")
    assert "'ö'" in errors


def test_text_is_printed_while_it_is_sampled(trained):
    command = [sys.executable, str(ROOT / "sample.py"), "--length", "10000000"]
    with subprocess.Popen(command, cwd=trained, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert len(process.stdout.read(300)) == 300  # long before the end
        process.stdout.close()  # as `head` does
        errors = process.stderr.read().decode()
        assert process.wait(timeout=30) == 0
    assert "Error" not in errors
    assert "Exception" not in errors


@pytest.mark.parametrize(
    "argument, message",
    [
        ("ROMEO:", "unknown argument 'ROMEO:'; a text to continue follows --prompt; see sample.py --help"),
        (str(ROOT), f"unknown argument '{ROOT}'; did you mean --checkpoint {ROOT}? See sample.py --help"),
        ("--lenght=20", "unrecognized arguments: --lenght=20; did you mean --length? See sample.py --help"),
    ],
)
def test_an_argument_without_its_option_or_with_a_misspelt_one_produces_a_line_that_names_the_option(
    capsys, argument, message
):
    with pytest.raises(SystemExit, match="2"):
        sample.main([argument])
    assert capsys.readouterr().err == f"sample.py: {message}\n"


def test_help_is_complete_and_short(capsys):
    with pytest.raises(SystemExit, match="0"):
        sample.main(["--help"])
    help_text = capsys.readouterr().out
    options = "checkpoint prompt prompt-file interactive length samples temperature top-k top-p min-p seed stop device"
    assert {*options.split(), "prompts", "json", "unknown", "compile", "help"} == set(
        re.findall(r"^  (?:-h, )?--([\w-]+)", help_text, re.M)
    )
    assert len(help_text.splitlines()) < 38


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_prompts_of_a_file_are_continued_in_order_as_if_each_came_alone(write, tmp_path, suffix):
    prompts = ["99 bottles", "beer", "", "wall", "on the wall, 6"]
    file = tmp_path / f"prompts.{suffix}"
    lines = [json.dumps({"prompt": p} if len(p) > 4 else p) for p in prompts] if suffix == "jsonl" else prompts
    file.write_text("\r\n".join(lines) + "\n", newline="")
    written = text(write("--prompts", file, "--length", 30, "--samples", 2))
    texts = re.findall(r"--- sample (\d+) ---\n(.*?)\n\n(?=---|\Z)", written, re.S)
    assert [int(number) for number, _ in texts] == list(range(1, 11))
    assert [continued.startswith(prompts[i // 2]) for i, (_, continued) in enumerate(texts)] == [True] * 10
    assert texts[0][1] == text(write("--prompt", prompts[0], "--length", 30)).removesuffix("\n")
    model = load_model("runs/tiny")
    stream = stream_texts(model.model, model.vocabulary, ["wall"], 30, sampling=DEFAULT, seed=0, streams=[7])
    assert texts[7][1] == "wall" + "".join(character for (character,) in stream)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", '"a"\n{"text": 1}\n', 'line 2: is no prompt; write "a text"'),
        ("p.jsonl", "[" * 10**5, "line 1: is no prompt"),
        ("p.jsonl", '"beer"\n\n', "line 2: is no prompt"),
        ("p.txt", "beer\nXYZ\n", "p.txt, line 2: character 1 of the prompt, 'X'"),
        ("p.txt", "", "has no prompts"),
    ],
)
def test_a_file_with_something_else_than_prompts_is_an_error(write, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    status, output, errors = write("--prompts", tmp_path / name)
    assert (status, output) == (2, "")
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_json_has_the_text_of_plain_sampling_and_log_probabilities_that_add_up_to_the_score(write, capsys):
    options = ["--length", 40, "--seed", 5, "--top-k", 7]
    plain = text(write("--prompt", "bottles", *options))
    records = [json.loads(line) for line in text(write("--prompt", "bottles", "--json", *options)).splitlines()]
    (record,) = records
    assert record["prompt"] + record["text"] + "\n" == plain
    assert (record["seed"], record["sample"], record["settings"]["top_k"]) == (5, 0, 7)
    first, *others = record["log_probabilities"]
    assert first is None
    assert len(others) == len(plain) - 2
    Path("written.txt").write_text(plain[:-1])
    capsys.readouterr()
    assert score_command(["--text", "written.txt"]) == 0
    loss, n = re.search(r"written.txt: ([\d.]+) nats.*over (\d+) char", capsys.readouterr().out).groups()
    assert int(n) == len(others)
    assert -sum(others) / len(others) == pytest.approx(float(loss), abs=1e-4)


def test_json_without_a_prompt_names_the_one_used(write):
    (record,) = map(json.loads, text(write("--json", "--length", 0)).splitlines())
    assert (record["prompt"], record["text"], record["log_probabilities"]) == ("\n", "", [None])
