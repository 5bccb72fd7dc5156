//! Tests of the objects that a virtual kubelet reflects, with the API servers, policies and controllers of both clusters.

use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::refusals::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use control_api::IP;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        ingresses_follow_those_of_the_consumer,
        a_port_of_a_service_that_changes_its_number_is_replaced,
        events_of_the_provider_are_about_objects_of_the_consumer,
        objects_that_the_provider_refuses_say_why_and_delay_no_others,
        large_and_immutable_objects_are_reflected,
        an_address_outside_of_the_pod_cidr_is_reflected_by_an_ip_object,
    );
}

impl Scene {
    /// Creates or changes an object of the consumer's namespace `shop`.
    async fn put(&self, object: &Value) -> Result<Value> {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!("shop");
        self.rome.apply(&object, "user").await
    }

    /// Waits until an object of the provider's namespace satisfies `check`.
    async fn until_remote(
        &self,
        (kind, name): (&str, &str),
        check: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        self.milan.until((kind, "shop-rome", name), check).await
    }

    async fn until_gone(&self, (kind, name): (&str, &str)) -> Result<()> {
        until(Deadline::after(SOON), "the deletion", async || {
            let left = self.milan.get_opt(kind, "shop-rome", name).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await
    }

    /// Waits until an Event about an object of the consumer contains a text.
    async fn until_event(&self, (reason, name): (&str, &str), text: &str) -> Result<Value> {
        until(Deadline::after(SOON), text, async || {
            let events = self.events(name).await?;
            let is_it = |it: &&Value| {
                let message = it["message"].as_str().unwrap_or_default();
                it["reason"] == reason && message.contains(text)
            };
            let found = events.iter().find(is_it);
            ensure!(found.is_some(), "{events:?}");
            Ok(found.cloned().unwrap_or_default())
        })
        .await
    }
}

/// Returns an Ingress with the class of the consumer.
fn ingress(host: &str, annotations: &Value) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "web", "labels": {"app": "web"}, "annotations": annotations},
        "spec": {
            "ingressClassName": "traefik",
            "defaultBackend": backend,
            "rules": [{"host": host, "http": {"paths": [
                {"path": "/", "pathType": "Prefix", "backend": backend},
            ]}}],
            "tls": [{"hosts": [host], "secretName": "web"}],
        },
    })
}

/// The number is part of a port's key: an API server adds the new port to those that an earlier field manager has written.
async fn a_port_of_a_service_that_changes_its_number_is_replaced(
    _: &'static Fixture,
) -> Result<()> {
    let scene = Scene::start().await?;
    let web = ("Service", "web");
    let service = |number: u16| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"ports": [{"name": "http", "port": number, "protocol": "TCP"}]},
        })
    };
    scene.put(&service(80)).await?;
    let before = scene.until_remote(web, |_| true).await?;
    for number in [81, 82] {
        scene.put(&service(number)).await?;
        let after = scene.until_remote(web, |it| has_port(it, number)).await?;
        ensure!(
            after["metadata"]["uid"] == before["metadata"]["uid"],
            "{after}"
        );
        let address = "/spec/clusterIP";
        ensure!(after.pointer(address) == before.pointer(address), "{after}");
    }

    // Another manager of the provider changes the number, and then has a port of the same name.
    let mut edited = scene.until_remote(web, |_| true).await?;
    edited["spec"]["ports"][0]["port"] = 65_000.into();
    let edited = scene.milan.update(&edited).await?;
    ensure!(has_port(&edited, 65_000), "{edited}");
    scene.until_remote(web, |it| has_port(it, 82)).await?;

    Ok(())
}

/// Returns whether a Service has one port, of this number.
fn has_port(service: &Value, number: u16) -> bool {
    let ports = service["spec"]["ports"].as_array();
    ports.is_some_and(|it| it.len() == 1 && it[0]["port"] == number)
}

async fn ingresses_follow_those_of_the_consumer(_: &'static Fixture) -> Result<()> {
    let mut scene = Scene::start().await?;
    let web = ("Ingress", "web");
    let annotations = json!({
        "kubernetes.io/ingress.class": "traefik",
        "nginx.ingress.kubernetes.io/proxy-body-size": "1m",
    });
    let local = scene.put(&ingress("a.example", &annotations)).await?;
    let remote = scene.until_remote(web, |_| true).await?;
    for field in ["defaultBackend", "rules", "tls"] {
        ensure!(remote["spec"][field] == local["spec"][field], "{remote}");
    }
    ensure!(remote["spec"]["ingressClassName"].is_null(), "{remote}");
    let kept = json!({"nginx.ingress.kubernetes.io/proxy-body-size": "1m"});
    ensure!(remote["metadata"]["annotations"] == kept, "{remote}");
    ensure!(remote["metadata"]["labels"]["app"] == "web", "{remote}");

    scene.put(&ingress("b.example", &annotations)).await?;
    let is_b = |it: &Value| it["spec"]["rules"][0]["host"] == "b.example";
    let mut remote = scene.until_remote(web, is_b).await?;
    // An edit at the provider is put back, and fields of others stay.
    let hosts = json!([{"host": "c.example"}]);
    remote["spec"]["rules"] = hosts;
    remote["metadata"]["labels"]["team"] = json!("theirs");
    scene.milan.update(&remote).await?;
    let remote = scene.until_remote(web, is_b).await?;
    ensure!(remote["metadata"]["labels"]["team"] == "theirs", "{remote}");

    let skipped = json!({"liqo.io/skip-reflection": "true"});
    scene.put(&ingress("b.example", &skipped)).await?;
    scene.until_gone(web).await?;

    // The policy of the provider refuses classes and annotations that it does not permit.
    let snippet = json!({"nginx.ingress.kubernetes.io/server-snippet": "deny all;"});
    scene.put(&ingress("b.example", &snippet)).await?;
    let cause = "a consumer sets annotations of Ingresses only that change no other Ingress";
    scene
        .until_event(("FailedReflection", "web"), cause)
        .await?;
    let class = "--remote-real-ingress-class-name=internal";
    scene
        .kubelet
        .restart_with(&["--enable-ingress", class])
        .await?;
    scene.put(&ingress("b.example", &json!({}))).await?;
    let cause = "spec.ingressClassName: the provider does not offer this class";
    scene
        .until_event(("FailedReflection", "web"), cause)
        .await?;

    Ok(())
}

/// Returns an Event of the provider about an object.
fn event(object: &Value, name: &str, count: u32) -> Value {
    let metadata = &object["metadata"];
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "shop-rome"},
        "involvedObject": {
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "namespace": "shop-rome",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "fieldPath": "spec.containers{web}",
        },
        "type": "Normal",
        "reason": "Pulled",
        "message": "Container image \"web:1\" already present on machine",
        "source": {"component": "kubelet", "host": "milan-worker"},
        "count": count,
        "firstTimestamp": "2026-11-21T07:20:00Z",
        "lastTimestamp": "2026-11-21T07:20:01Z",
    })
}

async fn events_of_the_provider_are_about_objects_of_the_consumer(
    _: &'static Fixture,
) -> Result<()> {
    let scene = Scene::start().await?;
    scene.create("web", "1", &json!([])).await?;
    scene.run("web").await?;
    let local = scene.rome.get("Pod", "shop", "web").await?;
    let remote = scene.milan.get("Pod", "shop-rome", "web").await?;
    for count in [1, 7] {
        let event = event(&remote, "web.pulled", count);
        scene.milan.apply(&event, "kubelet").await?;
        let reflected = scene
            .rome
            .until(("Event", "shop", "web.pulled"), |it| it["count"] == count)
            .await?;
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web",
            "uid": local["metadata"]["uid"], "fieldPath": "spec.containers{web}",
        });
        ensure!(reflected["involvedObject"] == object, "{reflected}");
        for field in [
            "type",
            "reason",
            "message",
            "firstTimestamp",
            "lastTimestamp",
        ] {
            ensure!(reflected[field] == event[field], "{reflected}");
        }
        ensure!(
            reflected["source"] == json!({"component": "kubelet (remote)"}),
            "{reflected}"
        );
    }
    let shadow = scene.milan.get("ShadowPod", "shop-rome", "web").await?;
    let about_shadow = event(&shadow, "web.shadow", 1);
    scene.milan.apply(&about_shadow, "kubelet").await?;
    let name = ("Event", "shop", "web.shadow");
    let reflected = scene.rome.until(name, |_| true).await?;
    ensure!(reflected["involvedObject"]["kind"] == "Pod", "{reflected}");

    let port = json!({"port": 80});
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [port]},
    });
    let local = scene.put(&service).await?;
    let remote = scene.until_remote(("Service", "web"), |_| true).await?;
    let event = event(&remote, "web.service", 1);
    scene.milan.apply(&event, "service-controller").await?;
    let name = ("Event", "shop", "web.service");
    let reflected = scene.rome.until(name, |_| true).await?;
    ensure!(
        reflected["involvedObject"]["uid"] == local["metadata"]["uid"],
        "{reflected}"
    );

    Ok(())
}

/// Returns a core object of this name.
fn core(kind: &str, name: &str, fields: &Value) -> Value {
    let mut object = fields.clone();
    object["apiVersion"] = json!("v1");
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    object
}

async fn objects_that_the_provider_refuses_say_why_and_delay_no_others(
    _: &'static Fixture,
) -> Result<()> {
    let scene = Scene::start().await?;
    // No ConfigMap fits.
    let hard = json!({"spec": {"hard": {"configmaps": "0"}}});
    let mut quota = core("ResourceQuota", "full", &hard);
    quota["metadata"]["namespace"] = json!("shop-rome");
    scene.peering.milan.apply(&quota).await?;
    let quotas: Api<ResourceQuota> =
        Api::namespaced(scene.peering.milan.client.clone(), "shop-rome");
    until(Deadline::after(SOON), "the quota", async || {
        let status = quotas.get("full").await?.status;
        let used = status.and_then(|it| it.used).unwrap_or_default();
        ensure!(!used.is_empty(), "{used:?}");
        Ok(())
    })
    .await?;
    let map = core("ConfigMap", "web", &json!({"data": {"color": "blue"}}));
    scene.put(&map).await?;
    let failed = ("FailedReflection", "web");
    scene.until_event(failed, "exceeded quota: full").await?;
    let secret = core("Secret", "other", &json!({"stringData": {"key": "value"}}));
    scene.put(&secret).await?;
    scene.until_remote(("Secret", "other"), |_| true).await?;
    quotas.delete("full", &DeleteParams::default()).await?;
    scene.until_remote(("ConfigMap", "web"), |_| true).await?;

    // The reflected root CA has this name.
    let reserved = core(
        "ConfigMap",
        "kube-root-ca.crt.rome",
        &json!({"data": {"ca.crt": "x"}}),
    );
    scene.put(&reserved).await?;
    let failed = ("FailedReflection", "kube-root-ca.crt.rome");
    let cause = "the reflected root CA has the name kube-root-ca.crt.rome";
    scene.until_event(failed, cause).await?;

    // A Service of the provider has the node port.
    let port = |number: u16| json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]}});
    let mut theirs = core("Service", "theirs", &port(31_080));
    theirs["metadata"]["namespace"] = json!("default");
    scene.peering.milan.apply(&theirs).await?;
    let mut service = core("Service", "node-port", &port(31_080));
    service["metadata"]["annotations"] = json!({"liqo.io/force-remote-node-port": "true"});
    scene.put(&service).await?;
    let failed = ("FailedReflection", "node-port");
    scene
        .until_event(failed, "provided port is already allocated")
        .await?;
    service["spec"]["ports"][0]["nodePort"] = json!(31_081);
    scene.put(&service).await?;
    let is_changed = |it: &Value| it["spec"]["ports"][0]["nodePort"] == 31_081;
    scene
        .until_remote(("Service", "node-port"), is_changed)
        .await?;

    // The policy of the provider permits no ExternalName.
    let named = json!({"spec": {"type": "ExternalName", "externalName": "rome.example"}});
    scene.put(&core("Service", "external", &named)).await?;
    let failed = ("FailedReflection", "external");
    scene
        .until_event(failed, "without a TenantPolicy, a consumer has Services")
        .await?;

    Ok(())
}

async fn large_and_immutable_objects_are_reflected(_: &'static Fixture) -> Result<()> {
    let scene = Scene::start().await?;
    // The limit of Kubernetes for all values of a Secret.
    let value = "a".repeat(1 << 20);
    let large = core("Secret", "large", &json!({"stringData": {"key": value}}));
    scene.put(&large).await?;
    let is_large = |it: &Value| {
        it["data"]["key"]
            .as_str()
            .is_some_and(|it| it.len() > 1 << 20)
    };
    scene.until_remote(("Secret", "large"), is_large).await?;

    // An immutable ConfigMap is replaced by another one.
    let map = |color: &str| {
        let fields = json!({"data": {"color": color}, "immutable": true});
        core("ConfigMap", "fixed", &fields)
    };
    scene.put(&map("blue")).await?;
    let fixed = ("ConfigMap", "fixed");
    let is_blue = |it: &Value| it["data"]["color"] == "blue" && it["immutable"] == true;
    let before = scene.until_remote(fixed, is_blue).await?;
    ensure!(scene.rome.delete("ConfigMap", "shop", "fixed").await?);
    scene.put(&map("red")).await?;
    let is_red = |it: &Value| it["data"]["color"] == "red";
    let after = scene.until_remote(fixed, is_red).await?;
    ensure!(before["metadata"]["uid"] != after["metadata"]["uid"]);

    // Endpoints on nodes that do not exist are left out.
    let endpoints = (0..1000).map(|number| {
        let address = format!("10.244.{}.{}", number / 250, number % 250 + 1);
        let node = (number % 2 == 0).then_some("gone");
        json!({"addresses": [address], "nodeName": node, "conditions": {"ready": true}})
    });
    scene
        .put(&json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "many", "labels": {"kubernetes.io/service-name": "many"}},
            "addressType": "IPv4",
            "endpoints": Vec::from_iter(endpoints),
            "ports": [{"name": "http", "port": 80}],
        }))
        .await?;
    let shadow = scene
        .until_remote(("ShadowEndpointSlice", "many"), |_| true)
        .await?;
    let endpoints = shadow["spec"]["template"]["endpoints"].as_array();
    ensure!(endpoints.is_some_and(|it| it.len() == 500), "{endpoints:?}");

    Ok(())
}

async fn an_address_outside_of_the_pod_cidr_is_reflected_by_an_ip_object(
    _: &'static Fixture,
) -> Result<()> {
    let scene = Scene::start().await?;
    let ips: Api<IP> = Api::namespaced(scene.peering.rome.client.clone(), "shop");
    let slice = |addresses: &[&str]| {
        let endpoints = addresses.iter().map(|it| json!({"addresses": [it]}));
        json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "printers", "labels": {"kubernetes.io/service-name": "printers"}},
            "addressType": "IPv4",
            "endpoints": Vec::from_iter(endpoints),
            "ports": [{"name": "ipp", "port": 631}],
        })
    };
    // The address of the API server's Service is refused.
    scene.put(&slice(&["192.0.2.7", "10.96.0.1"])).await?;
    let address = until(Deadline::after(SOON), "the address", async || {
        let ip = ips.get("endpoint-192-0-2-7").await?;
        let address = ip.status.and_then(|it| it.ip);
        address.context("none")
    })
    .await?;
    let addresses = |it: &Value| it["spec"]["template"]["endpoints"].clone();
    let printers = ("ShadowEndpointSlice", "printers");
    let shadow = scene
        .until_remote(printers, |it| addresses(it)[0]["addresses"][0] == address)
        .await?;
    ensure!(addresses(&shadow)[1].is_null(), "{shadow}");
    let refused = ("AddressRefused", "printers");
    scene
        .until_event(refused, "10.96.0.1 gets no IP object")
        .await?;

    scene.put(&slice(&[])).await?;
    until(Deadline::after(SOON), "the deletion", async || {
        let left = ips.list(&ListParams::default()).await?.items;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await
}
