//! Tests of a peering whose clusters exchange files: no command has the kubeconfigs of both clusters.

use crate::authentication::site::Site;
use crate::fixture::{Fixture, Suite, serial};
use crate::liqoctl::{execute, run};
use crate::manifests::kubectl;
use anyhow::{Context as _, Result, ensure};
use control_api::{Tenant, VirtualNode};
use std::fs;

pub(crate) fn add(suite: &mut Suite) {
    serial!(suite, clusters_peer_by_files_and_a_wrong_nonce_is_reported);
}

async fn clusters_peer_by_files_and_a_wrong_nonce_is_reported(_: &'static Fixture) -> Result<()> {
    let (rome, milan) = tokio::try_join!(
        Site::start("rome", "milan", &[]),
        Site::start("milan", "rome", &[]),
    )?;
    let of_rome = ["--remote-cluster-id", "rome"];
    let of_milan = ["--remote-cluster-id", "milan"];
    let (is_success, _, error) =
        execute(&milan, &[&["get", "nonce"][..], &of_rome].concat()).await?;
    ensure!(
        !is_success && error.contains("run `liqoctl create nonce"),
        "{error}"
    );
    for _ in 0..2 {
        run(&milan, &[&["create", "nonce"][..], &of_rome].concat()).await?;
    }
    let nonce = run(&milan, &[&["get", "nonce"][..], &of_rome].concat()).await?;
    ensure!(nonce.len() == 88, "{nonce:?}");

    // A Tenant with the signature of another nonce gets no credentials, and the Event names the field.
    let generate = |nonce: &str| {
        let words = ["generate", "tenant", "--nonce"].map(str::to_owned);
        let mut words = words.to_vec();
        words.push(nonce.to_owned());
        words.extend(of_milan.map(str::to_owned));
        words
    };
    for nonce in ["another", &nonce] {
        let words = generate(nonce);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let tenant = run(&rome, &words).await?;
        apply(&milan, "tenant", &tenant).await?;
        if nonce == "another" {
            milan.until_event("SignatureVerificationFailed").await?;
            let words = [&["generate", "identity"][..], &of_rome].concat();
            let (is_success, out, error) = execute(&milan, &words).await?;
            ensure!(!is_success && out.is_empty(), "{out}");
            ensure!(error.contains("Events name the reason"), "{error}");
            ensure!(milan.names::<Tenant>("").await? == ["rome"]);
        }
    }
    milan.status().await?;
    let identity = run(&milan, &[&["generate", "identity"][..], &of_rome].concat()).await?;
    apply(&rome, "identity", &identity).await?;
    let words = [
        &["create", "resourceslice", "more", "--cpu=3"][..],
        &of_milan,
    ]
    .concat();
    let out = run(&rome, &words).await?;
    ensure!(out.contains("ResourceSlice resources: Accepted"), "{out}");
    let node = [
        "create",
        "virtualnode",
        "other",
        "--resource-slice-name=more",
    ];
    run(&rome, &[&node[..], &of_milan].concat()).await?;
    let names = rome.names::<VirtualNode>("").await?;
    ensure!(names.contains(&"other".to_owned()), "{names:?}");

    Ok(())
}

/// Applies a file, as a user does who has received it.
async fn apply(site: &Site, name: &str, text: &str) -> Result<()> {
    let path = site.control_plane().folder().join(format!("{name}.yaml"));
    fs::write(&path, text).context("failed to write a manifest")?;
    let namespace = site.tenant_namespace();
    let path = path.to_string_lossy();
    kubectl(site, &["apply", "-n", &namespace, "-f", &path]).await
}
