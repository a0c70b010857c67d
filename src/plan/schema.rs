//! JSON Schemas of plans and rubrics, for editors.
//!
//! Draft 07, because that is what editors read. They say what the reader says, as far as a schema can: an empty key is
//! an error, variables may stand for numbers, `x-` keys are free.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::model::Plan;
use crate::score::rubric::Rubric;

/// The schema of a plan.
pub fn schema() -> Value {
    of::<Plan>()
}

/// The schema of a rubric in a file of its own.
pub fn rubric_schema() -> Value {
    of::<Rubric>()
}

fn of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft07().into_generator().into_root_schema_for::<T>().to_value();
    adapt(&mut schema);
    schema["patternProperties"] = json!({ "^x-": true });
    schema
}

fn adapt(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(adapt),
        Value::Object(object) => {
            // Defaults are shown where they are no description of the type; they are data, not schemas.
            object.iter_mut().filter(|(key, _)| *key != "default").for_each(|(_, inner)| adapt(inner));
            drop_null(object);
            admit_variables(object);
        }
        _ => {}
    }
}

/// What may be left out may not be empty: `inventory:` says nothing.
fn drop_null(object: &mut Map<String, Value>) {
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            object.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| *choice != json!({ "type": "null" }));
        if let [one] = choices.as_slice() {
            let one = one.clone();
            // Draft 07 ignores whatever stands beside a `$ref`; `allOf` keeps the description.
            object.remove("anyOf");
            object.insert("allOf".to_owned(), json!([one]));
        }
    }
}

/// A number or a truth value may come from a variable; so may one of several words.
fn admit_variables(object: &mut Map<String, Value>) {
    let is_typed = object.get("type").is_some_and(|t| t == "integer" || t == "number" || t == "boolean");
    if !is_typed {
        return;
    }
    let mut outer = Map::new();
    for key in ["description", "default"] {
        if let Some(value) = object.remove(key) {
            outer.insert(key.to_owned(), value);
        }
    }
    let plain = Value::Object(std::mem::take(object));
    outer.insert("anyOf".to_owned(), json!([plain, { "type": "string", "pattern": r"^\$\{.*\}$" }]));
    *object = outer;
}
