//! A number that was measured: finite by construction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number that is neither NaN nor infinite.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Finite(f64);

/// A value that is no number of the real line.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not a finite number")]
pub struct NotFinite(pub f64);

impl Finite {
    /// # Errors
    /// For NaN and infinities.
    pub fn new(value: f64) -> Result<Self, NotFinite> {
        if value.is_finite() { Ok(Self(value)) } else { Err(NotFinite(value)) }
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Finite {
    type Error = NotFinite;
    fn try_from(value: f64) -> Result<Self, NotFinite> {
        Self::new(value)
    }
}

impl From<Finite> for f64 {
    fn from(value: Finite) -> Self {
        value.0
    }
}

impl<'de> Deserialize<'de> for Finite {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(f64::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}
