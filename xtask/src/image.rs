//! `cargo xtask image`: builds container images as archives for `ctr images import`.
//!
//! An image contains one statically linked binary. If the binary runs another program, the image
//! also contains that program and its libraries.
//!
//! Builds of the same checkout in the same folder produce byte-identical images. In another folder,
//! only the names of functions in the eBPF programs differ. Cargo derives these names from the path
//! of `ebpf/common`, which is outside of the eBPF programs' workspace.

pub(crate) mod build;

mod archive;
mod debian;
mod processor;

pub(crate) use processor::Processor;

use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, setup, workspace};
use anyhow::{Context as _, Result};
use archive::{Content, Plan};
use build::Selection;
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{env, fs};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The processor architectures to build for, all in one archive: amd64, arm64 or amd64,arm64
    /// [default: the architecture of this machine].
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Processor>,

    /// The tag of the image names.
    #[arg(long, default_value = "dev", value_parser = tag)]
    tag: String,

    /// The folder for the archives [default: target/images].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// A process of this project, and the properties of its image.
struct Shipped {
    package: &'static str,
    what: &'static str,
    /// The external program that the process runs, and the Debian package that contains this
    /// program.
    drives: Option<(&'static str, &'static str)>,
    /// The licences of all files in the image, as an SPDX expression.
    licenses: &'static str,
}

/// The packages of a release: those of the images, and `liqoctl`. Each build selects all of them.
/// Otherwise cargo would select other features of dependencies, and build these dependencies again.
pub(crate) const RELEASED: [&str; 6] = [
    "controller-manager",
    "edge",
    "gateway",
    "liqoctl",
    "route-agent",
    "virtual-kubelet",
];

const SHIPPED: [Shipped; 5] = [
    Shipped {
        package: "gateway",
        what: "WireGuard for all peers of a cluster, and the end of its overlay",
        drives: None,
        licenses: "Apache-2.0",
    },
    Shipped {
        package: "route-agent",
        what: "Steers a node's traffic for remote clusters into the overlay, and back",
        drives: Some(("nft", "nftables")),
        // nft and its library are licensed under the GPL. The route agent runs nft as a separate
        // process, so its own licence is not affected.
        licenses: "Apache-2.0 AND GPL-2.0-only",
    },
    Shipped {
        package: "controller-manager",
        what: "Turns a cluster's resources into addresses, Services, keys and status",
        drives: None,
        licenses: "Apache-2.0",
    },
    Shipped {
        package: "virtual-kubelet",
        what: "Represents resources of another cluster as a Node, and runs its pods there",
        drives: None,
        licenses: "Apache-2.0",
    },
    Shipped {
        package: "edge",
        what: "Serves other clusters: a CONNECT proxy in front of the API server, and metrics of their pods",
        drives: None,
        licenses: "Apache-2.0",
    },
];

/// Builds the images for this machine with the tag `dev`, and returns the folder of the archives.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(crate) fn build_all(shell: &mut Shell) -> Result<PathBuf> {
    let options = Options {
        arch: Vec::new(),
        tag: "dev".to_owned(),
        output: None,
    };
    run(shell, &options)?;

    output(&options)
}

/// Builds the images and prints the paths of their archives.
///
/// # Errors
///
/// Returns an error with the remedy if a compiler is missing, or if a build fails.
pub(crate) fn run(shell: &mut Shell, options: &Options) -> Result<()> {
    setup::run_for(shell, &[Set::Image])?;
    let output = output(options)?;
    let processors = processors(&options.arch)?;
    let programs = SHIPPED.map(|shipped| shipped.package);
    let selection = Selection {
        packages: &RELEASED,
        programs: &programs,
        ..Selection::default()
    };
    let sources = processors
        .iter()
        .map(|&processor| {
            let binaries = build::binaries(shell, processor, selection)?;
            let system = debian::system(shell, processor, &driven())?;
            Ok((processor, binaries, system))
        })
        .collect::<Result<Vec<_>>>()?;

    let start = Instant::now();
    console::step("Images");
    let revision = workspace::revision(shell, &["--abbrev=40", "--exclude=*"])?;
    for shipped in &SHIPPED {
        let contents = sources
            .iter()
            .map(|(processor, binaries, system)| shipped.content(*processor, binaries, system));
        let archive = output.join(format!("liqo-{}.tar", shipped.package));
        let plan = Plan {
            names: vec![format!(
                "localhost/liqo/{}:{}",
                shipped.package, options.tag
            )],
            labels: shipped.labels(&options.tag, revision.as_deref()),
            entrypoint: vec![shipped.path()],
            platforms: contents.collect(),
            archive,
        };
        archive::write(shell, &plan)?;
        console::note(&plan.names[0]);
        anstream::println!("{}", plan.archive.display());
    }
    console::done("images", start.elapsed());

    Ok(())
}

impl Shipped {
    /// Returns the path of the binary in the image.
    fn path(&self) -> String {
        format!("/usr/bin/{}", self.package)
    }

    fn content(&self, processor: Processor, binaries: &Path, system: &Path) -> Content {
        Content {
            platform: processor.as_str(),
            files: [(self.path(), binaries.join(self.package))].into(),
            programs: self.drives.into_iter().collect(),
            system: system.to_owned(),
        }
    }

    fn labels(&self, tag: &str, revision: Option<&str>) -> BTreeMap<&'static str, String> {
        let mut labels: BTreeMap<_, _> = [
            ("title", format!("liqo-{}", self.package)),
            ("description", self.what.to_owned()),
            ("version", tag.to_owned()),
            ("licenses", self.licenses.to_owned()),
        ]
        .into();
        labels.extend(revision.map(|revision| ("revision", revision.to_owned())));

        labels
    }
}

/// Returns the Debian packages of all external programs in the images.
fn driven() -> Vec<&'static str> {
    SHIPPED
        .iter()
        .filter_map(|shipped| shipped.drives)
        .map(|(_, package)| package)
        .collect()
}

/// Returns the folder for the archives, after creating it.
fn output(options: &Options) -> Result<PathBuf> {
    let folder = match &options.output {
        // A relative path is relative to the user's current folder, not to the checkout.
        Some(folder) => env::current_dir()?.join(folder),
        None => workspace::target().join("images"),
    };
    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;

    Ok(folder)
}

/// Sorts the processors and removes duplicates. If `requested` is empty, returns the processor of
/// this machine.
///
/// # Errors
///
/// Returns an error if `requested` is empty and this machine's processor is not supported.
pub(crate) fn processors(requested: &[Processor]) -> Result<Vec<Processor>> {
    let mut processors = requested.to_vec();
    if processors.is_empty() {
        processors.push(Processor::machine()?);
    }
    processors.sort();
    processors.dedup();

    Ok(processors)
}

/// Parses an image tag by the rules of the OCI distribution specification.
fn tag(text: &str) -> Result<String, String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_tag = text.starts_with(is_word)
        && text.len() <= TAG_MAX
        && text.chars().all(|it| is_word(it) || ".-".contains(it));

    is_tag
        .then(|| text.to_owned())
        .ok_or_else(|| format!("a tag is up to {TAG_MAX} letters, digits, dots, dashes and _"))
}

/// Maximum length of a tag, in characters:
/// <https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md#pulling-manifests>.
const TAG_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_is_built_once_in_a_fixed_order() {
        let requested = [Processor::Arm64, Processor::Amd64, Processor::Arm64];

        let processors = processors(&requested).unwrap();

        assert_eq!(processors, [Processor::Amd64, Processor::Arm64]);
    }

    #[test]
    fn an_invalid_tag_is_refused() {
        assert_eq!(tag("v1.2-rc_3"), Ok("v1.2-rc_3".to_owned()));
        for text in ["", "-dev", "a/b", "a:b", &"a".repeat(129)] {
            assert!(tag(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn labels_have_their_full_names() {
        let [gateway, ..] = SHIPPED;
        let plan = Plan {
            archive: "liqo-gateway.tar".into(),
            names: vec!["localhost/liqo/gateway:dev".to_owned()],
            labels: gateway.labels("dev", Some("c0ffee")),
            entrypoint: vec![gateway.path()],
            platforms: vec![gateway.content(Processor::Arm64, Path::new("b"), Path::new("/"))],
        };

        let plan = serde_json::to_value(&plan).unwrap();

        let labels = &plan["labels"];
        assert_eq!(labels["org.opencontainers.image.revision"], "c0ffee");
        assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
        assert_eq!(
            plan["platforms"][0]["files"]["/usr/bin/gateway"],
            "b/gateway"
        );
        assert_eq!(plan["platforms"][0]["platform"], "arm64");
    }
}
