//! Chooses the namespace from which the objects of a peering are read.
//!
//! A user with rights in any one namespace can create objects there and label them with a peer's cluster ID.
//! Therefore a peer's objects have an effect in one namespace only, which an administrator chooses: the one with
//! the tenant labels, or else one that the installation's settings name.

use crate::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// Why an object of a peering has no effect, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    /// The peer has no tenant namespace.
    #[error(
        "namespace {namespace} is not the tenant namespace of peer {peer}: an administrator labels it \
         liqo.io/remote-cluster-id={peer} and liqo.io/tenant-namespace=true, or names it in the chart's \
         value networking.tenantNamespaces"
    )]
    NoTenantNamespace {
        /// Namespace of the object.
        namespace: String,
        /// Cluster ID of the peer.
        peer: String,
    },

    /// The peer has another tenant namespace.
    #[error(
        "the objects of peer {peer} are read from namespace {tenant} only: move this one from \
         {namespace} to {tenant}, or delete it"
    )]
    OtherNamespace {
        /// Namespace of the object.
        namespace: String,
        /// Cluster ID of the peer.
        peer: String,
        /// The peer's tenant namespace.
        tenant: String,
    },
}

impl Misplaced {
    /// Compares the namespace of an object with the tenant namespace of its peer.
    ///
    /// # Errors
    ///
    /// Returns the reason why the object has no effect.
    pub fn check(namespace: &str, peer: &str, tenant: Option<&str>) -> Result<(), Self> {
        let (namespace, peer) = (namespace.to_owned(), peer.to_owned());
        match tenant {
            Some(tenant) if tenant == namespace => Ok(()),
            Some(tenant) => Err(Self::OtherNamespace {
                namespace,
                peer,
                tenant: tenant.to_owned(),
            }),
            None => Err(Self::NoTenantNamespace { namespace, peer }),
        }
    }

    /// Returns the cluster ID of the peer.
    pub fn peer(&self) -> &str {
        match self {
            Self::NoTenantNamespace { peer, .. } | Self::OtherNamespace { peer, .. } => peer,
        }
    }
}

/// Returns the cluster ID of the peer whose objects a namespace may hold, by the namespace's labels.
pub fn peer_of(namespace: &ObjectMeta) -> Option<&str> {
    let labels = namespace.labels.as_ref()?;
    let is_tenant = labels.get(labels::TENANT_NAMESPACE)? == "true";
    let peer = labels.get(labels::REMOTE_CLUSTER_ID)?;

    (is_tenant && !peer.is_empty()).then_some(peer)
}

/// Orders peers by the creation of their labelled tenant namespaces; peers without one come last.
///
/// Only an administrator can label a namespace. The age of a peer's own objects is not compared, because a
/// user who may write them can edit an old object.
pub type Seniority = (bool, Option<Time>);

/// Returns the seniority of a peer, given the namespace that is labelled for it.
pub fn seniority(labelled: Option<&ObjectMeta>) -> Seniority {
    let created = labelled.and_then(|namespace| namespace.creation_timestamp.clone());

    (labelled.is_none(), created)
}

/// Chooses the tenant namespace of a peer.
///
/// The oldest labelled namespace precedes the first of the `named` ones that `holds` objects of the peer. A
/// labelled namespace that is being deleted comes last.
pub fn choose<'a>(
    labelled: impl Iterator<Item = &'a ObjectMeta>,
    named: &'a [String],
    holds: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    let rank = |namespace: &&ObjectMeta| {
        (
            namespace.deletion_timestamp.is_some(),
            namespace.creation_timestamp.clone(),
            namespace.name.clone(),
        )
    };
    let labelled = labelled.min_by_key(rank);
    let labelled = labelled.and_then(|namespace| namespace.name.as_deref());

    labelled.or_else(|| {
        let mut named = named.iter().map(String::as_str);
        named.find(|name| holds(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{from_value, json};

    fn namespace(name: &str, created: i64) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            creation_timestamp: Some(Time(Timestamp::from_second(created).unwrap())),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_tenant_namespace_has_both_labels() {
        let labelled = |labels| from_value(json!({"name": "a", "labels": labels})).unwrap();
        let both =
            json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});

        assert_eq!(peer_of(&labelled(both)), Some("milan"));
        for labels in [
            json!({}),
            json!({"liqo.io/remote-cluster-id": "milan"}),
            json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "false"}),
            json!({"liqo.io/remote-cluster-id": "", "liqo.io/tenant-namespace": "true"}),
            json!({"liqo.io/tenant-namespace": "true"}),
        ] {
            assert_eq!(peer_of(&labelled(labels.clone())), None, "{labels}");
        }
    }

    #[test]
    fn the_oldest_labelled_namespace_is_chosen_before_any_named_one() {
        let (old, young) = (namespace("old", 1), namespace("a-young", 2));
        let mut leaving = namespace("leaving", 0);
        leaving.deletion_timestamp = leaving.creation_timestamp.clone();
        let named = ["first", "second", "third"].map(str::to_owned);
        let chosen = |labelled: &[&ObjectMeta], holding: &str| {
            let labelled = labelled.iter().copied();
            choose(labelled, &named, |name| holding.contains(name)).map(str::to_owned)
        };

        assert_eq!(chosen(&[&young, &old], "first"), Some("old".into()));
        assert_eq!(chosen(&[&leaving, &young], ""), Some("a-young".into()));
        assert_eq!(chosen(&[&leaving], ""), Some("leaving".into()));
        assert_eq!(chosen(&[], "third second"), Some("second".into()));
        assert_eq!(chosen(&[], "developers"), None);
    }

    #[test]
    fn a_peer_with_an_older_labelled_namespace_is_senior() {
        let (old, young) = (namespace("old", 1), namespace("a-young", 2));

        assert!(seniority(Some(&old)) < seniority(Some(&young)));
        assert!(seniority(Some(&young)) < seniority(None));
    }

    #[test]
    fn a_misplaced_object_is_refused_with_the_remedy() {
        let check = |tenant| Misplaced::check("developers", "milan", tenant);

        assert_eq!(check(Some("developers")), Ok(()));
        let none = check(None).unwrap_err();
        assert!(none.to_string().contains("networking.tenantNamespaces"));
        let other = check(Some("liqo-tenant-milan")).unwrap_err();
        assert!(
            other
                .to_string()
                .contains("to liqo-tenant-milan, or delete")
        );
        assert_eq!((none.peer(), other.peer()), ("milan", "milan"));
    }
}
