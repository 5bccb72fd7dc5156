//! Single addresses that a cluster makes reachable: IP objects.

use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, Web, parallel, seen};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::wait::{Deadline, until};
use std::net::Ipv4Addr;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_pod_is_reached_by_its_mapped_address,
        an_ip_object_that_is_deleted_is_reached_no_more,
    );
}

async fn a_pod_is_reached_by_its_mapped_address(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("mapped-pod").await?;
    let to = &milan.pods[0];

    let mapped = map(&milan, "pod", &to.address.to_string()).await?;

    let address = seen(&peering.rome, MILAN, mapped).await?;
    for from in &rome.pods {
        reaches(&rome, &from.name, &format!("{address}:8080"), &to.name).await?;
    }
    Ok(())
}

async fn an_ip_object_that_is_deleted_is_reached_no_more(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peering.web("unmapped-pod").await?;
    let to = &milan.pods[0];
    let mapped = map(&milan, "pod", &to.address.to_string()).await?;
    let address = seen(&peering.rome, MILAN, mapped).await?;
    let target = format!("{address}:8080");
    reaches(&rome, &rome.pods[0].name, &target, &to.name).await?;

    milan.namespace.kubectl(&["delete", "ip", "pod"]).await?;

    until(Deadline::after(SOON), "no answer", async || {
        let answer = rome.ask(&rome.pods[0], &target).await;
        ensure!(answer.is_err(), "{answer:?}");
        Ok(())
    })
    .await
}

/// Makes an IP object in the namespace of `web`, and returns the address it is given.
async fn map(web: &Web, name: &str, address: &str) -> Result<Ipv4Addr> {
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
        .context("no address for the IP object")?;

    Ok(web.namespace.get(&what, "{.status.ip}").await?.parse()?)
}

async fn reaches(web: &Web, from: &str, to: &str, expected: &str) -> Result<()> {
    let pod = web.pods.iter().find(|it| it.name == from);
    let pod = pod.context("one of its pods")?;
    let what = format!("{to} to be answered by {expected}");
    until(Deadline::after(SOON), &what, async || {
        let answer = web.ask(pod, to).await?;
        ensure!(answer.contains(expected), "{answer}");
        Ok(())
    })
    .await
}
