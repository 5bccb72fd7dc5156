//! Hostile requests with really issued credentials, to a provider whose controller manager runs.
//!
//! Each request is first sent by the administrator, as a dry run, and must succeed. Then the attacker sends it, and it must
//! be refused by RBAC or by the named policy. `docs/security.md` lists the requests.

mod absurd;
mod rules;
mod scene;
mod table;

use crate::fixture::{Fixture, Suite, serial};
use anyhow::{Context as _, Result, ensure};
use scene::Scene;

pub(crate) fn add(suite: &mut Suite) {
    serial!(suite, no_hostile_request_succeeds);
}

/// The folder with the tables and the expected rights.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane/rights/hostile");

/// Returns the text of a file in [`FOLDER`].
fn read(name: &str) -> Result<String> {
    let path = format!("{FOLDER}/{name}");
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))
}

/// Reports all failures at once.
async fn no_hostile_request_succeeds(_: &'static Fixture) -> Result<()> {
    let scene = Scene::create().await?;
    let request = scene::request()?;
    let mut failures = Vec::new();
    let objects = absurd::parse(&read("absurd.yaml")?, &request)?;
    for absurd in &objects {
        failures.extend(absurd.check(&scene).await.err());
    }
    failures.extend(rules::check(&scene).await.err());
    let mut requests = Vec::new();
    for (client, name) in [
        (&scene.consumer, "consumer.yaml"),
        (&scene.slice, "slice.yaml"),
        (&scene.peering_user, "peering-user.yaml"),
    ] {
        let hostile = table::parse(&read(name)?, &request)?;
        table::check_distinct(hostile.iter())?;
        for hostile in &hostile {
            let outcome = hostile.check(&scene.milan.client, client).await;
            failures.extend(outcome.err().map(|it| it.context(name)));
        }
        requests.extend(hostile);
    }
    eprintln!(
        "{} hostile requests, {} absurd objects",
        requests.len(),
        objects.len()
    );

    let failures: Vec<_> = failures.iter().map(|it| format!("{it:#}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
