//! Documents by which the API server and clients discover the API.

use super::route::{GROUP, VERSION};
use serde_json::{Value, json};

/// Media type of aggregated discovery (KEP-3352), by version.
const AGGREGATED: [(&str, &str); 2] = [
    (
        "v2",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    ),
    (
        "v2beta1",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    ),
];

/// Media type of all other documents.
const JSON: &str = "application/json";

/// Returns the groups, with the media type. `accept` is the request's field `Accept`: the API server requests the
/// aggregated form with all resources, and older ones and clients the plain list.
pub(super) fn groups(accept: &str) -> (&'static str, Value) {
    match aggregated(accept) {
        Some((version, media_type)) => (media_type, aggregated_groups(version)),
        None => {
            let groups =
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group_fields()]});
            (JSON, groups)
        }
    }
}

/// Returns the group.
pub(super) fn group() -> Value {
    let mut group = group_fields();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    group
}

/// Returns the resources of the version.
pub(super) fn resources() -> Value {
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [{
            "name": "scrape/metrics",
            "singularName": "",
            "namespaced": false,
            "kind": "Scrape",
            "verbs": ["get"],
        }],
    })
}

/// Returns a description of no paths. The API server merges it with those of others.
pub(super) fn open_api_2() -> Value {
    json!({"swagger": "2.0", "info": info(), "paths": {}})
}

/// Returns the index of the descriptions of OpenAPI 3.
pub(super) fn open_api_3() -> Value {
    let path = format!("apis/{GROUP}/{VERSION}");
    json!({"paths": {&path: {"serverRelativeURL": format!("/openapi/v3/{path}?hash=0")}}})
}

/// Returns a description of no paths.
pub(super) fn open_api_3_of_version() -> Value {
    json!({"openapi": "3.0.0", "info": info(), "paths": {}})
}

/// Returns a failure, as API servers describe it.
pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    })
}

/// Returns the first form of aggregated discovery that a client accepts.
fn aggregated(accept: &str) -> Option<(&'static str, &'static str)> {
    let requested = accept.split(',').map(|range| {
        let parameters = range.split(';').map(str::trim);
        parameters.collect::<Vec<_>>()
    });
    requested.into_iter().find_map(|range| {
        AGGREGATED.into_iter().find(|(_, media_type)| {
            // Further parameters, such as `q` and `profile`, are ignored.
            media_type.split(';').all(|part| range.contains(&part))
        })
    })
}

fn aggregated_groups(version: &str) -> Value {
    let kind = json!({"group": GROUP, "version": VERSION, "kind": "Scrape"});
    // Without verbs of its own, the resource only holds its subresource.
    let resource = json!({
        "resource": "scrape",
        "responseKind": kind,
        "scope": "Cluster",
        "singularResource": "",
        "verbs": [],
        "subresources": [{"subresource": "metrics", "responseKind": kind, "verbs": ["get"]}],
    });
    let version_fields =
        json!({"version": VERSION, "freshness": "Current", "resources": [resource]});

    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": [version_fields]}],
    })
}

fn group_fields() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

fn info() -> Value {
    json!({"title": "liqo-metric-agent", "version": VERSION})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_discovery_has_the_requested_version_and_others_get_the_plain_list() {
        let both = format!("{},{},application/json", AGGREGATED[0].1, AGGREGATED[1].1);
        for (accept, kind, api_version) in [
            (
                both.as_str(),
                "APIGroupDiscoveryList",
                "apidiscovery.k8s.io/v2",
            ),
            (
                AGGREGATED[1].1,
                "APIGroupDiscoveryList",
                "apidiscovery.k8s.io/v2beta1",
            ),
            (
                "application/json; as=APIGroupDiscoveryList; v=v2; g=apidiscovery.k8s.io; q=0.9",
                "APIGroupDiscoveryList",
                "apidiscovery.k8s.io/v2",
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io",
                "APIGroupList",
                "v1",
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList",
                "APIGroupList",
                "v1",
            ),
            ("*/*", "APIGroupList", "v1"),
            ("", "APIGroupList", "v1"),
        ] {
            let (media_type, document) = groups(accept);
            assert_eq!(document["kind"], kind, "{accept}");
            assert_eq!(document["apiVersion"], api_version, "{accept}");
            assert_eq!(media_type.contains("as="), kind == "APIGroupDiscoveryList");
        }
    }

    #[test]
    fn documents_are_of_the_types_of_kubernetes() {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};

        let group: APIGroup = serde_json::from_value(group()).unwrap();
        assert_eq!(group.name, GROUP);
        let resources: APIResourceList = serde_json::from_value(resources()).unwrap();
        assert_eq!(resources.resources[0].name, "scrape/metrics");
        assert!(!resources.resources[0].namespaced);
    }
}
