//! Names of the ConfigMap with the CA of the API server.

/// ConfigMap with the CA of the API server, which Kubernetes creates in every namespace.
pub const ROOT_CA: &str = "kube-root-ca.crt";

/// Characters of the cluster ID in the name of the reflected [`ROOT_CA`].
const ID_LENGTH: usize = 5;

/// Returns the name at a provider of the [`ROOT_CA`] of the cluster `cluster_id`.
pub fn reflected_name(cluster_id: &str) -> String {
    let id: String = cluster_id.chars().take(ID_LENGTH).collect();
    // A name ends with a letter or a digit.
    let end = if id.ends_with(|it: char| it.is_ascii_alphanumeric()) {
        ""
    } else {
        "a"
    };
    format!("{ROOT_CA}.{id}{end}")
}
