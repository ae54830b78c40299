"""The command that shows the chapters of `model/textbook/`: python -m experiments.textbook"""
