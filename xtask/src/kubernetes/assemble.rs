//! Assembles the folder that contains the programs of a cluster's nodes.

use super::cache::{Cache, Place};
use super::part::Part;
use super::unfinished::Unfinished;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The file that lists the version of each program.
const VERSIONS: &str = "versions.json";

/// Fills `place` with hard links to the programs of `parts`, which are in the cache.
///
/// Hard links take no space. A running cluster keeps its programs when their part is removed from
/// the cache.
///
/// # Errors
///
/// Returns an error that names the file that cannot be created.
pub(super) fn assemble(cache: &Cache, place: &Place, parts: &[Part]) -> Result<()> {
    let unfinished = Unfinished::begin(&place.folder)?;
    for part in parts {
        let from = cache.part(part).folder;
        for program in part.programs {
            let files = [program.name()]
                .into_iter()
                .chain(program.links.iter().copied());
            for name in files {
                let file = Path::new(program.place).with_file_name(name);
                link(&from.join(&file), &unfinished.folder().join(&file))?;
            }
        }
    }
    let versions: BTreeMap<_, _> = parts.iter().flat_map(|part| &part.versions).collect();
    let text = serde_json::to_string_pretty(&versions).context("versions are plain text")?;
    let file = unfinished.folder().join(VERSIONS);
    fs::write(&file, text + "\n").with_context(|| format!("failed to write {}", file.display()))?;

    unfinished.finish()
}

/// Creates a hard link to a regular file or to a symbolic link.
fn link(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;
    }

    fs::hard_link(from, to)
        .with_context(|| format!("failed to link {} to {}", from.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::part;
    use crate::kubernetes::scratch::Scratch;

    #[test]
    fn programs_links_and_versions_are_in_one_folder() {
        let scratch = Scratch::new("assemble");
        let cache = Cache::at(scratch.path().to_owned());
        let parts = part::of_this_checkout();
        for part in &parts {
            for program in part.programs {
                let folder = format!("parts/{}", part.folder());
                scratch.write(&format!("{folder}/{}", program.place), program.built);
                for link in program.links {
                    scratch.write(&format!("{folder}/bin/{link}"), "");
                }
            }
        }
        let place = cache.whole("v1.35.4", &parts);
        let before = place.is_complete();

        assemble(&cache, &place, &parts).unwrap();

        assert!(!before && place.is_complete());
        let read = |file| fs::read_to_string(place.folder.join(file)).unwrap();
        assert_eq!(read("bin/etcd"), "server");
        assert_eq!(read("cni/ptp"), "ptp");
        assert!(place.folder.join("bin/kubelet").exists());
        assert!(read("versions.json").contains("\"kubelet\": \"v1.35.4\""));
    }
}
