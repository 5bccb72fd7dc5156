//! Where a service runs.

use std::env;
use std::fmt::{self, Display};

/// The pod that served a request, with its node and cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the pod.
    pub(crate) pod: String,
    /// Name of the node, as its own cluster calls it.
    pub(crate) node: String,
    /// Cluster ID of the provider if the pod is offloaded, otherwise `local`.
    pub(crate) cluster: String,
}

impl Place {
    /// Returns the place of this process, which the manifest writes to environment variables.
    pub(crate) fn of_this_process() -> Self {
        let variable = |name: &str, default: &str| {
            let value: String = env::var(name).unwrap_or_default();
            if is_name(&value) {
                value
            } else {
                default.to_owned()
            }
        };

        Self {
            pod: variable("POD_NAME", "unknown"),
            node: variable("NODE_NAME", "unknown"),
            // A pod of the local cluster lacks the label from which the variable is read.
            cluster: variable("CLUSTER", "local"),
        }
    }

    /// Parses `pod/node/cluster`. A missing cluster is `local`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (pod, node) = (parts.next()?, parts.next()?);
        let cluster = parts.next().filter(|it| !it.is_empty()).unwrap_or("local");
        let valid = [pod, node, cluster].into_iter().all(is_name) && parts.next().is_none();

        valid.then(|| Self {
            pod: pod.to_owned(),
            node: node.to_owned(),
            cluster: cluster.to_owned(),
        })
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.pod, self.node, self.cluster)
    }
}

/// Returns whether a text has the form of a Kubernetes object's name.
fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_parsed_from_its_text() {
        let place = Place::parse("cart-1/node-2/milan").unwrap();

        assert_eq!(place.to_string(), "cart-1/node-2/milan");
        assert_eq!(Place::parse("a/b/").unwrap().cluster, "local");
        for invalid in ["", "a", "/b/c", "a/b/c/d", "a/<b>/c", "a b/c/d"] {
            assert_eq!(Place::parse(invalid), None, "{invalid}");
        }
    }
}
