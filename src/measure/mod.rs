//! The leaf: units, metrics, samples, summaries, money, quantities, statistics. It knows nothing of plans or runs.

pub mod bootstrap;
pub mod compare;
mod metric;
mod money;
pub mod progress;
pub mod quantity;
pub mod steady;
pub mod summary;
mod unit;
pub mod window;

pub use metric::{Better, Labels, Metric, MetricPath};
pub use money::{Currency, MixedCurrencies, Money};
pub use summary::{Finite, NotFinite};
pub use unit::Unit;
