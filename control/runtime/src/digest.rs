//! Objects of which the cache keeps a digest only.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::fmt;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::LazyLock;

/// A keyed digest of 128 bits. The keys are random per process, so digests are comparable within one
/// process only, and a digest of a Secret cannot be computed elsewhere from a guess of its content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u64; 2]);

impl Digest {
    /// Returns the digest of a value, for example of the fields of an object as they are written to
    /// another cluster, so that it is comparable with that of the object there.
    pub fn of<T: Hash>(value: &T) -> Self {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(Default::default);
        let [first, second] = &*KEYS;
        Self([first.hash_one(value), second.hash_one(value)])
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(..)")
    }
}

/// The metadata of an object, and a digest of its content.
#[derive(Clone, Debug, PartialEq)]
pub struct Digested {
    /// The metadata, without what the server changes with each write.
    pub metadata: ObjectMeta,
    /// Digest of the content.
    pub digest: Digest,
}

impl Digested {
    /// Keeps metadata, and the digest of the content that matters.
    pub fn new<T: Hash>(metadata: ObjectMeta, content: &T) -> Self {
        Self {
            metadata: ObjectMeta {
                resource_version: None,
                generation: None,
                managed_fields: None,
                ..metadata
            },
            digest: Digest::of(content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn equal_content_has_equal_digests_in_any_order_of_fields() {
        let first: Value =
            serde_json::from_str(r#"{"a": 1, "b": {"c": [2, "x"], "d": null}}"#).unwrap();
        let second: Value =
            serde_json::from_str(r#"{"b": {"d": null, "c": [2, "x"]}, "a": 1}"#).unwrap();

        assert_eq!(Digest::of(&first), Digest::of(&second));
        for other in [
            json!({"a": 1, "b": {"c": ["x", 2], "d": null}}),
            json!({"a": 1, "b": {"c": [2, "x"]}}),
            json!({"a": "1", "b": {"c": [2, "x"], "d": null}}),
            json!({}),
        ] {
            assert_ne!(Digest::of(&first), Digest::of(&other), "{other}");
        }
    }

    #[test]
    fn a_digest_shows_no_content_and_ignores_versions() {
        let metadata = |version: &str| ObjectMeta {
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        };
        let first = Digested::new(metadata("1"), &"password");

        assert_eq!(first, Digested::new(metadata("2"), &"password"));
        assert_ne!(first, Digested::new(metadata("1"), &"passwort"));
        assert_eq!(format!("{:?}", first.digest), "Digest(..)");
    }
}
