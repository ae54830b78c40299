import random

from training.copied import longest_stretch


def first_longest(text, training):
    """Return the first of the longest stretches of a text that stand in the training text, by comparing all of them."""
    stretches = [text[i:j] for i in range(len(text) + 1) for j in range(i, len(text) + 1)]
    there = {training[i:j] for i in range(len(training) + 1) for j in range(i, len(training) + 1)}
    return max((stretch for stretch in stretches if stretch in there), key=len)


def test_the_longest_stretch_is_the_one_that_comparing_all_of_them_finds():
    draw = random.Random(0)
    for _ in range(100):
        training = "".join(draw.choices("abc", k=draw.randint(1, 40)))
        text = "".join(draw.choices("abcd", k=draw.randint(0, 20)))
        assert longest_stretch(text, training) == first_longest(text, training)


def test_a_whole_copy_is_found_in_a_long_text():
    training = "".join(random.Random(1).choices("abcdefgh ", k=200_000))
    assert longest_stretch(training[199_000:199_900] + training[:700], training) == training[199_000:199_900]
    assert longest_stretch(training[199_000:], training) == training[199_000:]
