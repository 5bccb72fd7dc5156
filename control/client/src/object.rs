//! Names of clusters, resources and objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A cluster whose API server this process talks to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cluster {
    /// The cluster that this process belongs to.
    Local,
    /// A peer, by its cluster ID.
    Remote(Arc<str>),
}

impl Cluster {
    /// Returns the peer with this cluster ID.
    pub fn remote(id: &str) -> Self {
        Self::Remote(id.into())
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Remote(id) => f.write_str(id),
        }
    }
}

/// Characters that Kubernetes allows in names; others are encoded.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b':');

/// A resource of the Kubernetes API: group, version, kind and plural name.
///
/// The kind follows from the other three, so resources are compared without it. It is empty if a setting names the resource, until
/// an object of the resource is known.
#[derive(Clone, Debug)]
pub struct Resource {
    /// API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// Version within the group, for example `v1beta1`.
    pub version: Cow<'static, str>,
    /// Kind of the objects, for example `ConfigMap`; empty if it is not known.
    pub kind: Cow<'static, str>,
    /// Name of the resource in URLs and roles, for example `configmaps`.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// Returns the resource of a type that is known at compile time.
    pub fn of<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
        }
    }

    /// Returns `version` for the core group, else `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the resource as kube names it.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_string(),
            version: self.version.to_string(),
            api_version: self.api_version(),
            kind: self.kind.to_string(),
            plural: self.plural.to_string(),
        }
    }

    /// Returns the URL path of the resource, or of one object, without query.
    pub fn path(&self, namespace: &str, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }

        path
    }
}

impl Resource {
    fn identity(&self) -> (&str, &str, &str) {
        (&self.group, &self.version, &self.plural)
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Resource {}

impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Resource {
    fn cmp(&self, other: &Self) -> Ordering {
        self.identity().cmp(&other.identity())
    }
}

impl Hash for Resource {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

/// Name of an object within its resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl Key {
    /// Creates the key of a namespaced object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: impl Into<String>) -> Self {
        Self::new("", name)
    }
}

/// Returns the key of an object from its metadata.
pub fn key_of(meta: &ObjectMeta) -> Key {
    Key {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// An object of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ref {
    /// Cluster that has the object.
    pub cluster: Cluster,
    /// Resource of the object.
    pub resource: Resource,
    /// Name of the object.
    pub key: Key,
}

impl Ref {
    /// Creates a reference.
    pub fn new(cluster: &Cluster, resource: &Resource, key: &Key) -> Self {
        Self {
            cluster: cluster.clone(),
            resource: resource.clone(),
            key: key.clone(),
        }
    }

    /// Returns the reference to an object of a type that is known at compile time.
    pub fn of<K: kube::Resource<DynamicType = ()>>(cluster: &Cluster, key: &Key) -> Self {
        Self::new(cluster, &Resource::of::<K>(), key)
    }

    /// Returns the URL path of the object or of a subresource, with the parameters of `query`. Without a name, it is
    /// the path of all objects of the resource.
    pub fn path(&self, subresource: Option<&str>, query: &[(&str, &str)]) -> String {
        let encode = |text: &str| utf8_percent_encode(text, PATH).to_string();
        let (namespace, name) = (encode(&self.key.namespace), encode(&self.key.name));
        let name = (!name.is_empty()).then_some(name.as_str());
        let mut path = self.resource.path(&namespace, name);
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(subresource);
        }
        for (position, (name, value)) in query.iter().enumerate() {
            path.push(if position == 0 { '?' } else { '&' });
            path.push_str(name);
            path.push('=');
            path.push_str(&encode(value));
        }

        path
    }

    /// Returns the first part of the key that would address another object.
    pub fn invalid_part(&self) -> Option<&str> {
        let parts = [self.key.namespace.as_str(), self.key.name.as_str()];
        let is_invalid = |part: &&str| *part == "." || *part == ".." || part.contains(['/', '%']);
        parts.into_iter().find(is_invalid)
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resource.kind.as_ref() {
            "" => write!(f, "{} {}", self.resource, self.key)?,
            kind => write!(f, "{kind} {}", self.key)?,
        }
        if self.cluster != Cluster::Local {
            write!(f, " of cluster {}", self.cluster)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::coordination::v1::Lease;
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};

    #[test]
    fn a_path_has_group_namespace_and_name() {
        let pods = Resource::of::<Pod>();
        let leases = Resource::of::<Lease>();

        assert_eq!(pods.path("", None), "/api/v1/pods");
        assert_eq!(
            pods.path("liqo", Some("gateway-0")),
            "/api/v1/namespaces/liqo/pods/gateway-0"
        );
        assert_eq!(
            leases.path("liqo", Some("a")),
            "/apis/coordination.k8s.io/v1/namespaces/liqo/leases/a"
        );
    }

    #[test]
    fn the_text_of_a_reference_names_kind_key_and_remote_cluster() {
        let local = Ref::of::<Node>(&Cluster::Local, &Key::cluster("rome-1"));
        let remote = Ref::of::<Pod>(&Cluster::remote("milan"), &Key::new("shop", "web"));

        assert_eq!(local.to_string(), "Node rome-1");
        assert_eq!(remote.to_string(), "Pod shop/web of cluster milan");
    }

    #[test]
    fn a_resource_whose_kind_is_not_known_is_the_same_one() {
        let known = Resource::of::<Lease>();
        let unknown = Resource {
            kind: "".into(),
            ..known.clone()
        };
        let other = Resource {
            version: "v1beta1".into(),
            ..known.clone()
        };

        assert_eq!(known, unknown);
        assert!(known != other && known.cmp(&other).is_lt());
        let object = Ref::new(&Cluster::Local, &unknown, &Key::new("liqo", "a"));
        assert_eq!(object.to_string(), "leases.coordination.k8s.io liqo/a");
    }

    #[test]
    fn names_that_would_address_another_object_are_invalid() {
        let map =
            |namespace, name| Ref::of::<ConfigMap>(&Cluster::Local, &Key::new(namespace, name));
        for name in ["..", ".", "a/b", "../secrets/x", "%2e%2e"] {
            assert_eq!(map("a", name).invalid_part(), Some(name));
            assert_eq!(map(name, "a").invalid_part(), Some(name));
        }
        assert_eq!(map("a", "b.c-d").invalid_part(), None);
        // Characters that separate a query are encoded.
        let path = map("a", "b?force=true#x").path(None, &[("a", "b c")]);
        assert_eq!(
            path,
            "/api/v1/namespaces/a/configmaps/b%3Fforce%3Dtrue%23x?a=b%20c"
        );
    }
}
