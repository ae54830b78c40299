"""Speed and memory of this machine and of everything that is run on it: python -m experiments.benchmark"""
