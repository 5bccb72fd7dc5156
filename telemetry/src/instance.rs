//! Instance names, which distinguish processes of the same program on one machine.

/// Length of the longest permitted name, in bytes.
const LEN_MAX: usize = 64;

/// Checks the value of `--instance`, which becomes part of file names.
///
/// # Errors
///
/// Returns a message that describes the permitted names.
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
