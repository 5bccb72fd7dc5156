//! Writes an image for `cargo xtask image`. The only argument describes the image in JSON:
//!
//! ```json
//! {
//!   "archive": "target/images/liqo-route-agent.tar",
//!   "names": ["localhost/liqo/route-agent:dev"],
//!   "labels": {"org.opencontainers.image.title": "liqo-route-agent"},
//!   "entrypoint": ["/usr/bin/route-agent"],
//!   "platforms": [{
//!     "platform": "amd64",
//!     "files": {"/usr/bin/route-agent": "target/.../release/route-agent"},
//!     "programs": {"nft": "nftables"},
//!     "system": "/"
//!   }]
//! }
//! ```
//!
//! `programs` maps names of programs to Debian packages. The programs are copied from `system`,
//! which is the root directory of this machine or a folder of unpacked packages.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result, bail};
use kubernetes_lab::image::programs::System;
use kubernetes_lab::image::{self, Compression, Created, Image, Tree};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

/// The argument of the program, which describes an image.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    archive: PathBuf,
    names: Vec<String>,
    labels: BTreeMap<String, String>,
    entrypoint: Vec<String>,
    platforms: Vec<Content>,
}

/// The content of the image for a single platform.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    platform: String,
    /// The absolute path of each file in the image, and the path of its source.
    files: BTreeMap<String, PathBuf>,
    programs: BTreeMap<String, String>,
    system: PathBuf,
}

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(plan), None) = (arguments.next(), arguments.next()) else {
        bail!("usage: image-archive JSON; use `cargo xtask image` instead");
    };

    let plan: Plan = serde_json::from_str(&plan).context("failed to parse the plan")?;
    let images = plan
        .platforms
        .iter()
        .map(|content| image(&plan, content))
        .collect::<Result<Vec<_>>>()?;
    image::write(&plan.archive, &plan.names, &images)
}

fn image(plan: &Plan, content: &Content) -> Result<Image> {
    let system = if content.system == Path::new("/") {
        System::machine()
    } else {
        System::at(&content.system)
    };
    let mut tree = Tree::merged_usr();
    for (path, source) in &content.files {
        tree.file(path, source)?;
    }
    for (program, package) in &content.programs {
        system.add(&mut tree, program, package)?;
    }

    let entrypoint: Vec<_> = plan.entrypoint.iter().map(String::as_str).collect();
    let mut image = Image::new(content.platform.parse()?, tree, &entrypoint);
    image.labels.clone_from(&plan.labels);
    image.compression = Compression::Gzip;
    image.created = Created::from_environment()?;
    Ok(image)
}
