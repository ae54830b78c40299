"""Set how long OpenMP threads spin at a barrier. Import this module before torch, which reads the setting once.

By default they spin so long that each of two runs on two cores takes 6 times as long as a single run. With this setting
it takes 2.5 times as long, and a single run slows down by about 6 % (AMD EPYC with AVX512-BF16,
`configs/shakespeare.yaml`).
"""

import os

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "1000"
