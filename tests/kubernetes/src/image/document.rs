//! The documents of an image, as of the OCI image specification 1.1.
//!
//! Structures with fields in a fixed order and ordered maps: the same image is the
//! same text.

use super::Platform;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The system that images are for.
pub(super) const OS: &str = "linux";

/// The key under which `containerd` looks for a complete name, then the common one.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// The version of the documents' form.
const SCHEMA: u8 = 2;

/// What a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum MediaType {
    /// Images for several platforms, or the top of an archive.
    #[serde(rename = "application/vnd.oci.image.index.v1+json")]
    Index,
    /// One image's parts.
    #[serde(rename = "application/vnd.oci.image.manifest.v1+json")]
    Manifest,
    /// How to run an image.
    #[serde(rename = "application/vnd.oci.image.config.v1+json")]
    Config,
    /// Files, as a tar.
    #[serde(rename = "application/vnd.oci.image.layer.v1.tar")]
    Layer,
    /// The same, compressed.
    #[serde(rename = "application/vnd.oci.image.layer.v1.tar+gzip")]
    LayerGzip,
}

/// A blob of the archive.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blob {
    /// What it is.
    pub(super) media_type: MediaType,
    /// `sha256:` and the sum in hexadecimal.
    pub(super) digest: String,
    /// Its length in bytes.
    pub(super) size: u64,
}

/// A blob, and what an index tells about it.
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

    /// Tells what the image runs on.
    pub(super) fn on(mut self, architecture: Platform) -> Self {
        self.platform = Some(On {
            architecture,
            os: OS,
        });
        self
    }

    /// Gives the image a name.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.annotations = NAMES.map(|key| (key, name.to_owned())).into();
        self
    }
}

/// Images, each for another platform or under another name.
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

/// The parts of one image.
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

/// How to run an image.
#[derive(Debug, Serialize)]
pub(super) struct Config {
    pub(super) created: String,
    pub(super) architecture: Platform,
    pub(super) os: &'static str,
    pub(super) config: Process,
    pub(super) rootfs: RootFs,
}

/// What is started in it.
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

/// The digests of what is in the layers.
#[derive(Debug, Serialize)]
pub(super) struct RootFs {
    r#type: &'static str,
    diff_ids: Vec<String>,
}

impl RootFs {
    /// Of the digests of the layers' tars, before any compression.
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
