//! Tests of invalid edits of each kind of object.

mod edit;

use super::Monitor;
use super::paths::path_unhealthy;
use crate::fixture::{LIQO, Peering, SOON, Suite, Web, connection, serial};
use crate::foreign::{Foreign, Tenant};
use anyhow::{Context as _, Result, ensure};
use control_api::networking::connection::reason;
use edit::Expected::{Refused, Reported};
use edit::{edit, ready, replace, reported, reported_by};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use tests::traffic::ping;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        an_invalid_gateway_server_is_reported_until_it_is_fixed,
        an_invalid_gateway_client_is_reported,
        an_invalid_configuration_is_reported,
        invalid_keys_are_reported_until_they_are_fixed,
        edits_of_managed_fields_are_refused_or_reverted,
        a_name_that_is_too_long_is_reported,
    );
}

async fn an_invalid_gateway_server_is_reported_until_it_is_fixed(
    peering: &'static Peering,
) -> Result<()> {
    let monitor = Monitor::start(peering, "wrong-server").await?;
    let right = json!({"endpoint": {"serviceType": "NodePort", "port": 51950}, "mtu": 1340});
    let peer = Foreign::client(&peering.milan, "wrong-server", &right["endpoint"]).await?;
    peer.connected().await?;

    let endpoint = |field: &str, value: Value| json!({"spec": {"endpoint": {field: value}}});
    let spec = |field: &str, value: Value| json!({"spec": {field: value}});
    for (patch, expected) in [
        (
            endpoint("port", json!(70_000)),
            Reported("InvalidEndpoint", "from 1 to 65535"),
        ),
        (
            endpoint("port", json!(-1)),
            Reported("InvalidEndpoint", "from 1 to 65535"),
        ),
        (endpoint("port", json!("51840")), Refused("integer")),
        (
            endpoint("serviceType", json!("ExternalName")),
            Reported("InvalidEndpoint", "use LoadBalancer, NodePort"),
        ),
        (
            endpoint("serviceType", json!("Invalid")),
            Refused("Unsupported value"),
        ),
        // A setting of the API server determines the range of node ports.
        (
            endpoint("nodePort", json!(80)),
            Reported("ServiceRefused", "valid ports"),
        ),
        (
            spec("serviceAnnotations", json!({"not a key!": "x"})),
            Reported("ServiceRefused", "not a key!"),
        ),
        (
            spec("secretRef", json!({"name": "no-such-secret"})),
            Reported("KeysMissing", "no-such-secret"),
        ),
        (spec("mtu", json!("large")), Refused("integer")),
        (
            spec("mtu", json!(20_000)),
            Reported("InvalidField", "spec.mtu"),
        ),
        (spec("mtu", json!(-5)), Reported("InvalidField", "spec.mtu")),
    ] {
        edit(&peer.tenant, "gatewayserver", &patch, &expected).await?;
        replace(&peer.tenant, "GatewayServer", &right).await?;
        ready(&peer.tenant, "gatewayserver").await?;
    }
    // The edits may have changed the node port, so the peer gets the current endpoint.
    let (addresses, port) = peer.tenant.endpoint().await?;
    peer.set_endpoint(std::net::SocketAddrV4::new(addresses[0].parse()?, port))
        .await?;
    peer.connected().await?;

    peer.tenant.delete().await?;
    monitor.finish(peering).await
}

async fn an_invalid_gateway_client_is_reported(peering: &'static Peering) -> Result<()> {
    let monitor = Monitor::start(peering, "wrong-client").await?;
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
    for (patch, expected) in [
        (
            endpoint("addresses", json!([])),
            Reported("InvalidEndpoint", "status.endpoint"),
        ),
        (
            endpoint("addresses", json!([""])),
            Reported("InvalidEndpoint", "status.endpoint"),
        ),
        (
            endpoint("port", json!(0)),
            Reported("InvalidEndpoint", "status.endpoint"),
        ),
        (
            endpoint("protocol", json!("SCTP")),
            Refused("Unsupported value"),
        ),
        (
            endpoint("protocol", json!("TCP")),
            Reported("InvalidField", "UDP only"),
        ),
        (
            endpoint("addresses", json!(["not a host!"])),
            Reported("InvalidField", "not a host!"),
        ),
        (
            json!({"spec": {"mtu": 100}}),
            Reported("InvalidField", "spec.mtu"),
        ),
    ] {
        edit(&tenant, "gatewayclient", &patch, &expected).await?;
        replace(&tenant, "GatewayClient", &right).await?;
        ready(&tenant, "gatewayclient").await?;
    }

    tenant.delete().await?;
    monitor.finish(peering).await
}

async fn an_invalid_configuration_is_reported(peering: &'static Peering) -> Result<()> {
    let monitor = Monitor::start(peering, "wrong-cidrs").await?;
    let tenant = Tenant::create(&peering.rome, "wrong-cidrs").await?;
    let (pods, external) = (["10.244.0.0/16"], ["10.70.0.0/16"]);
    tenant.configure(&pods, &external).await?;
    tenant.configured().await?;

    let pod = |cidrs: Value| json!({"spec": {"remote": {"cidr": {"pod": cidrs}}}});
    for (patch, expected) in [
        (pod(json!(["invalid"])), Refused("pod")),
        (pod(json!(["10.244.0.0/33"])), Refused("pod")),
        (
            pod(json!([])),
            Reported("InvalidCIDR", "list the pod CIDRs"),
        ),
        (
            pod(json!(["10.244.0.0/16", "10.244.1.0/24"])),
            Reported("InvalidCIDR", "overlaps"),
        ),
        (
            pod(json!(["127.0.0.0/8"])),
            Reported("InvalidCIDR", "pod[0]"),
        ),
        (pod(json!(["0.0.0.0/0"])), Reported("InvalidCIDR", "pod[0]")),
        (pod(json!(["fd00::/64"])), Reported("InvalidCIDR", "IPv6")),
        (
            json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "it-rome"}}}),
            Reported("OwnClusterID", "own id"),
        ),
        (
            json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "it-milan"}}}),
            Reported("NotTenantNamespace", "liqo-tenant-it-milan"),
        ),
        (
            json!({"metadata": {"labels": {"liqo.io/remote-cluster-id": "Not_An_Id"}}}),
            Reported("InvalidClusterID", "Not_An_Id"),
        ),
    ] {
        edit(&tenant, "configuration", &patch, &expected).await?;
        tenant.configure(&pods, &external).await?;
        tenant.configured().await?;
    }

    tenant.delete().await?;
    monitor.finish(peering).await
}

async fn invalid_keys_are_reported_until_they_are_fixed(peering: &'static Peering) -> Result<()> {
    let monitor = Monitor::start(peering, "wrong-keys").await?;
    let endpoint = json!({"port": 51840, "serviceType": "NodePort"});
    let peer = Foreign::client(&peering.milan, "wrong-keys", &endpoint).await?;
    peer.connected().await?;
    let right = peer.upstream.wireguard.key().public();
    let own = peer.tenant.own_key().await?;

    for (key, reason) in [
        (b"invalid".as_slice(), "InvalidPublicKey"),
        (&own, "KeyConflict"),
    ] {
        peer.tenant.publish(key).await?;
        reported(&peer.tenant, "gatewayserver", reason, "PublicKey").await?;
        peer.tenant.publish(&right).await?;
        ready(&peer.tenant, "gatewayserver").await?;
    }
    // The gateways have no session with a peer whose key is invalid.
    peer.connected().await?;
    peer.tenant.publish(b"invalid").await?;
    connection_is(&peer, "Error").await?;
    path_unhealthy(&peering.milan, "wrong-keys", reason::NOT_SERVED).await?;
    peer.tenant.publish(&right).await?;
    peer.connected().await?;
    // This key is well-formed, but is not that of the peer's device. Only the failing handshakes
    // show the difference.
    let web = Web::up(&peering.milan, "wrong-keys-web").await?;
    peer.tenant.publish(&[9; 32]).await?;
    ready(&peer.tenant, "gatewayserver").await?;
    reaches(&peer, &web, false).await?;
    connection_is(&peer, "Error").await?;
    let message = path_unhealthy(&peering.milan, "wrong-keys", reason::KEYS_DIFFER).await?;
    ensure!(message.contains("PublicKey"), "{message}");
    peer.tenant.publish(&right).await?;
    reaches(&peer, &web, true).await?;
    connection_is(&peer, "Connected").await?;

    // The gateways also check the cluster's own private key.
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
    reported(&peer.tenant, "gatewayserver", "InvalidKeys", "32 bytes").await?;
    namespace
        .kubectl(&["patch", secret, "--type=merge", "-p", &patch(&before)])
        .await?;
    ready(&peer.tenant, "gatewayserver").await?;
    reaches(&peer, &web, true).await?;

    peer.tenant.delete().await?;
    monitor.finish(peering).await
}

async fn edits_of_managed_fields_are_refused_or_reverted(peering: &'static Peering) -> Result<()> {
    let monitor = Monitor::start(peering, "put-back").await?;
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

    for (namespace, what, patch, text) in [
        (
            &liqo,
            &node,
            json!({"spec": {"ip": "192.0.2.1"}}),
            "immutable",
        ),
        (&liqo, &node, json!({"spec": {"ip": "invalid"}}), "spec.ip"),
        (
            tenant,
            &network,
            json!({"spec": {"cidr": "192.0.2.0/24"}}),
            "immutable",
        ),
    ] {
        let patched = patch.to_string();
        let refused = namespace
            .kubectl(&["patch", what, "--type=merge", "-p", &patched])
            .await
            .err();
        let error = refused.with_context(|| format!("{what} accepted {patch}"))?;
        ensure!(format!("{error:#}").contains(text), "{error:#}");
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
            json!({"spec": {"selector": {"networking.liqo.io/component": "invalid"}}}),
            "{.spec.selector}",
        ),
        (
            tenant,
            &connection,
            status,
            json!({"status": {"value": "Invalid"}}),
            "{.status.value}",
        ),
        (
            tenant,
            &connection,
            &[],
            json!({"spec": {"gatewayRef": {"name": "invalid"}}}),
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
        let wait = format!("{what} to be restored after {patch}");
        until(Deadline::after(SOON), &wait, async || {
            let now = namespace.get(what, path).await?;
            ensure!(now == before, "{now} is not {before}");
            Ok(())
        })
        .await?;
    }
    peer.connected().await?;

    peer.tenant.delete().await?;
    monitor.finish(peering).await
}

async fn a_name_that_is_too_long_is_reported(peering: &'static Peering) -> Result<()> {
    let monitor = Monitor::start(peering, "long-name").await?;
    let name = "x".repeat(70);
    let tenant = Tenant::create(&peering.milan, "long-name").await?;
    tenant
        .configure(&["10.244.0.0/16"], &["10.70.0.0/16"])
        .await?;
    let spec = json!({"endpoint": {"port": 51840, "serviceType": "NodePort"}});
    tenant.write_as(&name, "GatewayServer", &spec).await?;
    let what = format!("gatewayserver/{name}");
    reported_by(tenant.namespace(), &what, "NameTooLong", "60 characters").await?;

    let longest = "y".repeat(253);
    let remote = json!({"remote": {"cidr": {"pod": ["10.244.0.0/16"]}}});
    let other = Tenant::create(&peering.milan, "longest-name").await?;
    other.write_as(&longest, "Configuration", &remote).await?;
    let what = format!("configuration/{longest}");
    reported_by(other.namespace(), &what, "NameTooLong", "cluster id").await?;

    // The cluster id exceeds 63 characters, the limit of a label value.
    let long = "z".repeat(64);
    let spec = json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "GatewayServer",
        "metadata": {"name": "long", "labels": {"liqo.io/remote-cluster-id": long}},
        "spec": {},
    });
    let refused = other.namespace().apply(&spec.to_string()).await.err();
    let error = refused.context("a label of 64 characters was accepted")?;
    ensure!(
        format!("{error:#}").contains("no more than 63"),
        "{error:#}"
    );

    tenant.delete().await?;
    other.delete().await?;
    monitor.finish(peering).await
}

/// Waits until the Connection has this `status.value`.
async fn connection_is(peer: &Foreign, expected: &str) -> Result<()> {
    let (cluster, id) = (peer.tenant.cluster(), peer.tenant.id());
    until(Deadline::after(SOON), expected, async || {
        let status = connection(cluster, id).await?.status.unwrap_or_default();
        let value = status.value.unwrap_or_default();
        ensure!(value == expected, "{value}");
        Ok(())
    })
    .await
}

/// Waits until the peer's pod reaches the first pod of `web`, or does not reach it if `expected` is
/// false.
async fn reaches(peer: &Foreign, web: &Web, expected: bool) -> Result<()> {
    let to = web.pods[0].address;
    let what = format!("{to} to be reachable: {expected}");
    until(Deadline::after(SOON), &what, async || {
        let found = ping::reaches(peer.netns(), to)?;
        ensure!(found == expected, "{found}");
        Ok(())
    })
    .await
}

/// Returns the Service of a GatewayServer in the form `service/NAME`.
async fn service(tenant: &Tenant) -> Result<String> {
    let what = format!("gatewayserver/{}", tenant.id());
    let name = tenant
        .namespace()
        .get(&what, "{.status.serverRef.name}")
        .await?;

    Ok(format!("service/{name}"))
}
