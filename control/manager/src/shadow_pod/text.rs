//! Texts of consumers in messages.

/// Most characters of a text of a consumer in a message.
const LEN_MAX: usize = 63;

/// Returns a text of a consumer without control characters, shortened.
pub(super) fn shown(text: &str) -> String {
    text.escape_debug().take(LEN_MAX).collect()
}
