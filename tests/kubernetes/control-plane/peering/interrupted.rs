//! Peerings whose managers are killed, and whose provider is away, at each step.

use super::{Peering, api, gone, is_clean, slice};
use crate::authentication::site::Site;
use crate::authentication::tenant;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use anyhow::{Result, ensure};
use control_api::{Identity, ResourceSlice, Tenant, VirtualNode};
use kube::Api;
use kube::api::DeleteParams;
use kubernetes_lab::control_plane::{AuditEvent, Component, Options};
use kubernetes_lab::suite::artifacts;
use serde_json::json;
use std::time::Duration;
use tokio::time::sleep;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_manager_that_is_killed_after_each_of_its_writes_peers_and_parts,
        a_provider_that_is_away_during_each_step_delays_it_only,
    );
}

/// Fewest writes of the managers in a peering and its end: fewer would not be all steps.
const WRITES_MIN: usize = 30;

/// Time between two looks at the audit log.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Time for which the API server of the provider is away. It exceeds all time-outs and backoffs.
const AWAY: Duration = Duration::from_secs(180);

/// User of the managers in their own clusters.
const MANAGER: &str = "system:serviceaccount:liqo:liqo-controller-manager";

/// Each manager lives for one write, or for the few that it sends at the same time.
async fn a_manager_that_is_killed_after_each_of_its_writes_peers_and_parts(
    _: &'static Fixture,
) -> Result<()> {
    let arguments = ["--leader-elect=false"];
    let options = || Ok::<_, anyhow::Error>(Options::new(artifacts()?));
    let rome = Site::start_with("rome", "milan", &arguments, options()?).await?;
    let milan = Site::start_with("milan", "rome", &arguments, options()?).await?;
    let peering = Peering { rome, milan };
    let (rome, milan) = (&peering.rome, &peering.milan);
    // The manager of the consumer writes in both clusters.
    let of_rome = [(rome, MANAGER), (milan, "rome")];
    let of_milan = [(milan, MANAGER)];
    let (mut by_rome, mut by_milan) = (0, 0);
    tokio::select! {
        ended = live_twice(&peering) => ended?,
        error = kill(rome, &of_rome, &mut by_rome) => error?,
        error = kill(milan, &of_milan, &mut by_milan) => error?,
    }
    eprintln!("the managers were killed {by_rome} and {by_milan} times");
    ensure!(by_rome + by_milan >= WRITES_MIN);
    Ok(())
}

/// Peers and parts, twice.
async fn live_twice(peering: &Peering) -> Result<()> {
    for _ in 0..2 {
        peering.peer().await?;
        peering
            .until_resources("Accepted", "ResourceSliceResourcesAccepted")
            .await?;
        let nodes: Api<VirtualNode> = api(&peering.rome);
        until(Deadline::after(SOON), "the VirtualNode", async || {
            Ok(nodes.get("milan").await?)
        })
        .await?;
        peering.unpeer().await?;
        is_clean(&peering.rome).await?;
        is_clean(&peering.milan).await?;
    }

    Ok(())
}

/// Kills the manager of a cluster whenever it has written, and starts it again. Counts the lives.
async fn kill(site: &Site, users: &[(&Site, &str)], count: &mut usize) -> Result<()> {
    loop {
        let mut begins = Vec::new();
        for (cluster, _) in users {
            begins.push(cluster.control_plane().audit_log().end()?);
        }
        while !has_written(users, &begins)? {
            sleep(LOOK_INTERVAL).await;
        }
        site.crash_manager().await?;
        *count += 1;
    }
}

/// Returns whether a user has written since the positions in the audit logs.
fn has_written(users: &[(&Site, &str)], begins: &[u64]) -> Result<bool> {
    for ((cluster, user), begin) in users.iter().zip(begins) {
        let events = cluster.control_plane().audit_log().since(*begin)?;
        if events.iter().any(|it| is_write_of(it, user)) {
            return Ok(true);
        }
    }

    Ok(false)
}

fn is_write_of(event: &AuditEvent, user: &str) -> bool {
    let object = event.object_ref.clone().unwrap_or_default();
    let is_write = ["create", "update", "patch", "delete"].contains(&event.verb.as_str());
    let is_object = object.resource != "events" && !object.resource.ends_with("reviews");
    let is_begin = event.stage == "RequestReceived";
    event.user.username == user && is_begin && is_write && is_object
}

/// A step of a peering, in the order of `liqoctl`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Nonce,
    Tenant,
    Identity,
    Slice,
    Unslice,
    Unidentify,
    End,
}

/// Four peerings share the steps, to save time.
async fn a_provider_that_is_away_during_each_step_delays_it_only(
    _: &'static Fixture,
) -> Result<()> {
    tokio::try_join!(
        live_without(&[Step::Nonce, Step::Unslice]),
        live_without(&[Step::Tenant, Step::Unidentify]),
        live_without(&[Step::Identity, Step::End]),
        live_without(&[Step::Slice]),
    )?;

    Ok(())
}

/// Peers and parts while the provider is away during these steps.
async fn live_without(steps: &[Step]) -> Result<()> {
    let peering = Peering::start().await?;
    let (rome, milan) = (&peering.rome, &peering.milan);
    let away = |step| Absence::begin(milan, steps.contains(&step));

    // The API server may close the connections of requests that it has received before it was away, so the test sends none
    // meanwhile.
    let labels = json!({"liqo.io/nonce": "true"});
    milan
        .create_secret("liqo-nonce", &labels, &json!({}))
        .await?;
    away(Step::Nonce)?.end().await?;
    let namespace = milan.tenant_namespace();
    let nonce = milan.secret(&namespace, "liqo-nonce", "nonce").await?;
    let signature = rome.signature(&nonce).await?;

    let tenant = tenant(&rome.cluster_key().await?, &signature)?;
    milan.apply(&tenant).await?;
    away(Step::Tenant)?.end().await?;
    let parameters = milan.status().await?["authParams"].clone();

    let credentials = rome.credentials(&parameters);
    tokio::try_join!(credentials, away(Step::Identity)?.end())?;

    rome.apply(&slice("milan")).await?;
    away(Step::Slice)?.end().await?;
    peering
        .until_resources("Accepted", "ResourceSliceResourcesAccepted")
        .await?;

    let slices: Api<ResourceSlice> = api(rome);
    let absence = away(Step::Unslice)?;
    slices.delete("milan", &DeleteParams::default()).await?;
    absence.end().await?;
    gone(&slices).await?;
    gone(&api::<VirtualNode>(rome)).await?;
    gone(&api::<ResourceSlice>(milan)).await?;

    let identities: Api<Identity> = api(rome);
    let absence = away(Step::Unidentify)?;
    identities
        .delete("controlplane-milan", &DeleteParams::default())
        .await?;
    absence.end().await?;
    gone(&identities).await?;

    let tenants: Api<Tenant> = api(milan);
    tenants.delete("rome", &DeleteParams::default()).await?;
    away(Step::End)?.end().await?;
    is_clean(rome).await?;
    is_clean(milan).await
}

/// An API server that neither responds nor closes its connections; `None` if it is not away.
struct Absence<'a>(Option<&'a Site>);

impl<'a> Absence<'a> {
    fn begin(site: &'a Site, is_away: bool) -> Result<Self> {
        if is_away {
            site.control_plane().pause_component(Component::ApiServer)?;
        }
        Ok(Self(is_away.then_some(site)))
    }

    async fn end(self) -> Result<()> {
        let Some(site) = self.0 else {
            return Ok(());
        };
        sleep(AWAY).await;
        let control_plane = site.control_plane();
        control_plane.resume_component(Component::ApiServer)?;
        control_plane.until_ready().await?;
        // The API server closes the connections that were idle.
        until(Deadline::after(SOON), "a response", async || {
            site.client.apiserver_version().await.map_err(Into::into)
        })
        .await
        .map(drop)
    }
}
