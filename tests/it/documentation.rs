//! Tests that the examples in the documentation work.

use crate::fixture::ROME;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tests::lab::Lab;
use tests::lab::spec::Spec;

/// Milan's remapped pod CIDR in rome, according to `docs/file-mode.md`.
const CHOSEN: &str = "10.0.0.0/16";

#[test]
fn the_fabric_file_of_the_documentation_can_be_planned_and_checked() {
    let lab = Lab::build(Spec::new()).unwrap();
    let gateway = &lab.binaries().gateway;
    let file = lab.identity().run_dir().join("fabric.yaml");
    fs::write(&file, example()).unwrap();

    succeed(Command::new(gateway).arg("plan").arg(&file));

    succeed(Command::new(gateway).arg("check").arg(&file));
    let agent = &lab.binaries().route_agent;
    let node = format!("{ROME}-1");
    succeed(
        Command::new(agent)
            .arg("check")
            .arg(&file)
            .args(["--node", &node]),
    );
    let planned = fs::read_to_string(&file).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&planned).unwrap();
    let seen = documents
        .iter()
        .find(|document| document["kind"] == "Configuration")
        .map(|document| &document["status"]["remote"]["cidr"]["pod"][0]);
    assert_eq!(seen.and_then(Value::as_str), Some(CHOSEN), "{planned}");
    let page = fs::read_to_string(page()).unwrap();
    assert!(page.contains(&format!("here `pod: [{CHOSEN}]`")));
}

/// Returns the only YAML example of `docs/file-mode.md`.
fn example() -> String {
    let page = fs::read_to_string(page()).unwrap();
    let (_, after) = page.split_once("```yaml\n").unwrap();
    let (example, _) = after.split_once("```").unwrap();

    example.to_owned()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/file-mode.md")
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    output
}
