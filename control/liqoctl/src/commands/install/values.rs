//! The values of the chart, with upstream's keys. PURE.

use super::args::{Options, Provider};
use super::parameters::Parameters;
use crate::global::Global;
use crate::manifest;
use serde_json::{Map, Value, json};

/// Returns the values. Keys without a flag or parameter are absent, so the chart's defaults apply.
pub(crate) fn build(global: &Global, options: &Options, parameters: &Parameters) -> Value {
    let mut values = json!({
        "ipam": {
            "podCIDRs": manifest::texts(&parameters.pod_cidrs),
            "reservedSubnets": manifest::texts(&parameters.reserved),
        },
        "discovery": {"config": {"clusterLabels": map(&options.cluster_labels)}},
    });
    if let Some(cidr) = parameters.service_cidr {
        values["ipam"]["serviceCIDR"] = cidr.to_string().into();
    }
    if let Some(id) = &parameters.cluster_id {
        values["discovery"]["config"]["clusterID"] = id.as_str().into();
    }
    if let Some(url) = &parameters.api_server {
        values["apiServer"] = json!({"address": url});
    }
    if let Some(version) = &options.version {
        values["tag"] = version.as_str().into();
    }
    if options.enable_metrics {
        values["metrics"] = json!({"enabled": true});
    }
    if options.provider == Some(Provider::Openshift) {
        values["openshiftConfig"] = json!({"enabled": true});
    }
    for (key, extra) in [
        ("globalLabels", &global.global_labels),
        ("globalAnnotations", &global.global_annotations),
    ] {
        if !extra.is_empty() {
            values["common"][key] = map(extra);
        }
    }
    values
}

fn map(pairs: &[(String, String)]) -> Value {
    let entry = |(key, value): &(String, String)| (key.clone(), Value::from(value.as_str()));
    pairs.iter().map(entry).collect::<Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_upstreams() {
        let options = Options {
            cluster_labels: vec![("region".into(), "A".into())],
            version: Some("v1.2.0".into()),
            ..Options::default()
        };
        let parameters = Parameters {
            cluster_id: Some("rome".into()),
            pod_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
            service_cidr: Some("10.96.0.0/16".parse().unwrap()),
            api_server: Some("https://172.18.1.2:6443".into()),
            ..Parameters::default()
        };

        let values = build(&Global::default(), &options, &parameters);

        let expected = json!({
            "apiServer": {"address": "https://172.18.1.2:6443"},
            "discovery": {"config": {"clusterID": "rome", "clusterLabels": {"region": "A"}}},
            "ipam": {
                "podCIDRs": ["10.244.0.0/16"],
                "reservedSubnets": [],
                "serviceCIDR": "10.96.0.0/16",
            },
            "tag": "v1.2.0",
        });
        assert_eq!(values, expected);
    }

    /// The check is one of this program, so the chart has no value for it.
    #[test]
    fn the_kernel_check_is_no_value_of_the_chart() {
        let options = Options {
            disable_kernel_version_check: true,
            ..Options::default()
        };

        let (global, parameters) = (Global::default(), Parameters::default());
        assert_eq!(
            build(&global, &options, &parameters),
            build(&global, &Options::default(), &parameters)
        );
    }

    #[test]
    fn keys_without_a_flag_have_the_defaults_of_the_chart() {
        let values = build(
            &Global::default(),
            &Options::default(),
            &Parameters::default(),
        );

        for key in ["tag", "metrics", "openshiftConfig", "common", "apiServer"] {
            assert!(values.get(key).is_none(), "{key}");
        }
        assert!(values["discovery"]["config"].get("clusterID").is_none());
    }
}
