"""Set how long OpenMP threads spin at a barrier. Import this module before torch, which reads the setting once.

A thread that does not spin sleeps, and waking it up costs time: with a spin count of 1,000, a run on two threads is no
faster than on one. A thread that spins takes time from other processes: with the default of 300,000, each of two runs
on two cores takes up to 12 times as long as a single run. With this count, a single run takes 10 % longer than with the
default, and each of two runs 3.8 times as long as a single run (`configs/shakespeare.yaml`, 2 cores of an Intel Xeon
with AMX).
"""

import os

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "8000"
