//! Certificates that expire soon.

use super::{Peering, api};
use crate::authentication::site::{self, Site, tenant_namespace};
use crate::authentication::user;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use anyhow::{Context as _, Result, ensure};
use control_api::{ResourceSlice, VirtualNode};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::json;
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        credentials_of_four_minutes_are_renewed_without_a_failed_request,
    );
}

/// Lifetime of the certificates. The signer dates them back by 300 s, so two thirds have passed 60 s after the issue.
const LIFETIME: Duration = Duration::from_secs(240);

/// Number of renewals to wait for.
const RENEWALS: usize = 4;

/// Time between two looks at the Secret.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The consumer has an RSA key. Its manager obtains the new credentials, and the user of the Secrets reads them again.
async fn credentials_of_four_minutes_are_renewed_without_a_failed_request(
    _: &'static Fixture,
) -> Result<()> {
    let rome = Site::start("rome", "milan", &["--tls-compatibility-mode"]).await?;
    let milan = Site::start_signing("milan", "rome", &[], LIFETIME).await?;
    let peering = Peering { rome, milan };
    peering.peer().await?;
    peering
        .until_resources("Accepted", "ResourceSliceResourcesAccepted")
        .await?;
    let nodes: Api<VirtualNode> = api(&peering.rome);
    let node = until(Deadline::after(SOON), "the VirtualNode", async || {
        Ok(json!(nodes.get("milan").await?))
    })
    .await?;
    let of_slice = node["spec"]["kubeconfigSecretRef"]["name"].as_str();
    let of_slice = of_slice.context("no Secret")?.to_owned();

    let namespace = tenant_namespace("rome");
    let control_plane = load(&peering.rome, "kubeconfig-controlplane-milan", async |it| {
        let slices: Api<ResourceSlice> = Api::namespaced(it, &namespace);
        slices.list(&ListParams::default()).await?;
        Ok(())
    });
    let slice = load(&peering.rome, &of_slice, async |it| {
        let (name, _) = user(&it).await?;
        ensure!(name == "milan-a8a4c692b93b", "{name}");
        Ok(())
    });
    let (of_control_plane, of_slice) = tokio::try_join!(control_plane, slice)?;
    eprintln!("{of_control_plane} and {of_slice} requests during {RENEWALS} renewals");

    let requests: Api<CertificateSigningRequest> = Api::all(peering.milan.client.clone());
    let left = requests.list(&ListParams::default()).await?.items.len();
    ensure!(left <= 2, "{left} requests are left");
    Ok(())
}

/// Sends requests with the credentials of a Secret until they have been renewed. Returns the number of requests.
async fn load(
    rome: &Site,
    name: &str,
    request: impl AsyncFn(Client) -> Result<()>,
) -> Result<usize> {
    let secrets: Api<Secret> = Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
    let read = async || -> Result<String> {
        let secret = secrets.get(name).await?;
        let data = secret.data.unwrap_or_default();
        let text = data.get("kubeconfig").context("no kubeconfig")?;
        Ok(String::from_utf8(text.0.clone())?)
    };
    let mut text = read().await?;
    let mut client = site::client(&text).await?;
    let deadline = Instant::now() + LIFETIME * 2;
    let (mut renewals, mut requests, mut looked_at) = (0, 0, Instant::now());
    while renewals < RENEWALS {
        ensure!(Instant::now() < deadline, "{renewals} renewals in time");
        let sent = request(client.clone()).await;
        sent.with_context(|| format!("request {requests} with {name} has failed"))?;
        requests += 1;
        if looked_at.elapsed() < LOOK_INTERVAL {
            continue;
        }
        looked_at = Instant::now();
        let current = read().await?;
        if current != text {
            client = site::client(&current).await?;
            (text, renewals) = (current, renewals + 1);
        }
    }

    Ok(requests)
}
