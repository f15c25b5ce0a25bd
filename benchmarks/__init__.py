"""One file for each question about speed. `python -m benchmarks NAME [--quick] --json FILE` answers it.

These machines are noisy: what is compared runs in turns, several rounds of it, and what counts is the median of the
rounds' ratios, printed with its spread.
"""
