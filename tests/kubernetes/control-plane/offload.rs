//! Tests of `liqoctl offload` and `liqoctl unoffload` with a manager and without a peer.

use crate::authentication::site::Site;
use crate::fixture::{Fixture, Suite, serial};
use crate::liqoctl::execute;
use anyhow::{Context as _, Result, ensure};
use control_api::NamespaceOffloading;
use kube::{Api, ResourceExt as _};
use serde_json::json;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_namespace_is_offloaded_without_a_peer_with_a_warning,
    );
}

async fn a_namespace_is_offloaded_without_a_peer_with_a_warning(_: &'static Fixture) -> Result<()> {
    let rome = Site::start("rome", "milan", &[]).await?;
    rome.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}))
        .await?;
    let offload = ["offload", "namespace", "demo"];

    let (is_success, out, error) = execute(&rome, &offload).await?;
    ensure!(is_success, "{error}");
    ensure!(out.contains("Offloading of namespace \"demo\" correctly enabled"));
    ensure!(!out.contains("Offloading completed"), "{out}");
    let warning =
        "WARN: namespace demo is offloaded to no cluster, because there is no virtual node";
    ensure!(error.contains(warning), "{error}");

    let version = version(&rome).await?.context("there is no object")?;
    let (is_success, _, error) = execute(&rome, &offload).await?;
    ensure!(is_success, "{error}");
    let same_name = ["--namespace-mapping-strategy", "EnforceSameName"];
    let words = [&offload[..], &same_name].concat();
    let (is_success, _, error) = execute(&rome, &words).await?;
    ensure!(
        !is_success && error.contains("cannot be changed"),
        "{error}"
    );
    let (is_success, _, error) = execute(&rome, &["offload", "namespace", "liqo"]).await?;
    ensure!(
        !is_success && error.contains("Liqo is installed in it"),
        "{error}"
    );
    ensure!(
        self::version(&rome).await? == Some(version),
        "it was written again"
    );

    let unoffload = ["unoffload", "namespace", "demo"];
    let (is_success, out, error) = execute(&rome, &unoffload).await?;
    ensure!(
        is_success && out.contains("Unoffloading completed"),
        "{out}{error}"
    );
    ensure!(self::version(&rome).await?.is_none());
    let (is_success, out, error) = execute(&rome, &unoffload).await?;
    ensure!(
        is_success && out.contains("already disabled"),
        "{out}{error}"
    );
    let words = [&offload[..], &same_name].concat();
    let (is_success, _, error) = execute(&rome, &words).await?;
    ensure!(is_success, "{error}");
    Ok(())
}

/// Returns the resource version of the object of namespace `demo`.
async fn version(rome: &Site) -> Result<Option<String>> {
    let api: Api<NamespaceOffloading> = Api::namespaced(rome.client.clone(), "demo");
    let object = api.get_opt("offloading").await?;
    Ok(object.and_then(|it| it.resource_version()))
}
