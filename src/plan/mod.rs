//! The plan: from its text to checked structs.
//!
//! Text becomes a tree with positions (`tree`), the tree becomes plain structs (`read`), the structs are checked
//! (`check`). Every finding of all three steps comes out in one go. Nothing here touches a machine, the network, a
//! file or the environment by itself: what it needs of them comes in as closures.

mod check;
mod load;
pub mod model;
mod read;
pub mod schema;
mod secret;
mod set;
mod shape;
mod suggest;
mod syntax;
pub mod text_or;
mod tree;
mod variables;

pub use load::{DEFAULT_RUBRIC, Loaded, MOST_BYTES, Options, OtherText, load, load_bytes, load_rubric};
pub use model::{Entry, Format, Language, Plan, Report, Retries, RubricRef, digest};
pub use read::Unset;
pub use schema::{rubric_schema, schema};

#[cfg(test)]
mod tests;
