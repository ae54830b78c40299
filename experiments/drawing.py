"""Charts, where matplotlib is installed; it is not needed to train and to sample."""


def load_pyplot():
    """matplotlib.pyplot, drawing into files alone. Raises ValueError where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise ValueError("drawing needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
