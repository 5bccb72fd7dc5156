//! The cases of the conformance suite of the Multi-Cluster Services API (tag `conformance/v0.5.0` of sigs.k8s.io/mcs-api) that need
//! no pods. The network tests have those of DNS and connections.
//!
//! The suite is a Go module of its own, which the module proxy does not serve, and it needs images of registries. So its cases are
//! written here, each with the name and the label of the suite. As there, the first cluster exports before the second.

use super::{Sites, peered};
use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, until};
use anyhow::{Context as _, Result, ensure};
use control_api::{ServiceExport, ServiceImport};
use futures_util::future::join_all;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Changes of the Service and the ServiceExport of a cluster.
type Edit = fn(&mut Value, &mut Value);

/// Checks the ServiceImport and the ServiceExport of a cluster that has exported the Service `hello`.
type Check = fn(&Value, &Value) -> Result<()>;

/// A case of the suite.
struct Case {
    name: &'static str,
    first: Edit,
    /// The second cluster does not export without it.
    second: Option<Edit>,
    check: Check,
}

const fn case(name: &'static str, first: Edit, check: Check) -> Case {
    Case {
        name,
        first,
        second: None,
        check,
    }
}

const fn both(name: &'static str, first: Edit, second: Edit, check: Check) -> Case {
    let second = Some(second);
    Case {
        second,
        ..case(name, first, check)
    }
}

fn cases() -> Vec<Case> {
    let none: Edit = |_, _| {};
    let headless: Edit = |service, _| service["spec"]["clusterIP"] = json!("None");
    vec![
        case(
            "Required, ClusterIP: type ClusterSetIP in each cluster",
            none,
            |import, export| {
                ensure!(import["spec"]["type"] == "ClusterSetIP", "{import}");
                is_condition(export, "Valid", "True")
            },
        ),
        case("Required, ClusterIP: SessionAffinity", none, |import, _| {
            let spec = &import["spec"];
            ensure!(spec["sessionAffinity"] == "ClientIP", "{import}");
            ensure!(
                spec["sessionAffinityConfig"] == json!({"clientIP": {"timeoutSeconds": 10}}),
                "{import}"
            );
            Ok(())
        }),
        case(
            "Required, ClusterIP: InternalTrafficPolicy",
            |service, _| service["spec"]["internalTrafficPolicy"] = json!("Cluster"),
            |import, _| {
                ensure!(
                    import["spec"]["internalTrafficPolicy"] == "Cluster",
                    "{import}"
                );
                Ok(())
            },
        ),
        case(
            "Required, ClusterIP: TrafficDistribution",
            |service, _| service["spec"]["trafficDistribution"] = json!("PreferClose"),
            |import, _| {
                ensure!(
                    import["spec"]["trafficDistribution"] == "PreferClose",
                    "{import}"
                );
                Ok(())
            },
        ),
        case(
            "Required, ClusterIP: an IP for each IP family",
            none,
            |import, _| {
                let list = |field: &str| import["spec"][field].as_array().map_or(0, Vec::len);
                ensure!(list("ips") == 1 && list("ipFamilies") == 1, "{import}");
                Ok(())
            },
        ),
        case(
            "Required, ClusterIP: ports of the Service",
            none,
            |import, _| has_ports(import, &[("tcp", 42), ("udp", 42)]),
        ),
        both(
            "Required, ClusterIP: union of the ports, and a conflict",
            none,
            |service, _| {
                service["spec"]["ports"][1] =
                    json!({"name": "stcp", "protocol": "SCTP", "port": 142});
            },
            |import, export| {
                has_ports(import, &[("stcp", 142), ("tcp", 42), ("udp", 42)])?;
                is_condition(export, "Conflict", "True")
            },
        ),
        both(
            "Required, ClusterIP: conflicting ports",
            none,
            |service, _| {
                service["spec"]["ports"] = json!([{"name": "tcp", "protocol": "TCP", "port": 43}])
            },
            |import, export| {
                has_ports(import, &[("tcp", 42), ("udp", 42)])?;
                is_condition(export, "Conflict", "True")
            },
        ),
        case(
            "Required, Headless: type Headless without IP",
            headless,
            |import, _| {
                let spec = &import["spec"];
                ensure!(
                    spec["type"] == "Headless" && spec["ips"].is_null(),
                    "{import}"
                );
                Ok(())
            },
        ),
        case(
            "Required, ExternalName: not valid",
            |service, _| {
                service["spec"] = json!({"type": "ExternalName", "externalName": "example.com"});
            },
            |import, export| {
                ensure!(import.is_null(), "{import}");
                is_condition(export, "Valid", "False")
            },
        ),
        both(
            "Required: conflicting headlessness",
            none,
            headless,
            |import, export| {
                ensure!(import["spec"]["type"] == "ClusterSetIP", "{import}");
                is_condition(export, "Conflict", "True")
            },
        ),
        case(
            "Optional, ExportedLabels: only exported labels and annotations",
            |_, export| export["spec"] = exported("dummy"),
            |import, _| has_labels(import, "dummy"),
        ),
        both(
            "Optional, ExportedLabels: conflicting labels and annotations",
            |_, export| export["spec"] = exported("dummy"),
            |_, export| export["spec"] = exported("dummy2"),
            |import, export| {
                has_labels(import, "dummy")?;
                is_condition(export, "Conflict", "True")
            },
        ),
    ]
}

pub(super) async fn the_cases_of_the_conformance_suite_pass(_: &'static Fixture) -> Result<()> {
    let peering = peered().await?;
    let sites: Sites<'_> = [(&peering.milan, "10.202"), (&peering.rome, "10.201")];
    let cases = cases();
    let runs = cases.iter().enumerate().map(async |(number, case)| {
        let run = run(&sites, case, &format!("mcs-{number}")).await;
        run.with_context(|| case.name)
    });
    let failures: Vec<_> = join_all(runs)
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect();
    let failures: Vec<_> = failures.iter().map(|it| format!("{it:#}")).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));

    Ok(())
}

async fn run(sites: &Sites<'_>, case: &Case, namespace: &str) -> Result<()> {
    let [(first, _), (second, _)] = sites;
    for (site, _) in sites {
        let labels = json!({"multicluster.liqo.io/import": "true"});
        let metadata = json!({"name": namespace, "labels": labels});
        site.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
            .await?;
    }
    export(first, namespace, case.first).await?;
    let mut exporting = vec![*first];
    if let Some(edit) = case.second {
        is_present(first, namespace).await?;
        until_later(first, namespace).await?;
        export(second, namespace, edit).await?;
        exporting.push(second);
    }
    for (site, _) in sites {
        let what = format!("{} in {}", case.name, site.name);
        until(Deadline::after(SOON), &what, async || {
            let import = json!(
                api::<ServiceImport>(site, namespace)
                    .get_opt("hello")
                    .await?
            );
            for exporting in &exporting {
                let export = api::<ServiceExport>(exporting, namespace)
                    .get("hello")
                    .await?;
                (case.check)(&import, &json!(export))?;
            }
            ensure!(
                import.is_null() || has_slice(site, namespace).await?,
                "no EndpointSlice"
            );
            Ok(())
        })
        .await?;
    }

    // A ServiceImport exists as long as there is an exporting cluster.
    for (number, site) in exporting.iter().enumerate() {
        let exports = api::<ServiceExport>(site, namespace);
        exports.delete("hello", &DeleteParams::default()).await?;
        if number + 1 < exporting.len() {
            is_present(first, namespace).await?;
        }
    }
    for (site, _) in sites {
        until(Deadline::after(SOON), "the end of the import", async || {
            let import = api::<ServiceImport>(site, namespace)
                .get_opt("hello")
                .await?;
            ensure!(
                import.is_none() && !has_slice(site, namespace).await?,
                "{import:?}"
            );
            Ok(())
        })
        .await?;
    }

    Ok(())
}

/// Creates the Service `hello` as the suite does, with an endpoint, and exports it.
async fn export(site: &Site, namespace: &str, edit: Edit) -> Result<()> {
    let metadata = json!({
        "name": "hello", "namespace": namespace,
        "annotations": {"dummy-svc": "dummy"}, "labels": {"dummy-svc": "dummy"},
    });
    let mut service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": {"app": "hello"},
            "ports": [
                {"name": "tcp", "protocol": "TCP", "port": 42},
                {"name": "udp", "protocol": "UDP", "port": 42},
            ],
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
            "ipFamilyPolicy": "PreferDualStack",
        },
    });
    let mut export = json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceExport",
        "metadata": {"name": "hello", "namespace": namespace},
    });
    edit(&mut service, &mut export);
    site.apply(&service).await?;
    let cidr = if site.name == "rome" {
        "10.201"
    } else {
        "10.202"
    };
    site.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "hello", "namespace": namespace, "labels": {"kubernetes.io/service-name": "hello"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [format!("{cidr}.0.9")], "conditions": {"ready": true}}],
        "ports": [{"name": "tcp", "protocol": "TCP", "port": 42}],
    }))
    .await?;

    site.apply(&export).await
}

/// Waits until an export that is created now is younger than that of `site`: times have whole seconds.
async fn until_later(site: &Site, namespace: &str) -> Result<()> {
    let export = api::<ServiceExport>(site, namespace).get("hello").await?;
    let created = export.creation_timestamp().context("no time")?.0;
    until(Deadline::after(SOON), "the next second", async || {
        let now = Timestamp::now().as_second();
        ensure!(now > created.as_second() + 1, "{now}");
        Ok(())
    })
    .await
}

async fn is_present(site: &Site, namespace: &str) -> Result<()> {
    let imports = api::<ServiceImport>(site, namespace);
    until(Deadline::after(SOON), "the ServiceImport", async || {
        imports.get("hello").await?;
        Ok(())
    })
    .await
}

/// Returns whether there is an EndpointSlice with the labels of the API, which Kubernetes does not manage.
async fn has_slice(site: &Site, namespace: &str) -> Result<bool> {
    let selector = "multicluster.kubernetes.io/service-name=hello,multicluster.kubernetes.io/source-cluster,\
                    endpointslice.kubernetes.io/managed-by,\
                    endpointslice.kubernetes.io/managed-by!=endpointslice-controller.k8s.io";
    let slices = api::<EndpointSlice>(site, namespace);
    let slices = slices.list(&ListParams::default().labels(selector)).await?;

    Ok(!slices.items.is_empty())
}

fn api<K>(site: &Site, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    Api::namespaced(site.client.clone(), namespace)
}

fn exported(name: &str) -> Value {
    json!({
        "exportedLabels": {format!("{name}-label"): "true"},
        "exportedAnnotations": {format!("{name}-annotation"): "true"},
    })
}

fn has_labels(import: &Value, name: &str) -> Result<()> {
    let metadata = &import["metadata"];
    for (field, suffix) in [("labels", "label"), ("annotations", "annotation")] {
        let map = metadata[field].as_object().context("no map")?;
        let dummies: Vec<_> = map.keys().filter(|key| key.starts_with("dummy")).collect();
        ensure!(dummies == [&format!("{name}-{suffix}")], "{metadata}");
    }

    Ok(())
}

fn has_ports(import: &Value, expected: &[(&str, u64)]) -> Result<()> {
    let ports = import["spec"]["ports"].as_array().context("no ports")?;
    let port = |it: &Value| Some((it["name"].as_str()?.to_owned(), it["port"].as_u64()?));
    let mut ports: Vec<_> = ports.iter().filter_map(port).collect();
    ports.sort();
    let expected = expected
        .iter()
        .map(|(name, port)| ((*name).to_owned(), *port));
    ensure!(ports == expected.collect::<Vec<_>>(), "{import}");

    Ok(())
}

fn is_condition(export: &Value, type_: &str, status: &str) -> Result<()> {
    let conditions = export["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    ensure!(
        conditions.any(|it| it["type"] == type_ && it["status"] == status),
        "{export}"
    );

    Ok(())
}
