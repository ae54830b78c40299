"""Speed and memory of training, sampling and encoding on this machine: python -m experiments.benchmark"""
