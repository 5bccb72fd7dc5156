//! The two clusters that a command is about.

use crate::cluster::{Cluster, Flags, Installation, RemoteFlags};
use crate::global::Global;
use anyhow::{Result, bail};

/// A cluster with Liqo, and the peer that the other one is for it.
pub(crate) struct Side {
    /// The cluster.
    pub(crate) cluster: Cluster,
    /// Liqo in it.
    pub(crate) liqo: Installation,
    /// The id of the other cluster.
    pub(crate) peer: String,
}

/// Both clusters.
pub(crate) struct Pair {
    /// The one that this command is run on.
    pub(crate) local: Side,
    /// The other one.
    pub(crate) remote: Side,
}

impl Pair {
    /// Finds Liqo in both clusters.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them cannot be reached or has no Liqo, or if they are one
    /// and the same.
    pub(crate) async fn open(global: &Global, flags: &RemoteFlags) -> Result<Self> {
        let local = Cluster::local(global).await?;
        let remote = Cluster::open(global, Flags::remote(flags)).await?;
        let (mine, theirs) = tokio::try_join!(local.identity(), remote.identity())?;
        refuse_one_cluster(
            (&local.url, mine.as_deref()),
            (&remote.url, theirs.as_deref()),
        )?;
        let (here, there) = tokio::try_join!(local.installation(), remote.installation())?;
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

/// Refuses a cluster that was given twice: same identity or, where that may not be read,
/// same address.
fn refuse_one_cluster(local: (&str, Option<&str>), remote: (&str, Option<&str>)) -> Result<()> {
    let same = match (local.1, remote.1) {
        (Some(mine), Some(theirs)) => mine == theirs,
        _ => local.0 == remote.0,
    };
    if same {
        bail!(
            "local and remote are one cluster ({}): give the other one by --remote-kubeconfig or --remote-context",
            local.0
        );
    }
    Ok(())
}

fn refuse_one_id(local: &str, remote: &str) -> Result<()> {
    if local == remote {
        bail!(
            "both clusters have the id {local}: uninstall Liqo in one of them and install it with another --cluster-id"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cluster_given_twice_is_refused_whatever_its_address() {
        let error = refuse_one_cluster(
            ("https://a:6443", Some("uid")),
            ("https://b:6443", Some("uid")),
        )
        .unwrap_err();

        assert!(error.to_string().contains("--remote-kubeconfig"));
        assert!(refuse_one_cluster(("https://a", None), ("https://a", Some("u"))).is_err());
    }

    #[test]
    fn two_clusters_behind_one_address_are_two() {
        assert!(refuse_one_cluster(("https://a", Some("u")), ("https://a", Some("v"))).is_ok());
    }

    #[test]
    fn one_id_for_two_clusters_is_refused() {
        assert!(refuse_one_id("rome", "rome").is_err());
        assert!(refuse_one_id("rome", "milan").is_ok());
    }
}
