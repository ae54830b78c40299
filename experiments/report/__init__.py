"""The report of a sweep, or of any runs: are they different, or is it noise?"""
