//! Which releases of Kubernetes can be built, and which one is meant.
//!
//! One `main.go` serves them all; each has a `.mod` and a `.sum` file. For the next
//! patch release, its numbers (v1.35.5 and v0.35.5) replace the old ones in the
//! `.mod` file; for the next minor version the files are copied first. After that,
//! `go mod tidy -modfile=v1.35.mod` completes both.

use super::gomod;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;

/// The folder of the module below that of all modules.
pub(super) const FOLDER: &str = "kubernetes";

/// What a release is a version of.
pub(super) const MODULE: &str = "k8s.io/kubernetes";

/// The file that every module has. The one of Kubernetes requires nothing: each
/// minor version has a file of its own.
const MARKER: &str = "go.mod";

/// A release that can be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// Its version, as in `v1.35.4`.
    pub(super) version: String,
    /// The name of the file that pins it and all that it consists of, as in `v1.35.mod`.
    pub(super) modfile: String,
}

/// Returns what the modules below `modules` pin, oldest first.
///
/// # Errors
///
/// Returns an error that names the file that cannot be read or pins nothing.
pub(super) fn known(modules: &Path) -> Result<Vec<Release>> {
    let folder = modules.join(FOLDER);
    let entries =
        fs::read_dir(&folder).with_context(|| format!("failed to list {}", folder.display()))?;

    let mut releases = Vec::new();
    for entry in entries {
        let modfile = entry?.file_name().to_string_lossy().into_owned();
        if modfile == MARKER || !modfile.ends_with(".mod") {
            continue;
        }
        let file = folder.join(&modfile);
        let text = fs::read_to_string(&file)
            .with_context(|| format!("failed to read {}", file.display()))?;
        let version = gomod::required(&text, MODULE)
            .with_context(|| format!("{} does not require {MODULE}", file.display()))?
            .to_owned();
        releases.push(Release { version, modfile });
    }
    releases.sort_by_key(|release| numbers(&release.version));

    Ok(releases)
}

/// Returns the release that a person means, with or without `v` and last number.
///
/// # Errors
///
/// Returns an error that lists what can be built if that is not among it.
pub(super) fn choose(wanted: &str, known: Vec<Release>) -> Result<Release> {
    let meant = |release: &Release| {
        let wanted = bare(wanted);
        let version = bare(&release.version);
        let minor = version.rsplit_once('.').map(|(minor, _)| minor);
        wanted == version || minor == Some(wanted)
    };
    if let Some(release) = known.iter().find(|release| meant(release)) {
        return Ok(release.clone());
    }

    let known: Vec<_> = known.into_iter().map(|release| release.version).collect();
    bail!(
        "--k8s-version {wanted}: no such release is pinned here, only {} (tests/kubernetes/go/{FOLDER} has a .mod and a .sum file for each)",
        known.join(", ")
    )
}

/// The numbers of a version, so that 1.9 comes before 1.10.
fn numbers(version: &str) -> Vec<u32> {
    bare(version)
        .split('.')
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// A version without the `v` that Go wants and people leave out.
fn bare(version: &str) -> &str {
    version.strip_prefix('v').unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_release_is_meant_in_full_or_by_its_minor_version() {
        for wanted in ["v1.35.4", "1.35.4", "v1.35", "1.35"] {
            let release = choose(wanted, releases()).unwrap();

            assert_eq!(release.version, "v1.35.4", "{wanted}");
        }
    }

    #[test]
    fn what_is_not_pinned_is_refused_with_what_is() {
        for wanted in ["v1.35.5", "1", "1.3", "", "latest"] {
            let refusal = choose(wanted, releases()).unwrap_err().to_string();

            assert!(refusal.contains("only v1.35.4, v1.36.3"), "{refusal}");
        }
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        assert!(numbers("v1.9.10") < numbers("v1.10.0"));
        assert!(numbers("v1.35.4") < numbers("v1.35.10"));
    }

    #[test]
    fn each_release_of_this_checkout_has_checksums() {
        let modules = workspace::root().join("tests/kubernetes/go");

        let known = known(&modules).unwrap();

        assert!(!known.is_empty());
        for Release { version, modfile } in known {
            let name = modfile.strip_suffix(".mod").unwrap();
            assert!(
                version.starts_with(&format!("{name}.")),
                "{modfile} pins {version}"
            );
            let sums = modules.join(FOLDER).join(format!("{name}.sum"));
            assert!(sums.is_file(), "{} is missing", sums.display());
        }
    }

    fn releases() -> Vec<Release> {
        [("v1.35.4", "v1.35.mod"), ("v1.36.3", "v1.36.mod")]
            .map(|(version, modfile)| Release {
                version: version.into(),
                modfile: modfile.into(),
            })
            .into()
    }
}
