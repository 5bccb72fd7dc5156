//! The pinned Kubernetes releases, and the selection of one release.
//!
//! All releases share one `main.go`. Each minor release has a `.mod` and a `.sum` file. To change
//! the patch release, replace the versions (such as v1.35.4 and v0.35.4) in the `.mod` file. To add
//! a minor release, copy both files first. Then run `go mod tidy` with the name of the changed
//! file, for example `-modfile=v1.35.mod`.

use super::gomod;
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::Path;

/// The folder of the Go module, relative to `tests/kubernetes/go`.
pub(super) const FOLDER: &str = "kubernetes";

/// The Go module whose version is the Kubernetes release.
pub(super) const MODULE: &str = "k8s.io/kubernetes";

/// The file that makes the folder a Go module. It contains no requirements, because each minor
/// release has its own `.mod` file.
const MARKER: &str = "go.mod";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// The full version, such as `v1.35.4`.
    pub(super) version: String,
    /// The name of the file that pins the release and its dependencies, such as `v1.35.mod`.
    pub(super) modfile: String,
}

/// Returns the pinned releases, oldest first. `modules` is the folder `tests/kubernetes/go`.
///
/// # Errors
///
/// Returns an error that names the file that cannot be read or does not require [`MODULE`].
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

/// Returns the release with the version `wanted`. The leading `v` and the patch number of `wanted`
/// are optional.
///
/// # Errors
///
/// Returns an error that lists the pinned releases if the wanted release is not pinned.
pub(super) fn choose(wanted: &str, known: Vec<Release>) -> Result<Release> {
    let matches = |release: &Release| {
        let wanted = bare(wanted);
        let version = bare(&release.version);
        let minor = version.rsplit_once('.').map(|(minor, _)| minor);
        wanted == version || minor == Some(wanted)
    };
    if let Some(release) = known.iter().find(|release| matches(release)) {
        return Ok(release.clone());
    }

    let known: Vec<_> = known.into_iter().map(|release| release.version).collect();
    bail!(
        "--k8s-version {wanted}: no such release is pinned here, only {} (tests/kubernetes/go/{FOLDER} has a .mod and a .sum file for each)",
        known.join(", ")
    )
}

/// Splits a version into numbers, so that 1.9 is ordered before 1.10.
fn numbers(version: &str) -> Vec<u32> {
    bare(version)
        .split('.')
        .filter_map(|number| number.parse().ok())
        .collect()
}

/// Removes the leading `v` of a version.
fn bare(version: &str) -> &str {
    version.strip_prefix('v').unwrap_or(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_release_is_chosen_by_its_full_or_minor_version() {
        for wanted in ["v1.35.4", "1.35.4", "v1.35", "1.35"] {
            let release = choose(wanted, releases()).unwrap();

            assert_eq!(release.version, "v1.35.4", "{wanted}");
        }
    }

    #[test]
    fn an_unpinned_version_is_refused_with_a_list_of_the_pinned_ones() {
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
