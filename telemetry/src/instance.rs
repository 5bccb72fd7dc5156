//! Names by which several processes of one machine are told apart.

/// Longest name, in bytes.
const LEN_MAX: usize = 64;

/// Accepts a name that can be part of file names: for `--instance`.
///
/// # Errors
///
/// Returns what such a name looks like.
pub fn parse(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > LEN_MAX || !name.chars().all(plain) || name.starts_with('.')
    {
        return Err(format!(
            "use 1 to {LEN_MAX} letters, digits and `-_.`, not beginning with a dot"
        ));
    }

    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_no_path() {
        assert!(parse("rome-1").is_ok());
        assert!(parse(&"a".repeat(LEN_MAX)).is_ok());
        for name in ["", "..", "a/b", ".hidden", "a b", &"a".repeat(LEN_MAX + 1)] {
            assert!(parse(name).is_err(), "{name:?}");
        }
    }
}
