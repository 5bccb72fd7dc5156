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
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use scene::Scene;

pub(crate) fn add(suite: &mut Suite) {
    serial!(suite, no_hostile_request_succeeds);
}

/// The folder with the tables and the expected rights.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/control-plane/rights/hostile");

/// Longest message about a failure, in characters.
const MESSAGE_LEN_MAX: usize = 600;

/// Number of requests at a time.
const CONCURRENT: usize = 8;

/// Returns the text of a file in [`FOLDER`].
fn read(name: &str) -> Result<String> {
    let path = format!("{FOLDER}/{name}");
    std::fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))
}

/// Reports all failures at once.
async fn no_hostile_request_succeeds(_: &'static Fixture) -> Result<()> {
    let scene = Scene::create().await?;
    let request = scene::request()?;
    let objects = absurd::parse(&read("absurd.yaml")?, &request)?;
    let outcomes = join_all(objects.iter().map(|absurd| absurd.check(&scene))).await;
    let mut failures: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    failures.extend(rules::check(&scene).await.err());
    let mut requests = Vec::new();
    for (client, name) in [
        (&scene.consumer, "consumer.yaml"),
        (&scene.slice, "slice.yaml"),
        (&scene.peering_user, "peering-user.yaml"),
    ] {
        let hostile = table::parse(&read(name)?, &request)?;
        failures.extend(table::check_distinct(&hostile).err());
        let checks = hostile
            .iter()
            .map(|it| it.check(&scene.milan.client, client));
        let outcomes: Vec<_> = stream::iter(checks).buffered(CONCURRENT).collect().await;
        let errors = outcomes.into_iter().filter_map(Result::err);
        failures.extend(errors.map(|error| error.context(name)));
        requests.extend(hostile);
    }
    eprintln!(
        "{} hostile requests, {} absurd objects",
        requests.len(),
        objects.len()
    );

    let failures: Vec<_> = failures.iter().map(shortened).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// Returns a message without the large fields of some requests.
fn shortened(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.chars().take(MESSAGE_LEN_MAX).collect()
}
