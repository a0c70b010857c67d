//! `inventory`: what the machine is, and whether it is what was promised.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageSpec;
use crate::measure::{Better, Metric, Unit};

/// Options of `inventory`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// Folders whose file systems are looked at, beside the working folder.
    #[serde(default)]
    pub paths: Vec<String>,
}

impl StageSpec for Inventory {
    const KIND: &'static str = "inventory";
    const DOC: &'static str = "what the machine is, and whether it is what was promised";
    const METRICS: &'static [Metric] = &[
        Metric::new("checks_passed", Unit::COUNT, Better::Higher, "checks that came out as they should"),
        Metric::new("checks_warned", Unit::COUNT, Better::Lower, "checks that somebody should look at"),
        Metric::new(
            "checks_failed",
            Unit::COUNT,
            Better::Lower,
            "checks that did not come out as they should",
        ),
        Metric::new(
            "checks_not_observable",
            Unit::COUNT,
            Better::Neither,
            "checks that cannot be told from here",
        ),
    ];
}
