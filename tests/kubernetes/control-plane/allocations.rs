//! Tests of addresses and CIDRs that were allocated twice, as by two managers that both were the
//! leader for a moment. They run the controller manager itself.

use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::manager::Manager;
use crate::webhooks::server::Server;
use crate::webhooks::{self, Reviewed};
use anyhow::{Context as _, Result, ensure};
use control_api::{IP, Network};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kubernetes_lab::manifest;
use kubernetes_lab::pki::Subject;
use serde_json::json;
use std::time::Duration;
use tokio::time::timeout;

pub(crate) fn add(suite: &mut Suite) {
    // Not concurrent with other tests, because a manager writes the statuses of all IPs and Networks.
    serial!(
        suite,
        every_leader_resolves_double_allocations_alike,
        a_late_write_of_an_earlier_leader_is_undone,
        a_write_that_another_leader_overtakes_ends_in_a_conflict,
    );
}

/// The largest time until the decision.
const DECIDED_MAX: Duration = Duration::from_secs(1);

/// The time limit of a decision, which is measured afterwards.
const DECISION: Duration = Duration::from_secs(20);

/// The address and the CIDR that are allocated twice.
const ADDRESS: &str = "10.70.0.9";
const CIDR: &str = "10.200.0.0/16";

/// The namespace of a manager, with Networks and IPs. Of each kind, `older` was created first.
struct Installation<'a> {
    fixture: &'a Fixture,
    client: Client,
    namespace: &'static str,
}

impl<'a> Installation<'a> {
    async fn create(fixture: &'a Fixture, namespace: &'static str) -> Result<Self> {
        let client = fixture.namespace(namespace).await?;
        let labels = json!({
            "ipam.liqo.io/network-type": "external-cidr",
            "ipam.liqo.io/network-not-remapped": "true",
        });
        let external = json!({
            "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
            "metadata": {"name": "external-cidr", "labels": labels},
            "spec": {"cidr": "10.70.0.0/16", "preAllocated": 1},
        });
        manifest::apply(&client, &[external], Some(namespace)).await?;
        for name in ["older", "newer"] {
            // Creation times are in whole seconds.
            until_next_second().await;
            let objects = [
                json!({
                    "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
                    "metadata": {"name": name}, "spec": {"cidr": CIDR},
                }),
                json!({
                    "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP",
                    "metadata": {"name": name}, "spec": {"ip": "192.0.2.9"},
                }),
            ];
            manifest::apply(&client, &objects, Some(namespace)).await?;
        }

        Ok(Self {
            fixture,
            client,
            namespace,
        })
    }

    fn networks(&self) -> Api<Network> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    fn ips(&self) -> Api<IP> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Writes the address and the CIDR that are allocated twice into the statuses of an IP and a Network.
    async fn allocate_twice(&self, name: &str) -> Result<()> {
        let params = PatchParams::default();
        let address = json!({"status": {"ip": ADDRESS, "cidr": "10.70.0.0/16"}});
        let cidr = json!({"status": {"cidr": CIDR}});
        self.ips()
            .patch_status(name, &params, &Patch::Merge(address))
            .await?;
        self.networks()
            .patch_status(name, &params, &Patch::Merge(cidr))
            .await?;

        Ok(())
    }

    /// Returns the statuses of both IPs and both Networks.
    async fn allocations(&self) -> Result<Allocations> {
        let address = async |name| -> Result<Option<String>> {
            let status = self.ips().get(name).await?.status;
            Ok(status.and_then(|status| status.ip))
        };
        let cidr = async |name| -> Result<Option<String>> {
            let status = self.networks().get(name).await?.status;
            Ok(status.and_then(|status| status.cidr))
        };

        Ok(Allocations {
            addresses: [address("older").await?, address("newer").await?],
            cidrs: [cidr("older").await?, cidr("newer").await?],
        })
    }

    /// Deletes the Networks and the IPs, which managers of other tests would follow.
    async fn delete(&self) -> Result<()> {
        let (delete, list) = (DeleteParams::default(), ListParams::default());
        self.ips().delete_collection(&delete, &list).await?;
        self.networks().delete_collection(&delete, &list).await?;

        Ok(())
    }

    async fn until_decided(&self) -> Result<Allocations> {
        until(Deadline::after(DECISION), "a decision", async || {
            let given = self.allocations().await?;
            given.check()?;
            Ok(given)
        })
        .await
    }

    /// Waits until a manager holds the Lease, and returns the time of its first write.
    async fn until_leads(&self, manager: &Manager) -> Result<Timestamp> {
        until(Deadline::after(SOON), "a leader", async || {
            let first = manager.lease_taken(self.fixture)?;
            first.context("the manager has not taken the Lease")
        })
        .await
    }
}

/// The addresses and the CIDRs of the older and the newer object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Allocations {
    addresses: [Option<String>; 2],
    cidrs: [Option<String>; 2],
}

impl Allocations {
    /// Checks that the older objects keep their CIDR and address, and that the newer ones get others.
    fn check(&self) -> Result<()> {
        for (pair, twice) in [(&self.addresses, ADDRESS), (&self.cidrs, CIDR)] {
            let [older, newer] = pair;
            ensure!(older.as_deref() == Some(twice), "{self:?}");
            ensure!(newer.as_deref().is_some_and(|it| it != twice), "{self:?}");
        }

        Ok(())
    }
}

async fn every_leader_resolves_double_allocations_alike(fixture: &'static Fixture) -> Result<()> {
    let installation = Installation::create(fixture, "given-twice").await?;
    let mut decisions = Vec::new();

    for user in ["given-twice-a", "given-twice-b"] {
        for name in ["newer", "older"] {
            installation.allocate_twice(name).await?;
        }
        let mut manager = Manager::start(fixture, user, installation.namespace)?;
        let leads = installation.until_leads(&manager).await?;
        decisions.push(installation.until_decided().await?);
        let delay = manager.last_status(fixture)?.duration_since(leads);
        eprintln!("{user} has decided after {} ms", delay.as_millis());
        ensure!(delay.unsigned_abs() <= DECIDED_MAX, "{delay:?}");
        manager.stop().await?;
    }

    ensure!(decisions[0] == decisions[1], "{decisions:?}");
    installation.delete().await
}

async fn a_late_write_of_an_earlier_leader_is_undone(fixture: &'static Fixture) -> Result<()> {
    let installation = Installation::create(fixture, "late-write").await?;
    installation.allocate_twice("older").await?;
    let mut leader = Manager::start(fixture, "late-write-leader", installation.namespace)?;
    installation.until_leads(&leader).await?;
    let before = installation.until_decided().await?;
    let mut standby = Manager::start(fixture, "late-write-standby", installation.namespace)?;
    standby.until_watching(fixture).await?;

    installation.allocate_twice("newer").await?;
    let late = Timestamp::now();
    let after = installation.until_decided().await?;
    let delay = leader.last_status(fixture)?.duration_since(late);
    eprintln!("undone after {} ms", delay.as_millis());
    leader.stop().await?;
    installation.until_leads(&standby).await?;
    // The standby's first object shows that it has planned all others.
    let marker = json!({
        "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "IP",
        "metadata": {"name": "marker"}, "spec": {"ip": "192.0.2.10"},
    });
    installation
        .ips()
        .create(&PostParams::default(), &serde_json::from_value(marker)?)
        .await?;
    until(Deadline::after(SOON), "an address", async || {
        let status = installation.ips().get("marker").await?.status;
        status.and_then(|it| it.ip).context("no address")
    })
    .await?;
    standby.stop().await?;

    ensure!(after == before, "{before:?}, then {after:?}");
    ensure!(
        delay.as_secs_f64() <= DECIDED_MAX.as_secs_f64(),
        "{delay:?}"
    );
    let statuses = standby.statuses(fixture)?;
    ensure!(statuses == ["marker"], "{statuses:?}");
    installation.delete().await
}

/// Time for which a webhook holds back the writes of a manager, in which another leader writes.
const HELD: Duration = Duration::from_secs(3);

/// The CIDR that the other leader allocates.
const OVERTAKING: &str = "10.201.0.0/16";

async fn a_write_that_another_leader_overtakes_ends_in_a_conflict(
    fixture: &'static Fixture,
) -> Result<()> {
    let (user, namespace) = ("overtaken", "overtaken-write");
    let installation = Installation::create(fixture, namespace).await?;
    let webhook = Server::start(true, HELD).await?;
    let reviewed = Reviewed {
        user,
        api: ("ipam.liqo.io", "v1alpha1"),
        resource: "networks/status",
        operation: "UPDATE",
    };
    webhooks::register(fixture, namespace, &webhook, &reviewed).await?;
    until_reviewed(fixture, &installation, &webhook, user).await?;
    let calls = webhook.calls();

    let mut manager = Manager::start(fixture, user, namespace)?;
    until(Deadline::after(SOON), "a write", async || {
        ensure!(webhook.calls() > calls, "no call of the webhook");
        Ok(())
    })
    .await?;
    let cidr = json!({"status": {"cidr": OVERTAKING}});
    for name in ["older", "newer", "external-cidr"] {
        let labels = json!({"metadata": {"labels": {"overtaken": "true"}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(labels));
        installation.networks().patch(name, &params, &patch).await?;
    }
    let (params, patch) = (PatchParams::default(), Patch::Merge(cidr));
    installation
        .networks()
        .patch_status("older", &params, &patch)
        .await?;

    until(Deadline::after(SOON), "a conflict", async || {
        let codes = manager.codes(fixture, "older")?;
        ensure!(codes.contains(&409), "{codes:?}");
        Ok(())
    })
    .await?;
    until(Deadline::after(SOON), "the other CIDRs", async || {
        let codes = manager.codes(fixture, "newer")?;
        ensure!(codes.contains(&200), "{codes:?}");
        Ok(())
    })
    .await?;
    manager.stop().await?;
    installation.delete().await
}

/// Waits until the API server calls the webhook for the statuses of Networks.
async fn until_reviewed(
    fixture: &Fixture,
    installation: &Installation<'_>,
    webhook: &Server,
    user: &str,
) -> Result<()> {
    let subject = Subject {
        user: &format!("{user}-probe"),
        group: Some("system:masters"),
    };
    let client = fixture.control_plane.client_as(subject).await?;
    let networks: Api<Network> = Api::namespaced(client, installation.namespace);
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": {"cidr": CIDR}}));
    until(Deadline::after(SOON), "a call of the webhook", async || {
        // A reviewed request takes longer.
        let patched = networks.patch_status("older", &params, &patch);
        drop(timeout(Duration::from_millis(200), patched).await);
        ensure!(webhook.calls() > 0, "no call");
        Ok(())
    })
    .await
}

async fn until_next_second() {
    let now = Timestamp::now();
    let rest = 1_000_000_000 - now.subsec_nanosecond().unsigned_abs();
    tokio::time::sleep(Duration::from_nanos(rest.into())).await;
}
