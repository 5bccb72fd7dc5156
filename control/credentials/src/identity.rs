//! Subjects of client certificates: Kubernetes takes the organization as group and the common name as user.

use crate::digest::hex;
use sha2::{Digest as _, Sha256};

/// Organization of the certificates for the control plane.
pub const CONTROL_PLANE_GROUP: &str = "liqo.io";

/// Subject of a client certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Organization: the group.
    pub organization: String,
    /// Common name: the user.
    pub common_name: String,
}

impl Subject {
    /// Returns the subject of a consumer's control plane.
    pub fn control_plane(cluster_id: &str) -> Self {
        Self {
            organization: CONTROL_PLANE_GROUP.to_owned(),
            common_name: cluster_id.to_owned(),
        }
    }

    /// Returns the subject for a ResourceSlice of a consumer.
    ///
    /// The common name ends with 12 hexadecimal digits of the SHA-256 of the cluster ID, so that slices of
    /// different consumers with one name are different users.
    pub fn resource_slice(cluster_id: &str, slice: &str) -> Self {
        let digest = Sha256::digest(cluster_id.as_bytes());

        Self {
            organization: cluster_id.to_owned(),
            common_name: format!("{slice}-{}", hex(&digest[..6])),
        }
    }

    /// Returns the subject of a user who may peer with this cluster on behalf of a consumer.
    pub fn peering_user(cluster_id: &str, random: [u8; 16]) -> Self {
        Self {
            organization: CONTROL_PLANE_GROUP.to_owned(),
            common_name: format!("liqo-peer-user-{cluster_id}-{}", hex(&random)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_are_those_of_upstream() {
        let slice = Subject::resource_slice("rome", "milan");
        assert_eq!(slice.common_name, "milan-a8a4c692b93b");
        assert_eq!(slice.organization, "rome");

        let control_plane = Subject::control_plane("rome");
        assert_eq!(control_plane.organization, "liqo.io");
        assert_eq!(control_plane.common_name, "rome");
        assert_eq!(
            Subject::peering_user("naples", [0xab; 16]).common_name,
            format!("liqo-peer-user-naples-{}", "ab".repeat(16))
        );
    }
}
