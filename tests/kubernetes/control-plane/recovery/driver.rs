//! Random changes of both clusters with random faults. The seed is printed, and set by an environment variable.

use super::Cluster;
use super::comparison::{REMOTE, until_equal};
use super::events;
use super::objects::{PARTS, POPULATION, name, object};
use super::pods::{self, PODS};
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, until};
use crate::upstream::rest::refusal;
use anyhow::{Context as _, Result};
use kubernetes_lab::control_plane::Component;
use serde_json::{Value, json};
use std::env;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;

/// Variable with the seed of a run that is repeated. Threads and networks are not repeatable.
const SEED: &str = "LIQO_LAB_SEED";

const STEPS: usize = 400;

/// One of so many steps is a fault.
const FAULT_EVERY: u64 = 12;

/// Objects of each kind. With two per part, each is changed often.
const OBJECTS: usize = 2 * PARTS;

/// Longest pause of an API server. Its clients give up later.
const PAUSE_MS_MAX: u64 = 3_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn index(&mut self, limit: usize) -> Result<usize> {
        Ok(usize::try_from(self.below(limit.try_into()?))?)
    }

    /// Returns kind and number of an object.
    fn object(&mut self) -> Result<(&'static str, usize)> {
        let (kind, _) = POPULATION[self.index(POPULATION.len())?];
        Ok((kind, self.index(OBJECTS)?))
    }
}

pub(super) async fn random_changes_and_faults_leave_both_clusters_equal(
    _: &'static Fixture,
) -> Result<()> {
    let seed = match env::var(SEED) {
        Ok(seed) => seed.parse().context("the seed is no number")?,
        Err(_) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            u64::from(now.subsec_nanos())
        }
    };
    eprintln!("{SEED}={seed}");
    let mut random = Random(seed);
    let mut cluster = Cluster::start().await?;
    // These are not changed, so that each part has objects.
    for (kind, _) in POPULATION {
        for number in OBJECTS..OBJECTS + PARTS {
            cluster.scene.rome.create(&object(kind, number, 1)).await?;
        }
    }
    pods::create_constant(&cluster.scene.rome).await?;
    for _ in 0..STEPS {
        match random.below(FAULT_EVERY) {
            0 => cluster.fail(&mut random).await?,
            1 => cluster.edit(&mut random).await?,
            2 => cluster.report(&mut random).await?,
            3 => cluster.change_pod(&mut random).await?,
            _ => cluster.change(&mut random).await?,
        }
    }
    cluster.relay.mend();
    until_equal(&cluster.scene).await?;

    events::until_reported(&cluster.scene, OBJECTS).await?;
    events::are_of_existing_objects(&cluster.scene, OBJECTS + PARTS).await
}

impl Cluster {
    /// Creates, changes, deletes or replaces an object of the consumer.
    async fn change(&self, random: &mut Random) -> Result<()> {
        let rest = &self.scene.rome;
        let (kind, number) = random.object()?;
        let (action, value) = (random.below(4), random.below(1_000));
        until(Deadline::after(SOON), "a change", async || {
            if action < 2 {
                rest.delete(kind, "shop", &name(number)).await?;
            }
            if action > 0 {
                rest.apply(&object(kind, number, value), "user").await?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes or changes a reflected object at the provider. A request that fails changes nothing.
    async fn edit(&self, random: &mut Random) -> Result<()> {
        let rest = &self.scene.milan;
        let (kind, number) = random.object()?;
        let kind = match kind {
            "EndpointSlice" => "ShadowEndpointSlice",
            _ => kind,
        };
        let is_deletion = random.below(2) == 0;
        until(Deadline::after(SOON), "an edit", async || {
            let Some(mut object) = rest.get_opt(kind, REMOTE, &name(number)).await? else {
                return Ok(());
            };
            let edited = match is_deletion {
                true => rest.delete_object(&object).await,
                false => {
                    let (path, value) = edited(kind);
                    *object.pointer_mut(path).context("no such field")? = value;
                    rest.update(&object).await.map(drop)
                }
            };
            match edited {
                Err(error) if matches!(refusal(&error), Some(404 | 409)) => Ok(()),
                edited => edited,
            }
        })
        .await
    }

    /// Creates or deletes a pod, or deletes the Secret with its tokens at the provider.
    async fn change_pod(&self, random: &mut Random) -> Result<()> {
        let (rome, milan) = (&self.scene.rome, &self.scene.milan);
        let number = random.index(PODS)?;
        let pod = pods::name(number);
        match random.below(4) {
            0 => pods::delete(rome, ("Pod", "shop", &pod)).await,
            1 => pods::delete(milan, ("Secret", REMOTE, &pods::secret_name(&pod))).await,
            _ => pods::create(rome, number).await,
        }
    }

    /// Reports an Event about an object of the provider, or about one that does not exist.
    async fn report(&self, random: &mut Random) -> Result<()> {
        let kind = events::KINDS[random.index(events::KINDS.len())?];
        let name = match kind {
            "Pod" => pods::name(random.index(PODS)?),
            _ => name(random.index(OBJECTS)?),
        };
        let count = 1 + random.below(100);

        events::report(&self.scene.milan, (kind, &name), count).await
    }

    async fn fail(&mut self, random: &mut Random) -> Result<()> {
        let sites = [&self.scene.peering.rome, &self.scene.peering.milan];
        let site = sites[random.index(sites.len())?];
        match random.below(8) {
            0 | 1 => self.relay.cut(),
            2 | 3 => self.relay.mend(),
            4 => pause(site, Duration::from_millis(random.below(PAUSE_MS_MAX))).await?,
            5 => site.control_plane().restart_api_server().await?,
            6 => site.crash_manager().await?,
            _ => self.scene.kubelet.crash().await?,
        }

        Ok(())
    }
}

/// Suspends the API server.
async fn pause(site: &Site, time: Duration) -> Result<()> {
    let control_plane = site.control_plane();
    control_plane.pause_component(Component::ApiServer)?;
    sleep(time).await;
    control_plane.resume_component(Component::ApiServer)
}

/// Returns a field that is reflected, and another value of it.
fn edited(kind: &str) -> (&'static str, Value) {
    match kind {
        "ConfigMap" => ("/data/key", json!("edited")),
        "Secret" => ("/data/key", json!("ZWRpdGVk")),
        "Ingress" => ("/spec/rules/0/host", json!("edited.example")),
        "Service" => ("/spec/ports/0/port", json!(65_000)),
        "Widget" => ("/spec/color", json!("edited")),
        _ => ("/spec/template/ports/0/port", json!(65_000)),
    }
}
