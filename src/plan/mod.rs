//! The plan: from its text to checked structs.
//!
//! Text becomes a tree with positions, the tree becomes plain structs, the structs are checked. Every finding of all
//! three steps comes out in one go. Nothing here touches a machine, the network or the environment by itself.

pub mod model;
pub mod text_or;

pub use model::{Entry, Format, Language, Plan, Report, Retries, RubricRef, digest};
