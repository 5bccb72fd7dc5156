//! Provider `milan`, its consumer `rome` with a namespace and a pod there, and clients with the credentials that attackers have.

use crate::authentication::site::{self, Site};
use crate::fixture::{Deadline, LIQO, SOON, chart, until};
use crate::liqoctl::run;
use anyhow::{Context as _, Result};
use control_api::{NamespaceMap, Renew, ShadowPod};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};
use kubernetes_lab::manifest;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;

/// Address of the webhooks of `milan`.
const WEBHOOKS: Ipv4Addr = Ipv4Addr::new(10, 96, 9, 1);

pub(super) struct Scene {
    pub(super) milan: Site,
    /// The control plane of the consumer.
    pub(super) consumer: Client,
    /// The virtual kubelet of the consumer's ResourceSlice.
    pub(super) slice: Client,
    /// The peering user of the consumer.
    pub(super) peering_user: Client,
    /// The peering user of a consumer whose cluster ID is a group of a binding.
    pub(super) peering_user_of_legion: Client,
}

impl Scene {
    /// Peers the clusters as the peering user. Then the consumer's controller manager ends, which would delete replicas
    /// that it has not created.
    pub(super) async fn create() -> Result<Self> {
        let (rome, milan) = tokio::try_join!(
            Site::start("rome", "milan", &[]),
            Site::start_with_webhooks("milan", "rome", WEBHOOKS),
        )?;
        let kinds = ["CustomResourceDefinition"];
        milan
            .control_plane()
            .install(&chart()?, LIQO, &kinds)
            .await?;
        let (path, text) = peering_user(&milan, "rome").await?;
        let remote = format!("--remote-kubeconfig={path}");
        run(
            &rome,
            &["peer", "--networking-disabled", "--cpu=2", &remote],
        )
        .await?;
        // One of these namespaces is none that the consumer may have.
        rome.apply(&json!({
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceMap",
            "metadata": {
                "name": "own",
                "namespace": rome.tenant_namespace(),
                "labels": {"liqo.io/replication": "true", "liqo.io/remoteID": "milan"},
            },
            "spec": {"desiredMapping": {"books": "books-rome", "shop": "kube-system"}},
        }))
        .await?;
        let slice = credentials(&rome, "resourceslice-milan").await?;
        offload_pod(&milan, &slice).await?;
        manifest::apply(
            &milan.client,
            &manifest::parse(&super::read("objects.yaml")?)?,
            None,
        )
        .await?;
        create_request(&milan).await?;
        let namespace = milan.tenant_namespace();
        let maps: Api<NamespaceMap> = Api::namespaced(milan.client.clone(), &namespace);
        let renews: Api<Renew> = Api::namespaced(milan.client.clone(), &namespace);
        until(Deadline::after(SOON), "the replicas", async || {
            maps.get("own").await?;
            renews.get("controlplane-milan").await?;
            Ok(())
        })
        .await?;
        let (_, legion) = peering_user(&milan, "legion").await?;

        Ok(Self {
            consumer: credentials(&rome, "controlplane-milan").await?,
            slice,
            peering_user: site::client(&text).await?,
            peering_user_of_legion: site::client(&legion).await?,
            milan,
        })
    }
}

/// Generates a peering user, and returns path and text of its kubeconfig.
async fn peering_user(provider: &Site, consumer: &str) -> Result<(String, String)> {
    let flag = format!("--consumer-cluster-id={consumer}");
    let text = run(provider, &["generate", "peering-user", &flag]).await?;
    let (_, kubeconfig) = text.split_once("apiVersion: v1").context("no kubeconfig")?;
    let text = format!("apiVersion: v1{kubeconfig}");
    let folder = provider.control_plane().folder();
    let path = folder.join(format!("peering-user-of-{consumer}.kubeconfig"));
    fs::write(&path, &text)?;

    Ok((path.display().to_string(), text))
}

/// Returns a client with the credentials of an Identity of the consumer.
async fn credentials(consumer: &Site, identity: &str) -> Result<Client> {
    let (namespace, name) = (
        consumer.tenant_namespace(),
        format!("kubeconfig-{identity}"),
    );
    let text = consumer.secret(&namespace, &name, "kubeconfig").await?;

    site::client(&String::from_utf8(text)?).await
}

/// Creates a ShadowPod `web` as the virtual kubelet does, and waits for its pod.
async fn offload_pod(milan: &Site, slice: &Client) -> Result<()> {
    let shadow_pods: Api<ShadowPod> = Api::namespaced(slice.clone(), "books-rome");
    let pods: Api<Pod> = Api::namespaced(milan.client.clone(), "books-rome");
    let object: ShadowPod = serde_json::from_value(json!({
        "metadata": {"name": "web", "labels": {"offloading.liqo.io/origin": "rome"}},
        "spec": {"pod": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}],
        }},
    }))?;
    until(Deadline::after(SOON), "the offloaded pod", async || {
        if shadow_pods.get_opt("web").await?.is_none() {
            shadow_pods.create(&PostParams::default(), &object).await?;
        }
        pods.get("web").await?;
        Ok(())
    })
    .await
}

/// Creates a CertificateSigningRequest of another user.
async fn create_request(provider: &Site) -> Result<()> {
    provider
        .apply(&json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": "of-another"},
            "spec": {
                "signerName": "kubernetes.io/kube-apiserver-client",
                "usages": ["client auth"],
                "request": request()?,
            },
        }))
        .await
}

/// Returns a certificate signing request with a key of its own, as in JSON.
pub(super) fn request() -> Result<String> {
    let mut parameters = CertificateParams::default();
    let name = &mut parameters.distinguished_name;
    name.push(DnType::CommonName, "caesar");
    let request = parameters.serialize_request(&KeyPair::generate()?)?.pem()?;
    let encoded = serde_json::to_value(k8s_openapi::ByteString(request.into_bytes()))?;

    Ok(encoded.as_str().context("no text")?.to_owned())
}
