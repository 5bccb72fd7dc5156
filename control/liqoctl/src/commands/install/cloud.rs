//! Commands that print the CIDRs of a cluster of a cloud service.

use super::args::Provider;

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
    use super::super::args::Gke;
    use super::*;

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
