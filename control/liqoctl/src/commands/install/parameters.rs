//! Parameters of an installation, from flags and detection. Flags take precedence. PURE.

use super::args::Options;
use super::cloud;
use super::detect::{self, Observed};
use crate::cluster::Installation;
use anyhow::{Result, bail};
use ipnet::Ipv4Net;

/// The parameters of an installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    /// Cluster ID; none if the chart must generate one.
    pub(crate) cluster_id: Option<String>,
    /// Pod CIDRs.
    pub(crate) pod_cidrs: Vec<Ipv4Net>,
    /// Service CIDR.
    pub(crate) service_cidr: Option<Ipv4Net>,
    /// CIDRs that must not be used for remapping.
    pub(crate) reserved: Vec<Ipv4Net>,
    /// URL of the API server for peers; none if the manager must find an address.
    pub(crate) api_server: Option<String>,
    /// Messages about detected values.
    pub(crate) notes: Vec<String>,
}

impl Parameters {
    /// Computes the parameters.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing or wrong flag.
    pub(crate) fn decide(
        options: &Options,
        observed: &Observed,
        kubeconfig_url: &str,
        installed: Option<&Installation>,
    ) -> Result<Self> {
        let mut notes = Vec::new();
        let provider = options.provider.as_ref();
        let pod_cidrs = if options.pod_cidr.is_empty() {
            let Some(found) = detect::pod_cidrs(observed, provider) else {
                bail!(
                    "the pod CIDR was not detected: {} (--pod-cidr CIDR; the nodes have {})",
                    cloud::remedy(provider),
                    nodes_cidrs(observed)
                );
            };
            notes.push(format!(
                "Pod CIDR {} from {}",
                list(&found.cidrs),
                found.source
            ));
            found.cidrs
        } else {
            options.pod_cidr.clone()
        };
        let service_cidr = match options.service_cidr {
            Some(cidr) => Some(cidr),
            None => {
                let Some(found) = detect::service_cidr(observed, provider) else {
                    bail!(
                        "the service CIDR was not detected: {} (--service-cidr CIDR)",
                        cloud::remedy(provider)
                    );
                };
                notes.push(format!(
                    "Service CIDR {} from {}",
                    list(&found.cidrs),
                    found.source
                ));
                found.cidrs.first().copied()
            }
        };
        Ok(Self {
            cluster_id: id(options.cluster_id.as_deref(), installed)?,
            pod_cidrs,
            service_cidr,
            reserved: options.reserved_subnets.clone(),
            api_server: api_server(options, kubeconfig_url, &mut notes),
            notes,
        })
    }
}

/// Returns the cluster ID. Peers store it, so it never changes.
fn id(requested: Option<&str>, installed: Option<&Installation>) -> Result<Option<String>> {
    match (requested, installed) {
        (Some(requested), Some(installed)) if requested != installed.cluster_id => bail!(
            "the cluster has the cluster ID {}, which cannot be changed to {requested}: omit --cluster-id, or uninstall first",
            installed.cluster_id
        ),
        (_, Some(installed)) => Ok(Some(installed.cluster_id.clone())),
        (requested, None) => Ok(requested.map(ToOwned::to_owned)),
    }
}

fn api_server(options: &Options, kubeconfig_url: &str, notes: &mut Vec<String>) -> Option<String> {
    let Some(url) = &options.api_server_url else {
        // Peers cannot reach a loopback address. The manager finds an address of a node.
        return (!is_loopback(kubeconfig_url)).then(|| kubeconfig_url.to_owned());
    };
    let differs = host(url) != host(kubeconfig_url) && !is_loopback(kubeconfig_url);
    if differs && !options.disable_api_server_sanity_check {
        notes.push(format!(
            "The API server is advertised to peers as {url}, but the kubeconfig contains {kubeconfig_url}"
        ));
    }
    Some(url.clone())
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(v6),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

fn is_loopback(url: &str) -> bool {
    let host = host(url);
    host == "localhost"
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

fn nodes_cidrs(observed: &Observed) -> String {
    let cidrs: Vec<Ipv4Net> = observed
        .nodes
        .iter()
        .flat_map(|node| node.pod_cidrs.clone())
        .collect();
    if cidrs.is_empty() {
        "none".to_owned()
    } else {
        list(&cidrs)
    }
}

/// Returns CIDRs separated by commas.
pub(crate) fn list(cidrs: &[Ipv4Net]) -> String {
    let texts: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::detect::NodeFacts;
    use super::*;

    fn observed() -> Observed {
        Observed {
            service_cidrs: vec!["10.96.0.0/16".into()],
            nodes: vec![NodeFacts {
                pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
                ..NodeFacts::default()
            }],
            ..Observed::default()
        }
    }

    fn rome() -> Installation {
        Installation {
            cluster_id: "rome".into(),
            namespace: "liqo".into(),
        }
    }

    #[test]
    fn detected_values_are_reported_with_their_source() {
        let options = Options::default();

        let parameters =
            Parameters::decide(&options, &observed(), "https://172.18.1.2:6443", None).unwrap();

        assert_eq!(list(&parameters.pod_cidrs), "10.244.0.0/16");
        assert_eq!(
            parameters.api_server.as_deref(),
            Some("https://172.18.1.2:6443")
        );
        assert!(parameters.notes[0].starts_with("Pod CIDR 10.244.0.0/16 from the nodes"));
        assert_eq!(parameters.cluster_id, None);
    }

    #[test]
    fn an_undetected_cidr_is_an_error_that_names_the_flag() {
        let mut observed = observed();
        observed.nodes[0].pod_cidrs = vec!["10.9.1.0/24".parse().unwrap()];

        let error = Parameters::decide(&Options::default(), &observed, "https://a", None);

        let text = error.unwrap_err().to_string();
        assert!(
            text.contains("--pod-cidr") && text.contains("10.9.1.0/24"),
            "{text}"
        );
    }

    #[test]
    fn a_cluster_id_never_changes() {
        assert_eq!(id(None, Some(&rome())).unwrap(), Some("rome".into()));
        assert_eq!(
            id(Some("rome"), Some(&rome())).unwrap(),
            Some("rome".into())
        );
        assert!(id(Some("milan"), Some(&rome())).is_err());
    }

    #[test]
    fn a_loopback_address_is_not_advertised() {
        for url in [
            "https://127.0.0.1:6443",
            "https://localhost:6443",
            "https://[::1]:6443",
        ] {
            assert_eq!(
                api_server(&Options::default(), url, &mut Vec::new()),
                None,
                "{url}"
            );
        }
    }

    #[test]
    fn an_address_that_differs_from_the_kubeconfig_is_reported() {
        let options = Options {
            api_server_url: Some("https://api.rome.example:443".into()),
            ..Options::default()
        };
        let mut notes = Vec::new();

        api_server(&options, "https://172.18.1.2:6443", &mut notes);

        assert_eq!(notes.len(), 1);
    }
}
