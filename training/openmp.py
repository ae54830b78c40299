"""Set how long OpenMP threads spin at a barrier. Import this module before torch, which reads the setting once.

A thread that does not spin sleeps, and waking it up costs time: with a spin count of 1,000 instead of the default, a run
on two threads took 1.7 times as long. Threads that spin long steal time from other processes: with the default, each of
two runs on two cores took 12 times as long as a single run. With this count, a single run took 1.08 times as long as
with the default, and each of two runs 3.5 times as long as a single run (`configs/shakespeare.yaml`, 2 cores of an Intel
Xeon with AMX).
"""

import os

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "8000"
