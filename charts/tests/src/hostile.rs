//! The list of hostile requests in the documentation, which is generated from the tables of the test.

use serde_json::Value;
use std::fmt::Write as _;
use std::{env, fs};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");

/// The lines before and after the list.
const START: &str =
    "<!-- hostile requests: written by `LIQO_LAB_UPDATE=1 cargo test -p chart-tests hostile` -->";
const END: &str = "<!-- end of the hostile requests -->";

/// The attackers, and their requests.
const TABLES: [(&str, &str); 3] = [
    (
        "With the credentials of the control plane of consumer `rome`",
        include_str!("../../../tests/kubernetes/control-plane/rights/hostile/consumer.yaml"),
    ),
    (
        "With the credentials of its ResourceSlice `milan`",
        include_str!("../../../tests/kubernetes/control-plane/rights/hostile/slice.yaml"),
    ),
    (
        "As its peering user",
        include_str!("../../../tests/kubernetes/control-plane/rights/hostile/peering-user.yaml"),
    ),
];

const ABSURD: &str =
    include_str!("../../../tests/kubernetes/control-plane/rights/hostile/absurd.yaml");

#[test]
fn the_security_page_lists_every_hostile_request() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(START).expect("the start of the list");
    let (present, after) = rest.split_once(END).expect("the end of the list");
    let list = list();
    if env::var_os("LIQO_LAB_UPDATE").is_some() {
        fs::write(PAGE, format!("{before}{START}{list}{END}{after}")).unwrap();
        return;
    }

    assert_eq!(
        present, list,
        "`LIQO_LAB_UPDATE=1 cargo test -p chart-tests hostile` writes the list"
    );
}

#[test]
fn there_are_at_least_two_hundred_hostile_requests_and_each_has_a_purpose() {
    let requests: Vec<Value> = TABLES.iter().flat_map(|(_, yaml)| parse(yaml)).collect();

    assert!(requests.len() >= 200, "{}", requests.len());
    for request in requests.iter().chain(&parse(ABSURD)) {
        assert!(!text(&request["why"]).is_empty(), "{request}");
    }
}

fn parse(yaml: &str) -> Vec<Value> {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Returns the list as Markdown.
fn list() -> String {
    let mut list = String::from("\n");
    for (attacker, yaml) in TABLES {
        let requests = parse(yaml);
        writeln!(list, "\n{attacker} ({} requests):\n", requests.len()).unwrap();
        list.push_str(
            "| verb | object | namespace | refused by | purpose |\n|---|---|---|---|---|\n",
        );
        for request in &requests {
            let (object, namespace) = place(text(&request["path"]));
            let mut verb = text(&request["verb"]).to_owned();
            if let Some(user) = request["as"]["user"].as_str() {
                write!(verb, ", as `{user}`").unwrap();
            }
            let by = match text(&request["by"]) {
                "" => "RBAC".to_owned(),
                policy => format!("`{policy}`"),
            };
            let why = text(&request["why"]);
            writeln!(list, "| {verb} | `{object}` | {namespace} | {by} | {why} |").unwrap();
        }
    }
    list.push_str("\nObjects that the rights permit, and that are refused for their contents:\n\n");
    list.push_str("| attacker | object | refused by | purpose |\n|---|---|---|---|\n");
    for object in parse(ABSURD) {
        let (collection, _) = place(text(&object["path"]));
        let by = match (&object["code"], text(&object["event"])) {
            (Value::Null, event) => format!("the controller manager, Event `{event}`"),
            (code, _) if *code == 413 => "the API server, 413".to_owned(),
            (code, _) if *code == 403 => format!("`{}`", text(&object["message"])),
            (code, _) => format!("the schema, {code}"),
        };
        let (attacker, why) = (text(&object["by"]).replace('-', " "), text(&object["why"]));
        writeln!(list, "| {attacker} | `{collection}` | {by} | {why} |").unwrap();
    }
    list.push('\n');

    list
}

/// Returns the object of a path, as `resource.group/name/subresource`, and its namespace.
fn place(path: &str) -> (String, String) {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return (path.to_owned(), String::new()),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, rest) = rest.split_first().expect("a resource");
    let group = if group.is_empty() {
        String::new()
    } else {
        format!(".{group}")
    };
    let rest = rest
        .iter()
        .map(|part| format!("/{part}"))
        .collect::<String>();

    (format!("{resource}{group}{rest}"), namespace.to_owned())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
