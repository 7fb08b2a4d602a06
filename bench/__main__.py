"""Benchmarks of scoring and evaluation in one run: ``python -m bench``, or ``make bench``.

python -m bench [--quick] [--repeats 5] [--device cuda] [--output bench.json]

With --device cuda, an epoch of training is measured instead of evaluation.
"""

import platform
import shutil
from pathlib import Path
from typing import Any

import torch

from bench import gpu_training, scoring
from bench.common import benchmark_parser, write_results


def main() -> None:
    """Print every table and write the results as JSON."""
    parser = benchmark_parser(__doc__, 5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pairs, one repeat")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"), help="(default cpu)")
    parser.set_defaults(output=Path("bench.json"))
    options = parser.parse_args()

    from bench import end_to_end, evaluation  # they need polars

    scale, repeats = (0.02, 1) if options.quick else (0.2, options.repeats)
    results: dict[str, Any] = {
        "machine": {"processor": platform.processor(), "threads": torch.get_num_threads()},
        "torch": torch.__version__,
    }
    if options.device.type == "cuda":
        results["machine"]["gpu"] = torch.cuda.get_device_name(options.device)
        scale = 0.02 if options.quick else 1.0
        results["training"] = gpu_training.run(scale, min(repeats, 3), options.device)
    pools = 210 if options.quick else 2100
    results["scoring"] = scoring.run(scale, repeats, options.device)
    end_to_end_scale = 0.1 if options.quick else 1.0
    sizes = end_to_end_scale, pools, min(repeats, 3), torch.get_num_threads()
    results["end_to_end"] = end_to_end.run(*sizes, str(options.device))
    if options.device.type != "cuda":
        results["evaluation"] = evaluation.run(repeats, shutil.which("trec_eval"))
    write_results(results, options)


if __name__ == "__main__":
    main()
