//! The JSON documents of the OCI image specification 1.1.
//!
//! Fields of structures and keys of maps have a fixed order, so that the same image has the same
//! bytes.

use super::Platform;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The operating system that all images declare.
pub(super) const OS: &str = "linux";

/// The annotations for the name of an image: containerd's key, and the key of the specification.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// The value of `schemaVersion` in all documents.
const SCHEMA: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum MediaType {
    /// An index of images. The images differ in platform, or belong to the same archive.
    #[serde(rename = "application/vnd.oci.image.index.v1+json")]
    Index,
    /// The manifest of an image for a single platform.
    #[serde(rename = "application/vnd.oci.image.manifest.v1+json")]
    Manifest,
    /// The configuration of an image, which contains the entrypoint and the environment.
    #[serde(rename = "application/vnd.oci.image.config.v1+json")]
    Config,
    /// A layer as an uncompressed tar.
    #[serde(rename = "application/vnd.oci.image.layer.v1.tar")]
    Layer,
    /// A layer as a tar compressed by gzip.
    #[serde(rename = "application/vnd.oci.image.layer.v1.tar+gzip")]
    LayerGzip,
}

/// A reference to a blob of the archive.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob {
    pub(super) media_type: MediaType,
    /// `sha256:` and the hash in hexadecimal digits.
    pub(super) digest: String,
    /// The length of the blob in bytes.
    pub(super) size: u64,
}

/// A reference to a blob in an index, with an optional platform and an optional name.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Descriptor {
    #[serde(flatten)]
    blob: Blob,
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<On>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct On {
    architecture: Platform,
    os: &'static str,
}

impl Descriptor {
    pub(super) fn new(blob: Blob) -> Self {
        Self {
            blob,
            platform: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Sets the platform of the image that the blob describes.
    pub(super) fn on(mut self, architecture: Platform) -> Self {
        self.platform = Some(On {
            architecture,
            os: OS,
        });
        self
    }

    /// Sets the name of the image that the blob describes.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.annotations = NAMES.map(|key| (key, name.to_owned())).into();
        self
    }
}

/// An index of images with different platforms or names.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u8,
    media_type: MediaType,
    manifests: Vec<Descriptor>,
}

impl Index {
    pub(super) fn new(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: SCHEMA,
            media_type: MediaType::Index,
            manifests,
        }
    }
}

/// The manifest of an image for a single platform.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    schema_version: u8,
    media_type: MediaType,
    config: Blob,
    layers: Vec<Blob>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn new(
        config: Blob,
        layers: Vec<Blob>,
        annotations: BTreeMap<String, String>,
    ) -> Self {
        Self {
            schema_version: SCHEMA,
            media_type: MediaType::Manifest,
            config,
            layers,
            annotations,
        }
    }
}

/// The configuration of an image for a single platform.
#[derive(Debug, Serialize)]
pub(super) struct Config {
    pub(super) created: String,
    pub(super) architecture: Platform,
    pub(super) os: &'static str,
    pub(super) config: Process,
    pub(super) rootfs: RootFs,
}

/// The entrypoint, the command, the environment and the labels of an image.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Process {
    pub(super) env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) entrypoint: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cmd: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
}

/// The digests of the uncompressed layers.
#[derive(Debug, Serialize)]
pub(super) struct RootFs {
    r#type: &'static str,
    diff_ids: Vec<String>,
}

impl RootFs {
    /// Creates the list from the digests of the uncompressed tars.
    pub(super) fn new(digests: impl IntoIterator<Item = String>) -> Self {
        Self {
            r#type: "layers",
            diff_ids: digests.into_iter().collect(),
        }
    }
}

impl Serialize for Platform {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
