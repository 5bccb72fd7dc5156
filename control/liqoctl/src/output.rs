//! Prints objects.

mod yaml;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::Value;
use std::io::Write as _;

/// Output format of objects.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Prints a value.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn print(format: Format, value: &Value) -> Result<()> {
    let text = text(format, value)?;
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Prints several objects as one stream.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub(crate) fn print_all(format: Format, objects: &[Value]) -> Result<()> {
    let texts = objects.iter().map(|object| text(format, object));
    let separator = match format {
        Format::Json => "",
        Format::Yaml => "---\n",
    };
    let text = texts.collect::<Result<Vec<_>>>()?.join(separator);
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Returns a value as text that ends with a line feed.
///
/// # Errors
///
/// Returns an error if the value cannot be written in that format.
pub(crate) fn text(format: Format, value: &Value) -> Result<String> {
    Ok(match format {
        Format::Json => serde_json::to_string_pretty(value)? + "\n",
        Format::Yaml => yaml::write(value),
    })
}
