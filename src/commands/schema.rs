//! `schema`: JSON Schemas for editors and other programs.

use crate::{
    cli::{SchemaArgs, SchemaOf},
    commands::{self, print},
    error::Exit,
    plan, score,
};

/// Prints a JSON Schema.
///
/// # Errors
/// When stdout cannot take it.
pub fn schema(args: &SchemaArgs) -> commands::Result {
    let schema = match args.of {
        SchemaOf::Plan => plan::schema(),
        SchemaOf::Scorecard => score::scorecard_schema(),
        SchemaOf::Rubric => plan::rubric_schema(),
    };
    print(&format!("{schema:#}\n"))?;
    Ok(Exit::OK)
}
