//! The stored release of helm: one Secret per revision.

use super::RELEASE;
use crate::cluster::Cluster;
use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};

/// The newest revision of the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// Name of the Secret that stores it.
    pub(crate) secret: String,
    /// Helm's status, as `deployed` or `pending-upgrade`.
    pub(crate) status: String,
    version: u32,
}

/// How to recover a release that an interrupted helm left pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// The release is not pending.
    No,
    /// The first installation or the removal was interrupted: uninstall the release.
    Uninstall,
    /// An upgrade or roll-back was interrupted: delete the revision.
    DeleteRevision,
}

impl Release {
    /// Returns the newest revision, or none if the release is not installed.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server fails.
    pub(crate) async fn find(cluster: &Cluster, namespace: &str) -> Result<Option<Self>> {
        let api = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
        let selector = format!("owner=helm,name={RELEASE}");
        let secrets = cluster.list(&api, "Helm's releases", &selector).await?;
        Ok(newest(&secrets))
    }

    /// Returns the recovery that must precede any other change.
    pub(crate) fn pending(&self) -> Pending {
        match self.status.as_str() {
            "pending-install" | "uninstalling" => Pending::Uninstall,
            "pending-upgrade" | "pending-rollback" => Pending::DeleteRevision,
            _ => Pending::No,
        }
    }
}

fn newest(secrets: &[Secret]) -> Option<Release> {
    secrets
        .iter()
        .filter_map(read)
        .max_by_key(|release| release.version)
}

fn read(secret: &Secret) -> Option<Release> {
    let labels = secret.labels();
    Some(Release {
        secret: secret.name_any(),
        status: labels.get("status")?.clone(),
        version: labels.get("version")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(version: &str, status: &str) -> Secret {
        serde_json::from_value(serde_json::json!({"metadata": {
            "name": format!("sh.helm.release.v1.liqo.v{version}"),
            "labels": {"owner": "helm", "name": "liqo", "version": version, "status": status},
        }}))
        .unwrap()
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let secrets = [secret("9", "superseded"), secret("10", "deployed")];

        let release = newest(&secrets).unwrap();

        assert_eq!(release.secret, "sh.helm.release.v1.liqo.v10");
        assert_eq!(release.pending(), Pending::No);
        assert_eq!(newest(&[]), None);
    }

    #[test]
    fn an_interrupted_release_is_recovered() {
        let pending = |status| newest(&[secret("1", status)]).unwrap().pending();

        assert_eq!(pending("pending-install"), Pending::Uninstall);
        assert_eq!(pending("uninstalling"), Pending::Uninstall);
        assert_eq!(pending("pending-upgrade"), Pending::DeleteRevision);
        assert_eq!(pending("failed"), Pending::No);
    }
}
