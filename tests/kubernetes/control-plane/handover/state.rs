//! The provider's objects that virtual kubelets have written, and the writes.

use crate::refusals::scene::Scene;
use crate::upstream::offloading::requests::{of, writes};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// The provider's namespace of `shop`.
pub(super) const REMOTE: &str = "shop-rome";

/// The users of both virtual kubelets at the provider: SHA-256 of `rome` begins with these digits.
const USERS: [&str; 2] = ["milan-a8a4c692b93b", "milan-2-a8a4c692b93b"];

/// Kinds of objects that virtual kubelets write, and their resources.
const KINDS: [(&str, &str); 4] = [
    ("ConfigMap", "configmaps"),
    ("Secret", "secrets"),
    ("Service", "services"),
    ("ShadowPod", "shadowpods"),
];

#[derive(Debug)]
pub(super) struct State {
    /// UID and resourceVersion by kind and name. Nodes report statuses of pods, so only the UIDs of pods count.
    objects: BTreeMap<String, [Value; 2]>,
    /// The writes of each user, as `VERB RESOURCE NAME`.
    writes: [Vec<String>; 2],
}

impl State {
    pub(super) async fn of(scene: &Scene) -> Result<Self> {
        let mut objects = BTreeMap::new();
        for kind in KINDS.map(|(kind, _)| kind).into_iter().chain(["Pod"]) {
            let label = "offloading.liqo.io/origin";
            for object in scene.milan.list(kind, REMOTE, label).await? {
                let metadata = &object["metadata"];
                let name = metadata["name"].as_str().context("no name")?;
                let version = match kind {
                    "Pod" => Value::Null,
                    _ => metadata["resourceVersion"].clone(),
                };
                let fields = [metadata["uid"].clone(), version];
                objects.insert(format!("{kind} {name}"), fields);
            }
        }

        Ok(Self {
            objects,
            writes: written(scene)?,
        })
    }

    /// Returns the writes of each user since then, in the order of the alphabet.
    pub(super) fn writes_since(&self, scene: &Scene) -> Result<[Vec<String>; 2]> {
        let [first, second] = written(scene)?;
        let new = |all: Vec<String>, known: &[String]| {
            let mut new = all.get(known.len()..).unwrap_or_default().to_vec();
            new.sort();
            new
        };

        Ok([new(first, &self.writes[0]), new(second, &self.writes[1])])
    }

    /// Checks that the ConfigMaps `new` and `last` were created, `old` was changed, `deleted` was deleted, and that each other object
    /// is as `before`.
    pub(super) fn has_only_changes(&self, before: &Self) -> Result<()> {
        let [mut expected, mut found] = [before.objects.clone(), self.objects.clone()];
        for name in ["ConfigMap new", "ConfigMap last"] {
            ensure!(found.remove(name).is_some(), "{name} is missing");
        }
        ensure!(expected.remove("ConfigMap deleted").is_some());
        let changed = [&mut expected, &mut found].map(|it| it.remove("ConfigMap old"));
        let [Some([uid, _]), Some([changed_uid, _])] = &changed else {
            bail!("the ConfigMap old is {changed:?}");
        };
        ensure!(uid == changed_uid, "the ConfigMap old was replaced");
        ensure!(found == expected, "{found:?}, not {expected:?}");

        Ok(())
    }

    /// Checks that each object is as `before`.
    pub(super) fn is_unchanged(&self, before: &Self) -> Result<()> {
        let [found, expected] = [&self.objects, &before.objects];
        ensure!(found == expected, "{found:?}, not {expected:?}");

        Ok(())
    }
}

/// Returns the writes of both users that the provider has stored.
fn written(scene: &Scene) -> Result<[Vec<String>; 2]> {
    let of_user = |user: &str| -> Result<Vec<String>> {
        let all = writes(&scene.peering.milan, user)?;
        let written = of(&all, &KINDS.map(|(_, resource)| resource));
        Ok(written.into_iter().map(str::to_owned).collect())
    };

    Ok([of_user(USERS[0])?, of_user(USERS[1])?])
}
