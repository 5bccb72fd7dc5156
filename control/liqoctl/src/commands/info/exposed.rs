//! Shows the DaemonSets whose pods would be scheduled on virtual nodes. PURE.

use super::boxes::Item;
use crate::daemon_sets::Exposed;
use crate::output::{self, Format};
use anyhow::Result;
use control_api::annotations;
use serde_json::{Value, json};

/// Returns the DaemonSets for `-o` and `--get`.
pub(super) fn value(found: &[Exposed]) -> Value {
    let of = |it: &Exposed| json!({"namespace": it.namespace, "name": it.name, "patch": it.patch});
    found.iter().map(of).collect()
}

/// Returns the DaemonSets for boxes, those with the same patch together.
///
/// # Errors
///
/// Returns an error if a patch cannot be written as YAML.
pub(super) fn items(found: &[Exposed]) -> Result<Vec<Item>> {
    let mut items = vec![
        Item::Line("The pods of these DaemonSets would be scheduled on virtual nodes.".to_owned()),
        Item::Line(
            "`liqoctl install --patch-daemonsets` applies the patch, which restarts".to_owned(),
        ),
        Item::Line(
            "the pods on all nodes. The annotation that permits virtual nodes is".to_owned(),
        ),
        Item::Line(format!("{}=true.", annotations::ALLOW_VIRTUAL_NODES)),
    ];
    let mut rest: Vec<&Exposed> = found.iter().collect();
    while let Some(first) = rest.first().copied() {
        let (same, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|it| it.patch == first.patch);
        let mut group: Vec<Item> = same.iter().map(|it| Item::Line(it.place())).collect();
        let patch = output::text(Format::Yaml, &first.patch)?;
        let lines = patch.lines().map(|line| Item::Line(line.to_owned()));
        group.push(Item::section("Patch", lines.collect()));
        items.push(Item::section("DaemonSets", group));
        rest = others;
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::info::boxes::draw;

    #[test]
    fn daemon_sets_with_the_same_patch_are_shown_together() {
        let exposed =
            |name: &str, key: &str| Exposed::new("logging", name, json!({"spec": {key: 1}}));
        let found = [
            exposed("a", "one"),
            exposed("b", "two"),
            exposed("c", "one"),
        ];

        let text = draw("DaemonSets", &items(&found).unwrap());

        let lines: Vec<&str> = text
            .lines()
            .map(|line| line.trim_matches(['|', ' ']))
            .collect();
        let at = |text: &str| lines.iter().position(|it| *it == text).unwrap();
        assert!(
            at("logging/a") < at("logging/c") && at("logging/c") < at("one: 1"),
            "{text}"
        );
        assert!(
            at("one: 1") < at("logging/b") && at("logging/b") < at("two: 1"),
            "{text}"
        );
        assert!(text.contains("liqoctl install --patch-daemonsets"));
        assert_eq!(value(&found)[1]["patch"], json!({"spec": {"two": 1}}));
    }
}
