//! Embeds the chart, if there is one, and for a release helm.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Folders of the chart that no installation needs.
const LEFT_OUT: [&str; 1] = ["tests"];

/// Path of a helm that is compressed with gzip; set by `cargo xtask liqoctl`.
const HELM: &str = "LIQOCTL_BUNDLED_HELM";

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let chart = root.join("../../charts/liqo");
    // Cargo runs this each time while there is no chart.
    println!("cargo:rerun-if-changed={}", chart.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut files = Vec::new();
    if chart.is_dir() {
        collect(&chart, &chart, &mut files)?;
    }
    files.sort();
    let mut text = String::from("&[\n");
    for (index, (name, path)) in files.iter().enumerate() {
        // A copy, so that the compiler never reads a file that is being edited.
        let copy = out.join(format!("chart-{index}"));
        fs::copy(path, &copy)?;
        let copy = copy.display().to_string();
        let _ = writeln!(text, "    ({name:?}, include_bytes!({copy:?})),");
    }
    text += "]\n";
    fs::write(out.join("chart.rs"), text)?;
    bundle_helm(&out)
}

/// Writes an expression of type `Option<&[u8]>`: the compressed helm, or nothing.
fn bundle_helm(out: &Path) -> io::Result<()> {
    println!("cargo:rerun-if-env-changed={HELM}");
    let text = match env::var_os(HELM) {
        Some(path) => {
            println!("cargo:rerun-if-changed={}", Path::new(&path).display());
            let copy = out.join("helm.gz");
            fs::copy(path, &copy)?;
            format!("Some(include_bytes!({:?}))", copy.display().to_string())
        }
        None => "None".to_owned(),
    };
    fs::write(out.join("helm.rs"), text)
}

/// Adds all files below `folder`, with their paths relative to `chart`.
fn collect(chart: &Path, folder: &Path, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(name) = path.strip_prefix(chart) else {
            continue;
        };
        if LEFT_OUT.iter().any(|left_out| name.starts_with(left_out)) {
            continue;
        }
        if path.is_dir() {
            println!("cargo:rerun-if-changed={}", path.display());
            collect(chart, &path, files)?;
        } else {
            files.push((name.display().to_string(), path));
        }
    }
    Ok(())
}
