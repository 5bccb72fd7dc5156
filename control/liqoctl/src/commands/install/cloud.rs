//! How to learn what a cloud's cluster does not tell about itself.

use super::args::Provider;

/// Returns the command whose answer holds the CIDRs, for a person to run.
pub(crate) fn how_to_ask(provider: Option<&Provider>) -> String {
    let word =
        |given: &Option<String>, name: &str| given.clone().unwrap_or_else(|| format!("<{name}>"));
    match provider {
        Some(Provider::Aks(aks)) => format!(
            "ask `az aks show --resource-group {} --name {} --query networkProfile` and give podCidr and serviceCidr by --pod-cidr and --service-cidr",
            word(&aks.resource_group_name, "group"),
            word(&aks.resource_name, "name"),
        ),
        Some(Provider::Eks(eks)) => format!(
            "ask `aws eks describe-cluster --region {} --name {}` for kubernetesNetworkConfig.serviceIpv4Cidr and `aws ec2 describe-vpcs` for the VPC's CIDR, which pods have, and give them by --service-cidr and --pod-cidr",
            word(&eks.eks_cluster_region, "region"),
            word(&eks.eks_cluster_name, "name"),
        ),
        Some(Provider::Gke(gke)) => format!(
            "ask `gcloud container clusters describe <name> --project {} --location {}` and give clusterIpv4Cidr and servicesIpv4Cidr by --pod-cidr and --service-cidr",
            word(&gke.project_id, "project"),
            word(
                &gke.region.clone().or_else(|| gke.zone.clone()),
                "zone or region"
            ),
        ),
        Some(Provider::Kubeadm | Provider::Kind | Provider::K3s | Provider::Openshift) | None => {
            "give it by the flag".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Gke;
    use super::*;

    #[test]
    fn the_command_is_about_the_cluster_that_was_named() {
        let gke = Provider::Gke(Gke {
            project_id: Some("museum".into()),
            zone: Some("europe-west1-b".into()),
            ..Gke::default()
        });

        let text = how_to_ask(Some(&gke));

        assert!(text.contains("--project museum --location europe-west1-b"));
        assert_eq!(how_to_ask(None), "give it by the flag");
    }
}
