//! The label of a ShadowPod with the user who created it.

use control_credentials::digest;

/// Maximum length of the value of a label.
const LEN_MAX: usize = 63;

/// Number of hexadecimal digits that distinguish shortened names.
const DIGITS: usize = 12;

/// Returns a user's name as the value of a label: as upstream's, with `-` instead of each character that a label must
/// not have. A name that is still no such value is shortened, and a part of its SHA-256 is appended.
pub(crate) fn creator_label(user: &str) -> String {
    let is_valid = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);
    let replaced: String = user
        .chars()
        .map(|it| if is_valid(it) { it } else { '-' })
        .collect();
    let is_trimmed = trimmed(&replaced) == replaced;
    if is_trimmed && (1..=LEN_MAX).contains(&replaced.len()) {
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
