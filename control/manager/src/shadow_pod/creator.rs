//! The user who has created a ShadowPod, as the value of a label.

use control_credentials::digest;

/// Maximum length of the value of a label.
const LEN_MAX: usize = 63;

/// Number of hexadecimal digits that distinguish shortened names.
const DIGITS: usize = 12;

/// Returns a user's name as the value of a label: with `-` in place of each character that such a value must not have, as
/// upstream's. A name that is still no value of a label is shortened, and a part of its SHA-256 is appended.
pub(super) fn creator_label(user: &str) -> String {
    let is_valid = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);
    let replace = |it: char| if is_valid(it) { it } else { '-' };
    let replaced: String = user.chars().map(replace).collect();
    if trimmed(&replaced) == replaced && (1..=LEN_MAX).contains(&replaced.len()) {
        return replaced;
    }
    let digest = digest(&[user.as_bytes()]);
    let digits = &digest[..DIGITS];
    // All characters are ASCII.
    let end = replaced.len().min(LEN_MAX - DIGITS - 1);
    match trimmed(&replaced[..end]) {
        "" => digits.to_owned(),
        start => format!("{start}-{digits}"),
    }
}

/// Returns a text without the characters with which the value of a label must neither begin nor end.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|it: char| !it.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_become_values_of_labels() {
        assert_eq!(creator_label("milan-a8a4c692b93b"), "milan-a8a4c692b93b");
        assert_eq!(creator_label("a:b/c d"), "a-b-c-d");
        let long = creator_label(&"x".repeat(200));
        assert_eq!(long.len(), LEN_MAX);
        assert_ne!(long, creator_label(&"x".repeat(201)));
        for user in ["", ":::", "é", "-a-"] {
            let label = creator_label(user);
            assert!(!label.is_empty() && trimmed(&label) == label, "{user}");
        }
    }
}
