"""How long OpenMP threads spin at a barrier. Import this module before torch, which reads the setting once.

By default they spin for so long that two runs on two cores slow each other 6 times; with this many iterations they take
2.5 times as long as one, which itself loses about 6 % (AMD EPYC with AVX512-BF16, `configs/shakespeare.yaml`).
"""

import os

if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "1000"
