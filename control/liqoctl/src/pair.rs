//! The two clusters of a peering.

use crate::cluster::{Cluster, Flags, Installation, RemoteFlags};
use crate::global::Global;
use anyhow::{Result, bail};

/// One cluster of a peering.
pub(crate) struct Side {
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// Cluster ID and namespace of the installation.
    pub(crate) liqo: Installation,
    /// Cluster ID of the other cluster.
    pub(crate) peer: String,
}

/// Both clusters of a peering.
pub(crate) struct Pair {
    /// The cluster that the global flags name.
    pub(crate) local: Side,
    /// The cluster that the `--remote-*` flags name.
    pub(crate) remote: Side,
}

impl Pair {
    /// Returns rome, which is local, and milan behind listeners of a test.
    #[cfg(test)]
    pub(crate) fn behind(rome: &fake_apiserver::Front, milan: &fake_apiserver::Front) -> Self {
        let side = |front, side, id: &str, peer: &str| Side {
            cluster: Cluster::behind(front, side),
            liqo: Installation {
                cluster_id: id.to_owned(),
                namespace: "liqo".to_owned(),
            },
            peer: peer.to_owned(),
        };
        Self {
            local: side(rome, "local", "rome", "milan"),
            remote: side(milan, "remote", "milan", "rome"),
        }
    }

    /// Finds Liqo in both clusters.
    ///
    /// # Errors
    ///
    /// Returns an error if a cluster is unreachable or has no installation, or if both are the
    /// same cluster.
    pub(crate) async fn open(global: &Global, flags: &RemoteFlags) -> Result<Self> {
        Self::connect(global, Flags::local(global), Flags::remote(flags)).await
    }

    /// Finds Liqo in both clusters, for a command whose `--namespace` and `--remote-namespace` name the namespaces
    /// of Liqo.
    ///
    /// # Errors
    ///
    /// Returns an error as [`Self::open`] does.
    pub(crate) async fn open_liqo(global: &Global, flags: &RemoteFlags) -> Result<Self> {
        let local = Flags::local(global).with_liqo_in_namespace();
        let remote = Flags::remote(flags).with_liqo_in_namespace();
        Self::connect(global, local, remote).await
    }

    async fn connect(global: &Global, local: Flags<'_>, remote: Flags<'_>) -> Result<Self> {
        let local = Cluster::open(global, local).await?;
        let remote = Cluster::open(global, remote).await?;
        let (here, there) = tokio::try_join!(local.installation(), remote.installation())?;
        // Other clusters have other IDs, or addresses.
        if here.cluster_id == there.cluster_id || local.url == remote.url {
            let (mine, theirs) = tokio::try_join!(local.identity(), remote.identity())?;
            refuse_one_cluster(
                (&local.url, mine.as_deref()),
                (&remote.url, theirs.as_deref()),
            )?;
        }
        refuse_one_id(&here.cluster_id, &there.cluster_id)?;
        let (id, peer) = (here.cluster_id.clone(), there.cluster_id.clone());
        Ok(Self {
            local: Side {
                cluster: local,
                liqo: here,
                peer,
            },
            remote: Side {
                cluster: remote,
                liqo: there,
                peer: id,
            },
        })
    }
}

/// Refuses two names of one cluster: equal UIDs or, if a UID cannot be read, equal addresses.
fn refuse_one_cluster(local: (&str, Option<&str>), remote: (&str, Option<&str>)) -> Result<()> {
    let same = match (local.1, remote.1) {
        (Some(mine), Some(theirs)) => mine == theirs,
        _ => local.0 == remote.0,
    };
    if same {
        bail!(
            "the local and the remote cluster are the same ({}): name another one with --remote-kubeconfig or --remote-context",
            local.0
        );
    }
    Ok(())
}

fn refuse_one_id(local: &str, remote: &str) -> Result<()> {
    if local == remote {
        bail!(
            "both clusters have the cluster ID {local}: uninstall Liqo in one of them and install it with another --cluster-id"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_with_itself_is_refused_at_any_address() {
        let error = refuse_one_cluster(
            ("https://a:6443", Some("uid")),
            ("https://b:6443", Some("uid")),
        )
        .unwrap_err();

        assert!(error.to_string().contains("--remote-kubeconfig"));
        assert!(refuse_one_cluster(("https://a", None), ("https://a", Some("u"))).is_err());
    }

    #[test]
    fn two_clusters_behind_one_address_are_accepted() {
        assert!(refuse_one_cluster(("https://a", Some("u")), ("https://a", Some("v"))).is_ok());
    }

    #[test]
    fn equal_cluster_ids_are_refused() {
        assert!(refuse_one_id("rome", "rome").is_err());
        assert!(refuse_one_id("rome", "milan").is_ok());
    }
}
