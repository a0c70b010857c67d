//! Tests of the workload; the golden values come from `scripts/golden_gpt.py`.
