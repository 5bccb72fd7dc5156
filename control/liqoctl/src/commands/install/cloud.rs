//! Cloud services: commands that print the CIDRs of a cluster, and flags that are refused.

use super::args::Provider;
use anyhow::{Result, bail};

/// Refuses the access key of an IAM user, with which upstream's consumers authenticate at a provider on EKS.
///
/// # Errors
///
/// Returns an error that names the flags.
pub(crate) fn refuse_credentials(provider: Option<&Provider>) -> Result<()> {
    let Some(Provider::Eks(eks)) = provider else {
        return Ok(());
    };
    let flags = [
        ("--access-key-id", &eks.access_key_id),
        ("--secret-access-key", &eks.secret_access_key),
    ];
    let set = flags.iter().filter(|(_, value)| value.is_some());
    let set: Vec<&str> = set.map(|(flag, _)| *flag).collect();
    if !set.is_empty() {
        bail!(
            "{} would be ignored, because Liqo issues no access keys of AWS to consumers: omit it. The cluster can then be a consumer, \
             but no provider, because EKS signs no certificates of clients",
            set.join(" and ")
        );
    }
    Ok(())
}

/// Returns the remedy for undetected CIDRs: a command that prints them, and the flags to set.
pub(crate) fn remedy(provider: Option<&Provider>) -> String {
    let word =
        |flag: &Option<String>, name: &str| flag.clone().unwrap_or_else(|| format!("<{name}>"));
    match provider {
        Some(Provider::Aks(aks)) => format!(
            "run `az aks show --resource-group {} --name {} --query networkProfile` and set --pod-cidr to podCidr and --service-cidr to serviceCidr",
            word(&aks.resource_group_name, "group"),
            word(&aks.resource_name, "name"),
        ),
        Some(Provider::Eks(eks)) => format!(
            "set --service-cidr to kubernetesNetworkConfig.serviceIpv4Cidr of `aws eks describe-cluster --region {} --name {}`, and --pod-cidr to the CIDR of the VPC in `aws ec2 describe-vpcs`",
            word(&eks.eks_cluster_region, "region"),
            word(&eks.eks_cluster_name, "name"),
        ),
        Some(Provider::Gke(gke)) => format!(
            "run `gcloud container clusters describe <name> --project {} --location {}` and set --pod-cidr to clusterIpv4Cidr and --service-cidr to servicesIpv4Cidr",
            word(&gke.project_id, "project"),
            word(
                &gke.region.clone().or_else(|| gke.zone.clone()),
                "zone or region"
            ),
        ),
        Some(Provider::Kubeadm | Provider::Kind | Provider::K3s | Provider::Openshift) | None => {
            "set the flag".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::{Eks, Gke};
    use super::*;

    #[test]
    fn an_access_key_is_refused_by_the_name_of_its_flag() {
        let of = |id: Option<&str>, secret: Option<&str>| {
            let eks = Eks {
                access_key_id: id.map(ToOwned::to_owned),
                secret_access_key: secret.map(ToOwned::to_owned),
                ..Eks::default()
            };
            let refused = refuse_credentials(Some(&Provider::Eks(eks)));
            refused.map_err(|error| error.to_string())
        };

        assert_eq!(of(None, None), Ok(()));
        assert!(
            of(Some("AKIA"), None)
                .unwrap_err()
                .starts_with("--access-key-id would")
        );
        let error = of(Some("AKIA"), Some("hidden")).unwrap_err();
        assert!(
            error.starts_with("--access-key-id and --secret-access-key would"),
            "{error}"
        );
        assert!(
            !error.contains("AKIA") && !error.contains("hidden"),
            "{error}"
        );
    }

    #[test]
    fn the_command_contains_the_names_in_the_flags() {
        let gke = Provider::Gke(Gke {
            project_id: Some("museum".into()),
            zone: Some("europe-west1-b".into()),
            ..Gke::default()
        });

        let text = remedy(Some(&gke));

        assert!(text.contains("--project museum --location europe-west1-b"));
        assert_eq!(remedy(None), "set the flag");
    }
}
