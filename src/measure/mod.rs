//! The leaf: units, metrics, samples, summaries, money.
