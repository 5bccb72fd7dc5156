//! Changes kernel settings for clusters, and restores them.

use crate::place;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Keys below `/proc/sys` and their minimum values. The value is `None` if kubelets set the key, so
/// that the laboratory only restores it.
const CHANGED: [(&str, Option<&str>); 5] = [
    // Several containerds and kubelets need more inotify instances than the kernel's default of
    // 128.
    ("fs/inotify/max_user_instances", Some("8192")),
    ("fs/inotify/max_user_watches", Some("1048576")),
    ("vm/overcommit_memory", None),
    ("kernel/panic", None),
    ("kernel/panic_on_oops", None),
];

/// Saves the machine's values if they are not saved yet, and raises the values that are too small
/// for clusters.
///
/// # Errors
///
/// Returns an error if a setting cannot be read or written.
pub(crate) fn prepare() -> Result<()> {
    let saved = saved();
    if !saved.exists() {
        let values: BTreeMap<&str, String> = CHANGED
            .iter()
            .map(|(key, _)| Ok((*key, read(key)?)))
            .collect::<Result<_>>()?;
        let text = serde_json::to_string_pretty(&values).context("values are JSON")?;
        fs::write(&saved, text).context("failed to save the machine's settings")?;
    }
    for (key, value) in CHANGED {
        if let Some(value) = value
            && read(key)?.parse::<u64>().ok() < value.parse::<u64>().ok()
        {
            write(key, value)?;
        }
    }

    Ok(())
}

/// Disables `panic_on_oops`, which kubelets enable. With `panic_on_oops`, a kernel oops stops the
/// whole machine.
///
/// # Errors
///
/// Returns an error if the setting cannot be written.
pub(crate) fn survive_oops() -> Result<()> {
    write("kernel/panic_on_oops", "0")
}

/// Restores the saved values.
///
/// # Errors
///
/// Returns an error if a value cannot be written.
pub(crate) fn restore() -> Result<()> {
    let path = saved();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("failed to read the machine's settings"),
    };
    let values: BTreeMap<String, String> =
        serde_json::from_str(&text).context("the saved settings are damaged")?;
    for (key, value) in values {
        if CHANGED.iter().any(|(changed, _)| *changed == key) {
            write(&key, &value)?;
        }
    }

    fs::remove_file(&path).context("failed to remove the saved settings")
}

fn saved() -> PathBuf {
    place::state().join("settings.json")
}

fn read(key: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/sys/{key}"))
        .map(|value| value.trim().to_owned())
        .with_context(|| format!("failed to read the setting {key}"))
}

fn write(key: &str, value: &str) -> Result<()> {
    fs::write(format!("/proc/sys/{key}"), value)
        .with_context(|| format!("failed to set {key} to {value}"))
}
