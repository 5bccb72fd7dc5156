//! The documents of the OCI image specification 1.1.
//!
//! Structures have a fixed order of fields, and maps are ordered, so that the same image has the same
//! bytes.

use super::Platform;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The operating system of images.
pub(super) const OS: &str = "linux";

/// The annotations for a name: the fully qualified one of containerd, then the common one.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// The `schemaVersion` of the documents.
const SCHEMA: u8 = 2;

/// The media type of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum MediaType {
    /// An index of images for several platforms, or of an archive.
    #[serde(rename = "application/vnd.oci.image.index.v1+json")]
    Index,
    /// The manifest of one image.
    #[serde(rename = "application/vnd.oci.image.manifest.v1+json")]
    Manifest,
    /// The configuration of an image.
    #[serde(rename = "application/vnd.oci.image.config.v1+json")]
    Config,
    /// An uncompressed tar.
    #[serde(rename = "application/vnd.oci.image.layer.v1.tar")]
    Layer,
    /// A compressed tar.
    #[serde(rename = "application/vnd.oci.image.layer.v1.tar+gzip")]
    LayerGzip,
}

/// A blob of the archive.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob {
    pub(super) media_type: MediaType,
    /// `sha256:` and the hash in hexadecimal.
    pub(super) digest: String,
    /// The length in bytes.
    pub(super) size: u64,
}

/// A blob with its attributes in an index.
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

    /// Sets the platform of the image.
    pub(super) fn on(mut self, architecture: Platform) -> Self {
        self.platform = Some(On {
            architecture,
            os: OS,
        });
        self
    }

    /// Sets the name of the image.
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

/// The manifest of one image.
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

/// The configuration of an image.
#[derive(Debug, Serialize)]
pub(super) struct Config {
    pub(super) created: String,
    pub(super) architecture: Platform,
    pub(super) os: &'static str,
    pub(super) config: Process,
    pub(super) rootfs: RootFs,
}

/// The entrypoint and the environment.
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
    /// Creates it from the digests of uncompressed tars.
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
