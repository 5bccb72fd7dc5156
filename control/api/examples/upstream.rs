//! Prints upstream's definitions of the kinds that this crate defines, as `cargo xtask crds --upstream FOLDER`
//! stores them in `src/tests/upstream.json`: the `spec` of each definition by kind, without descriptions.

#![forbid(unsafe_code)]

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("name the folder of upstream's definitions")?;
    let kinds: BTreeSet<String> = control_api::custom_resource_definitions()
        .into_iter()
        .map(|definition| definition.spec.names.kind)
        .collect();

    let mut specs = Map::new();
    for entry in fs::read_dir(folder)? {
        let text = fs::read_to_string(entry?.path())?;
        let definition: Value = serde_saphyr::from_str(&text)?;
        let mut spec = definition["spec"].clone();
        let kind = spec["names"]["kind"].as_str().unwrap_or_default();
        if let Some(kind) = kinds.get(kind) {
            for version in spec["versions"].as_array_mut().into_iter().flatten() {
                remove_descriptions(&mut version["schema"]["openAPIV3Schema"]);
            }
            specs.insert(kind.clone(), spec);
        }
    }
    println!("{}", Value::Object(specs));

    Ok(())
}

/// Removes `description` from a schema and from its parts, but no property of that name.
fn remove_descriptions(schema: &mut Value) {
    let Value::Object(keywords) = schema else {
        return;
    };
    keywords.remove("description");
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(remove_descriptions);
            }
            ("items" | "additionalProperties", part) => remove_descriptions(part),
            _ => {}
        }
    }
}
