//! Prints the custom resource definitions that `cargo xtask crds` stores in the chart, as one JSON object of file
//! names and contents.

#![forbid(unsafe_code)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::collections::BTreeMap;
use std::error::Error;

/// First line of each file, for readers who want to change it.
const HEADER: &str = "# Made by `cargo xtask crds` from the types in control/api.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let files = control_api::custom_resource_definitions()
        .into_iter()
        .map(file)
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    println!("{}", serde_json::to_string(&files)?);

    Ok(())
}

/// The name and the content of the file of one kind.
fn file(
    mut definition: CustomResourceDefinition,
) -> Result<(String, String), serde_saphyr::ser::Error> {
    let name = format!(
        "{}_{}.yaml",
        definition.spec.group, definition.spec.names.plural
    );
    let labels = definition.metadata.labels.get_or_insert_default();
    labels.insert("app.kubernetes.io/part-of".to_owned(), "liqo".to_owned());
    let yaml = serde_saphyr::to_string(&definition)?;

    Ok((name, format!("{HEADER}{yaml}")))
}
