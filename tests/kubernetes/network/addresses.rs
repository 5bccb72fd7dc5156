//! Tests of IP objects. Each IP object maps one address into the external CIDR.

use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, Web, parallel, remapped};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::wait::{Deadline, until};
use std::net::Ipv4Addr;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_pod_is_reached_by_its_mapped_address,
        a_deleted_ip_object_is_unreachable,
    );
}

async fn a_pod_is_reached_by_its_mapped_address(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("mapped-pod").await?;
    let to = &milan.pods[0];

    let mapped = map(&milan, "pod", &to.address.to_string()).await?;

    let address = remapped(&peering.rome, MILAN, mapped).await?;
    for from in &rome.pods {
        reaches(&rome, &from.name, &format!("{address}:8080"), &to.name).await?;
    }
    Ok(())
}

async fn a_deleted_ip_object_is_unreachable(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("unmapped-pod").await?;
    let to = &milan.pods[0];
    let mapped = map(&milan, "pod", &to.address.to_string()).await?;
    let address = remapped(&peering.rome, MILAN, mapped).await?;
    let target = format!("{address}:8080");
    reaches(&rome, &rome.pods[0].name, &target, &to.name).await?;

    milan.namespace.kubectl(&["delete", "ip", "pod"]).await?;

    until(Deadline::after(SOON), "no response", async || {
        let response = rome.get(&rome.pods[0], &target).await;
        ensure!(response.is_err(), "{response:?}");
        Ok(())
    })
    .await
}

/// Creates an IP object in the namespace of `web`, and returns the mapped address.
pub(crate) async fn map(web: &Web, name: &str, address: &str) -> Result<Ipv4Addr> {
    let object = format!(
        "apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata:
  name: {name}
spec:
  ip: {address}
"
    );
    web.namespace.apply(&object).await?;
    let what = format!("ip/{name}");
    web.namespace
        .wait(&what, "jsonpath={.status.ip}")
        .await
        .context("the IP object has no address")?;

    Ok(web.namespace.get(&what, "{.status.ip}").await?.parse()?)
}

async fn reaches(web: &Web, from: &str, to: &str, expected: &str) -> Result<()> {
    let pod = web.pods.iter().find(|it| it.name == from);
    let pod = pod.context("no such pod")?;
    let what = format!("a response of {expected} from {to}");
    until(Deadline::after(SOON), &what, async || {
        let response = web.get(pod, to).await?;
        ensure!(response.contains(expected), "{response}");
        Ok(())
    })
    .await
}
