//! Settings of the machine that clusters change, and their values from before.

use crate::place;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// What is changed below `/proc/sys`, and to what; `None` if kubelets change it.
const CHANGED: [(&str, Option<&str>); 5] = [
    // Many containerds and kubelets: the default of 128 is too low.
    ("fs/inotify/max_user_instances", Some("8192")),
    ("fs/inotify/max_user_watches", Some("1048576")),
    ("vm/overcommit_memory", None),
    ("kernel/panic", None),
    ("kernel/panic_on_oops", None),
];

/// Notes the machine's values, once, and sets what clusters need.
///
/// # Errors
///
/// Returns an error if a setting cannot be read or written.
pub(crate) fn prepare() -> Result<()> {
    let noted = noted();
    if !noted.exists() {
        let values: BTreeMap<&str, String> = CHANGED
            .iter()
            .map(|(key, _)| Ok((*key, read(key)?)))
            .collect::<Result<_>>()?;
        let text = serde_json::to_string_pretty(&values).context("values are JSON")?;
        fs::write(&noted, text).context("failed to note the machine's settings")?;
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

/// Kubelets have the whole machine stop at a kernel oops: takes that back.
///
/// # Errors
///
/// Returns an error if the setting cannot be written.
pub(crate) fn survive_oops() -> Result<()> {
    write("kernel/panic_on_oops", "0")
}

/// Restores the machine's values.
///
/// # Errors
///
/// Returns an error if one cannot be written.
pub(crate) fn restore() -> Result<()> {
    let path = noted();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).context("failed to read the machine's settings"),
    };
    let values: BTreeMap<String, String> =
        serde_json::from_str(&text).context("the noted settings are damaged")?;
    for (key, value) in values {
        if CHANGED.iter().any(|(changed, _)| *changed == key) {
            write(&key, &value)?;
        }
    }

    fs::remove_file(&path).context("failed to forget the machine's settings")
}

fn noted() -> PathBuf {
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
