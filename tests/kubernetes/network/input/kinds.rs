//! Objects of each kind, edited by hand to nonsense.

mod edit;

use super::Witness;
use super::ways::told_by as told_of;
use crate::fixture::{LIQO, Peering, SOON, Suite, Web, connection, serial};
use crate::foreign::{Foreign, Tenant};
use anyhow::{Context as _, Result, ensure};
use control_api::connection::reason;
use edit::Fate::{Refused, Told};
use edit::{edit, ready, replace, told, told_by};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use tests::traffic::ping;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        nonsense_in_a_server_is_told_and_mended,
        nonsense_in_a_client_is_told,
        nonsense_in_a_configuration_is_told,
        nonsense_in_keys_is_told_and_mended,
        what_nobody_may_change_is_refused_or_put_back,
        a_name_that_is_too_long_is_told,
    );
}

async fn nonsense_in_a_server_is_told_and_mended(peering: &'static Peering) -> Result<()> {
    let witness = Witness::start(peering, "wrong-server").await?;
    let right = json!({"endpoint": {"serviceType": "NodePort", "port": 51950}, "mtu": 1340});
    let peer = Foreign::client(&peering.milan, "wrong-server", &right["endpoint"]).await?;
    peer.connected().await?;

    let endpoint = |field: &str, value: Value| json!({"spec": {"endpoint": {field: value}}});
    let spec = |field: &str, value: Value| json!({"spec": {field: value}});
    for (patch, fate) in [
        (
            endpoint("port", json!(70_000)),
            Told("InvalidEndpoint", "from 1 to 65535"),
        ),
        (
            endpoint("port", json!(-1)),
            Told("InvalidEndpoint", "from 1 to 65535"),
        ),
        (endpoint("port", json!("51840")), Refused("integer")),
        (
            endpoint("serviceType", json!("ExternalName")),
            Told("InvalidEndpoint", "use LoadBalancer, NodePort"),
        ),
        (
            endpoint("serviceType", json!("Nonsense")),
            Refused("Unsupported value"),
        ),
        // Only the API server knows its range.
        (
            endpoint("nodePort", json!(80)),
            Told("ServiceRefused", "valid ports"),
        ),
        (
            spec("serviceAnnotations", json!({"not a key!": "x"})),
            Told("ServiceRefused", "not a key!"),
        ),
        (
            spec("secretRef", json!({"name": "no-such-secret"})),
            Told("KeysMissing", "no-such-secret"),
        ),
        (spec("mtu", json!("large")), Refused("integer")),
        (spec("mtu", json!(20_000)), Told("InvalidField", "spec.mtu")),
        (spec("mtu", json!(-5)), Told("InvalidField", "spec.mtu")),
    ] {
        edit(&peer.tenant, "gatewayserver", &patch, &fate).await?;
        // All of it is as it was: what an edit added is gone.
        replace(&peer.tenant, "GatewayServer", &right).await?;
        ready(&peer.tenant, "gatewayserver").await?;
    }
    // What it is called at may be another port now.
    let (addresses, port) = peer.tenant.endpoint().await?;
    peer.call(std::net::SocketAddrV4::new(addresses[0].parse()?, port))
        .await?;
    peer.connected().await?;

    peer.tenant.delete().await?;
    witness.finish(peering).await
}

async fn nonsense_in_a_client_is_told(peering: &'static Peering) -> Result<()> {
    let witness = Witness::start(peering, "wrong-client").await?;
    let tenant = Tenant::create(&peering.rome, "wrong-client").await?;
    let right = json!({
        "endpoint": {"addresses": ["172.18.253.254"], "port": 51840, "protocol": "UDP"},
        "mtu": 1340,
    });
    tenant
        .configure(&["10.244.0.0/16"], &["10.70.0.0/16"])
        .await?;
    tenant.publish(&[7; 32]).await?;
    tenant.write("GatewayClient", &right).await?;
    ready(&tenant, "gatewayclient").await?;

    let endpoint = |field: &str, value: Value| json!({"spec": {"endpoint": {field: value}}});
    for (patch, fate) in [
        (
            endpoint("addresses", json!([])),
            Told("InvalidEndpoint", "status.endpoint"),
        ),
        (
            endpoint("addresses", json!([""])),
            Told("InvalidEndpoint", "status.endpoint"),
        ),
        (
            endpoint("port", json!(0)),
            Told("InvalidEndpoint", "status.endpoint"),
        ),
        (
            endpoint("protocol", json!("SCTP")),
            Refused("Unsupported value"),
        ),
        (
            endpoint("protocol", json!("TCP")),
            Told("InvalidField", "UDP only"),
        ),
        (
            endpoint("addresses", json!(["not a host!"])),
            Told("InvalidField", "not a host!"),
        ),
        (
            json!({"spec": {"mtu": 100}}),
            Told("InvalidField", "spec.mtu"),
        ),
    ] {
        edit(&tenant, "gatewayclient", &patch, &fate).await?;
        replace(&tenant, "GatewayClient", &right).await?;
        ready(&tenant, "gatewayclient").await?;
    }

    tenant.delete().await?;
    witness.finish(peering).await
}

async fn nonsense_in_a_configuration_is_told(peering: &'static Peering) -> Result<()> {
    let witness = Witness::start(peering, "wrong-cidrs").await?;
    let tenant = Tenant::create(&peering.rome, "wrong-cidrs").await?;
    let (pods, external) = (["10.244.0.0/16"], ["10.70.0.0/16"]);
    tenant.configure(&pods, &external).await?;
    tenant.configured().await?;

    let pod = |cidrs: Value| json!({"spec": {"remote": {"cidr": {"pod": cidrs}}}});
    for (patch, fate) in [
        (pod(json!(["nonsense"])), Refused("pod")),
        (pod(json!(["10.244.0.0/33"])), Refused("pod")),
        (pod(json!([])), Told("InvalidCIDR", "list the pod CIDRs")),
        (
            pod(json!(["10.244.0.0/16", "10.244.1.0/24"])),
            Told("InvalidCIDR", "overlaps"),
        ),
        (pod(json!(["127.0.0.0/8"])), Told("InvalidCIDR", "pod[0]")),
        (pod(json!(["0.0.0.0/0"])), Told("InvalidCIDR", "pod[0]")),
        (pod(json!(["fd00::/64"])), Told("InvalidCIDR", "IPv6")),
        (
            json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "it-rome"}}}),
            Told("OwnClusterID", "own id"),
        ),
        (
            json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "it-milan"}}}),
            Told("Duplicate", "liqo-tenant-it-milan/it-milan"),
        ),
        (
            json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "Not_An_Id"}}}),
            Told("InvalidClusterID", "Not_An_Id"),
        ),
    ] {
        edit(&tenant, "configuration", &patch, &fate).await?;
        tenant.configure(&pods, &external).await?;
        tenant.configured().await?;
    }

    tenant.delete().await?;
    witness.finish(peering).await
}

async fn nonsense_in_keys_is_told_and_mended(peering: &'static Peering) -> Result<()> {
    let witness = Witness::start(peering, "wrong-keys").await?;
    let endpoint = json!({"serviceType": "NodePort"});
    let peer = Foreign::client(&peering.milan, "wrong-keys", &endpoint).await?;
    peer.connected().await?;
    let right = peer.upstream.wireguard.key().public();
    let own = peer.tenant.own_key().await?;

    for (key, reason) in [
        (b"nonsense".as_slice(), "InvalidPublicKey"),
        (&own, "KeyConflict"),
    ] {
        peer.tenant.publish(key).await?;
        told(&peer.tenant, "gatewayserver", reason, "PublicKey").await?;
        peer.tenant.publish(&right).await?;
        ready(&peer.tenant, "gatewayserver").await?;
    }
    // What is no key is not served, and so is not connected.
    peer.connected().await?;
    peer.tenant.publish(b"nonsense").await?;
    shows(&peer, "Error").await?;
    told_of(&peering.milan, "wrong-keys", reason::NOT_SERVED).await?;
    peer.tenant.publish(&right).await?;
    peer.connected().await?;
    // A key of somebody else's is like any other key: nobody can know. It only does not fit.
    let web = Web::up(&peering.milan, "wrong-keys-web").await?;
    peer.tenant.publish(&[9; 32]).await?;
    ready(&peer.tenant, "gatewayserver").await?;
    reaches(&peer, &web, false).await?;
    shows(&peer, "Error").await?;
    let words = told_of(&peering.milan, "wrong-keys", reason::KEYS_DIFFER).await?;
    ensure!(words.contains("PublicKey"), "{words}");
    peer.tenant.publish(&right).await?;
    reaches(&peer, &web, true).await?;
    shows(&peer, "Connected").await?;

    // Its own key, too.
    let secret = "secret/gw-wrong-keys";
    let read = "{.data.privateKey}";
    let before = peer.tenant.namespace().get(secret, read).await?;
    let patch = |value: &str| json!({"data": {"privateKey": value}}).to_string();
    let namespace = peer.tenant.namespace();
    namespace
        .kubectl(&[
            "patch",
            secret,
            "--type=merge",
            "-p",
            &patch("bm9uc2Vuc2U="),
        ])
        .await?;
    told(&peer.tenant, "gatewayserver", "InvalidKeys", "32 bytes").await?;
    namespace
        .kubectl(&["patch", secret, "--type=merge", "-p", &patch(&before)])
        .await?;
    ready(&peer.tenant, "gatewayserver").await?;
    reaches(&peer, &web, true).await?;

    peer.tenant.delete().await?;
    witness.finish(peering).await
}

async fn what_nobody_may_change_is_refused_or_put_back(peering: &'static Peering) -> Result<()> {
    let witness = Witness::start(peering, "put-back").await?;
    let endpoint = json!({"serviceType": "NodePort", "port": 51960});
    let peer = Foreign::client(&peering.milan, "put-back", &endpoint).await?;
    peer.connected().await?;
    let tenant = peer.tenant.namespace();
    let liqo = Namespace::existing(&peering.milan, LIQO).await?;
    let node = format!("ip/node-{}", peering.milan.node_specs()?[0].name);
    let network = tenant
        .kubectl(&["get", "networks.ipam.liqo.io", "-o", "name"])
        .await?;
    let network = network.lines().next().context("a Network")?.to_owned();

    for (namespace, what, patch, words) in [
        (
            &liqo,
            &node,
            json!({"spec": {"ip": "192.0.2.1"}}),
            "immutable",
        ),
        (&liqo, &node, json!({"spec": {"ip": "nonsense"}}), "spec.ip"),
        (
            tenant,
            &network,
            json!({"spec": {"cidr": "192.0.2.0/24"}}),
            "immutable",
        ),
    ] {
        let text = patch.to_string();
        let refused = namespace
            .kubectl(&["patch", what, "--type=merge", "-p", &text])
            .await
            .err();
        let error = refused.with_context(|| format!("{what} took {patch}"))?;
        ensure!(format!("{error:#}").contains(words), "{error:#}");
    }

    let service = service(&peer.tenant).await?;
    let foreign = Namespace::existing(&peering.milan, "default").await?;
    let cluster = "foreigncluster/put-back".to_owned();
    let connection = "connection/gw-put-back".to_owned();
    let configuration = "configuration/put-back".to_owned();
    let server = "gatewayserver/put-back".to_owned();
    let status = ["--subresource=status"].as_slice();
    for (namespace, what, flags, patch, path) in [
        (
            &liqo,
            &service,
            [].as_slice(),
            json!({"spec": {"selector": {"networking.liqo.io/component": "nonsense"}}}),
            "{.spec.selector}",
        ),
        (
            tenant,
            &connection,
            status,
            json!({"status": {"value": "Nonsense"}}),
            "{.status.value}",
        ),
        (
            tenant,
            &connection,
            &[],
            json!({"spec": {"gatewayRef": {"name": "nonsense"}}}),
            "{.spec.gatewayRef}",
        ),
        (
            tenant,
            &configuration,
            status,
            json!({"status": {"remote": {"cidr": {"pod": ["192.0.2.0/24"]}}}}),
            "{.status.remote}",
        ),
        (
            tenant,
            &configuration,
            &[],
            json!({"spec": {"local": {"cidr": {"pod": ["192.0.2.0/24"]}}}}),
            "{.spec.local}",
        ),
        (
            tenant,
            &server,
            status,
            json!({"status": {"endpoint": {"addresses": ["192.0.2.1"], "port": 1}}}),
            "{.status.endpoint}",
        ),
        (
            tenant,
            &network,
            status,
            json!({"status": {"cidr": "192.0.2.0/24"}}),
            "{.status.cidr}",
        ),
        (
            &liqo,
            &node,
            status,
            json!({"status": {"ip": "192.0.2.1"}}),
            "{.status.ip}",
        ),
        (
            &foreign,
            &cluster,
            status,
            json!({"status": {"modules": {"networking": {"enabled": false}}}}),
            "{.status.modules.networking.enabled}",
        ),
    ] {
        let before = namespace.get(what, path).await?;
        let text = patch.to_string();
        let words = ["patch", what, "--type=merge", "-p", &text];
        namespace
            .kubectl(&[words.as_slice(), flags].concat())
            .await
            .with_context(|| format!("{what}: {patch}"))?;
        let wait = format!("{what} to be as it was, without {patch}");
        until(Deadline::after(SOON), &wait, async || {
            let now = namespace.get(what, path).await?;
            ensure!(now == before, "{now} is not {before}");
            Ok(())
        })
        .await?;
    }
    peer.connected().await?;

    peer.tenant.delete().await?;
    witness.finish(peering).await
}

async fn a_name_that_is_too_long_is_told(peering: &'static Peering) -> Result<()> {
    let witness = Witness::start(peering, "long-name").await?;
    let name = "x".repeat(70);
    let tenant = Tenant::create(&peering.milan, "long-name").await?;
    tenant
        .configure(&["10.244.0.0/16"], &["10.70.0.0/16"])
        .await?;
    let spec = json!({"endpoint": {"serviceType": "NodePort"}});
    tenant.write_as(&name, "GatewayServer", &spec).await?;
    let what = format!("gatewayserver/{name}");
    told_by(tenant.namespace(), &what, "NameTooLong", "60 characters").await?;

    let longest = "y".repeat(253);
    let remote = json!({"remote": {"cidr": {"pod": ["10.244.0.0/16"]}}});
    let other = Tenant::create(&peering.milan, "longest-name").await?;
    other.write_as(&longest, "Configuration", &remote).await?;
    let what = format!("configuration/{longest}");
    told_by(other.namespace(), &what, "NameTooLong", "cluster id").await?;

    // An id that makes no namespace of 63 characters.
    let long = "z".repeat(64);
    let spec = json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "GatewayServer",
        "metadata": {"name": "long", "labels": {"liqo.io/remote-cluster-id": long}},
        "spec": {},
    });
    let refused = other.namespace().apply(&spec.to_string()).await.err();
    let error = refused.context("a label of 64 characters was taken")?;
    ensure!(
        format!("{error:#}").contains("no more than 63"),
        "{error:#}"
    );

    tenant.delete().await?;
    other.delete().await?;
    witness.finish(peering).await
}

/// Waits until the Connection shows this value.
async fn shows(peer: &Foreign, wanted: &str) -> Result<()> {
    let (cluster, id) = (peer.tenant.cluster(), peer.tenant.id());
    until(Deadline::after(SOON), wanted, async || {
        let status = connection(cluster, id).await?.status.unwrap_or_default();
        let value = status.value.unwrap_or_default();
        ensure!(value == wanted, "{value}");
        Ok(())
    })
    .await
}

/// Waits until the peer's pod reaches the cluster's, or does not.
async fn reaches(peer: &Foreign, web: &Web, wanted: bool) -> Result<()> {
    let to = web.pods[0].address;
    let what = format!("answers of {to}: {wanted}");
    until(Deadline::after(SOON), &what, async || {
        let found = ping::reaches(peer.netns(), to)?;
        ensure!(found == wanted, "{found}");
        Ok(())
    })
    .await
}

/// The Service that a GatewayServer has, as `kubectl` names it.
async fn service(tenant: &Tenant) -> Result<String> {
    let what = format!("gatewayserver/{}", tenant.id());
    let name = tenant
        .namespace()
        .get(&what, "{.status.serverRef.name}")
        .await?;

    Ok(format!("service/{name}"))
}
