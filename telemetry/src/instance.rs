//! Instance names, which distinguish the processes of one machine.

/// In bytes.
const LEN_MAX: usize = 64;

/// Parses the value of `--instance`, which becomes part of file names.
///
/// # Errors
///
/// Returns the permitted form.
pub fn parse(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > LEN_MAX || !name.chars().all(plain) || name.starts_with('.')
    {
        return Err(format!(
            "use 1 to {LEN_MAX} letters, digits and `-_.`, and no dot at the start"
        ));
    }

    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_name_cannot_leave_its_directory() {
        assert!(parse("rome-1").is_ok());
        assert!(parse(&"a".repeat(LEN_MAX)).is_ok());
        for name in ["", "..", "a/b", ".hidden", "a b", &"a".repeat(LEN_MAX + 1)] {
            assert!(parse(name).is_err(), "{name:?}");
        }
    }
}
