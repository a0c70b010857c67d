//! The leaf: units, metrics, samples, summaries, money, quantities, statistics. It knows nothing of plans or runs.

mod finite;
mod metric;
mod money;
pub mod quantity;
mod unit;

pub use finite::{Finite, NotFinite};
pub use metric::{Better, Labels, Metric, MetricPath};
pub use money::{Currency, MixedCurrencies, Money};
pub use unit::Unit;
