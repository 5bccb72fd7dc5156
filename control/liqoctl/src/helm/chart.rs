//! The chart: the embedded one, or a folder or archive that the user names.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use std::fs;
use std::path::{Path, PathBuf};

/// Paths within the chart, and the contents of the files.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/chart.rs"));

/// Folder of a chart whose objects helm installs but never upgrades.
const CRDS: &str = "crds/";

/// A chart on the disk. The copy of the embedded chart is removed on drop.
pub(crate) struct Chart {
    path: PathBuf,
    is_temporary: bool,
}

impl Chart {
    /// Returns the chart at `path`, or the embedded one.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if there is none.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        if let Some(path) = path {
            if !path.exists() {
                bail!(
                    "there is no chart at {}: correct --local-chart-path",
                    path.display()
                );
            }
            return Ok(Self {
                path: path.to_owned(),
                is_temporary: false,
            });
        }
        if EMBEDDED.is_empty() {
            bail!("this liqoctl was built without a chart: name one with --local-chart-path");
        }
        unpack(EMBEDDED)
    }

    /// Returns the folder or archive.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the CRDs of a chart that is a folder; nothing for an archive.
    ///
    /// # Errors
    ///
    /// Returns an error if one of its files cannot be read.
    pub(crate) fn crds(&self) -> Result<Vec<CustomResourceDefinition>> {
        let folder = self.path.join(CRDS);
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut paths = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| unreadable(&folder))? {
            paths.push(entry.with_context(|| unreadable(&folder))?.path());
        }
        paths.sort();
        let mut crds = Vec::new();
        for path in paths.iter().filter(|path| is_yaml(path)) {
            let text = fs::read_to_string(path).with_context(|| unreadable(path))?;
            crds.extend(parse(&text).with_context(|| unreadable(path))?);
        }
        Ok(crds)
    }
}

impl Drop for Chart {
    fn drop(&mut self) {
        if self.is_temporary {
            // A remaining copy in the temporary folder has no effect.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn unpack(files: &[(&str, &[u8])]) -> Result<Chart> {
    let path = std::env::temp_dir().join(format!("liqoctl-chart-{}", std::process::id()));
    // A former process with this ID may have left it. If another user owns it, `create_dir` fails.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).with_context(|| format!("failed to create {}", path.display()))?;
    let chart = Chart {
        path,
        is_temporary: true,
    };
    for (name, bytes) in files {
        let file = chart.path.join(name);
        let folder = file.parent().unwrap_or(&chart.path);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&file, bytes))
            .with_context(|| format!("failed to write {}", file.display()))?;
    }
    Ok(chart)
}

fn parse(text: &str) -> Result<Vec<CustomResourceDefinition>> {
    Ok(serde_saphyr::from_multiple(text)?)
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn unreadable(path: &Path) -> String {
    format!("failed to read {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_chart_is_removed_on_drop() {
        let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: a.b\nspec:\n  group: b\n  names: {kind: A, plural: a}\n  scope: Namespaced\n  versions: []\n";
        let files: &[(&str, &[u8])] = &[
            ("Chart.yaml", b"name: liqo\n"),
            ("crds/a.yaml", crd.as_bytes()),
        ];

        let chart = unpack(files).unwrap();

        let path = chart.path().to_owned();
        assert!(path.join("Chart.yaml").is_file());
        let crds = chart.crds().unwrap();
        assert_eq!(crds.len(), 1);
        assert_eq!(crds[0].metadata.name.as_deref(), Some("a.b"));
        drop(chart);
        assert!(!path.exists());
    }

    #[test]
    fn a_missing_chart_names_the_flag() {
        let error = Chart::open(Some(Path::new("/none"))).err().unwrap();

        assert!(error.to_string().contains("--local-chart-path"));
    }
}
