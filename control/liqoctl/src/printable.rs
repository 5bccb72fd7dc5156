//! Text that another cluster has written, for terminals and messages. PURE.

/// Maximum number of characters that are shown: those of an Event's note.
const LEN_MAX: usize = 1024;

/// Returns a text without the characters that a terminal interprets, cut after [`LEN_MAX`] characters.
pub(crate) fn printable(text: &str) -> String {
    let shown = text
        .chars()
        .map(|it| if is_interpreted(it) { ' ' } else { it });
    let mut shown = shown.fuse();
    let mut printable: String = shown.by_ref().take(LEN_MAX).collect();
    if shown.next().is_some() {
        printable.push('…');
    }
    printable
}

/// Returns whether a character controls a terminal, or the direction of the text after it (Unicode Standard Annex 9).
fn is_interpreted(it: char) -> bool {
    it.is_control()
        || matches!(it, '\u{200e}' | '\u{200f}' | '\u{061c}')
        || matches!(it, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_blanks() {
        assert_eq!(printable("a\u{1b}[31mb\nc\u{9b}d"), "a [31mb c d");
        assert_eq!(printable("ab\u{202e}cd\u{2069}"), "ab cd ");
        assert_eq!(printable("10.0.0.0/16 → näher"), "10.0.0.0/16 → näher");
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(printable(&"é".repeat(LEN_MAX)), "é".repeat(LEN_MAX));
        let cut = printable(&"é".repeat(LEN_MAX + 1));
        assert_eq!(cut.chars().count(), LEN_MAX + 1);
        assert!(cut.ends_with('…'));
    }
}
