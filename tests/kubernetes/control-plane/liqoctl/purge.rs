//! Tests of `liqoctl uninstall --purge` in a cluster without a release of helm.

use super::execute;
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, serial, until};
use crate::upstream::rest::Rest;
use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_purge_waits_for_a_namespace_that_ends_slowly_and_names_it
    );
}

/// Time that another program needs for its part of the deletion: more than the longest grace period of most pods.
const SLOW: Duration = Duration::from_secs(40);

async fn a_purge_waits_for_a_namespace_that_ends_slowly_and_names_it(
    _: &'static Fixture,
) -> Result<()> {
    let rome = Site::start_unmanaged("rome", "milan", Options::new(artifacts()?)).await?;
    let rest = Rest::new(rome.client.clone(), "kubectl");
    let namespace = rome.tenant_namespace();
    let finalizer = "example.com/slow";
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slow", "namespace": namespace, "finalizers": [finalizer]},
    });
    rest.create(&object).await?;

    let purge = ["uninstall", "--purge", "--skip-confirm"];
    let release = async {
        let key = ("ConfigMap", namespace.as_str(), "slow");
        let is_deleted = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
        rest.until(key, is_deleted).await?;
        sleep(SLOW).await;
        until(Deadline::after(SOON), "the finalizer", async || {
            let mut object = rest.get("ConfigMap", &namespace, "slow").await?;
            object["metadata"]["finalizers"] = json!([]);
            rest.update(&object).await
        })
        .await
    };
    let ((is_success, out, error), _) = tokio::try_join!(execute(&rome, &purge), release)?;
    ensure!(is_success, "{out}{error}");
    let reported = format!("deleting the namespaces: {namespace} still exists");
    ensure!(out.contains(&reported) && out.contains(finalizer), "{out}");
    for name in [&namespace, LIQO] {
        let left = rest.get_opt("Namespace", "", name).await?;
        ensure!(left.is_none(), "{left:?}");
    }
    let crds: Api<CustomResourceDefinition> = Api::all(rome.client.clone());
    let crds = crds.list(&ListParams::default()).await?.items;
    let left = crds.iter().filter(|it| it.spec.group.ends_with("liqo.io"));
    ensure!(left.count() == 0);

    Ok(())
}
