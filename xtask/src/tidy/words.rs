//! Checks that comments do not use words of this project's former private vocabulary.
//!
//! Comments name the actor and use the terms of Kubernetes, Linux and WireGuard. The forbidden
//! words are typical for sentences without an actor.

/// The folders whose comments are checked.
const DIRECTORIES: &[&str] = &[
    "bench/",
    "charts/",
    "ebpf/",
    "fuzz/",
    "gateway/src/",
    "ipam/",
    "telemetry/",
    "xtask/",
];

/// Forbidden words and phrases, in lower case.
const FORBIDDEN: &[&str] = &[
    "at all",
    "for its sake",
    "in vain",
    "nobody",
    "somebody",
    "tell",
    "tells",
    "told",
    "whoever",
    "whom",
];

/// Returns one line for each comment that contains a forbidden word.
pub(super) fn forbidden(path: &str, text: &str) -> Vec<String> {
    // This file must contain the forbidden words in its list.
    let is_checked = DIRECTORIES.iter().any(|it| path.starts_with(it)) && path != file!();
    if !is_checked {
        return Vec::new();
    }

    text.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let word = find(line.trim_start().strip_prefix("//")?)?;
            Some(format!(
                "{path}:{}: a comment says `{word}`: name the actor, and use the field's term",
                index + 1
            ))
        })
        .collect()
}

fn find(comment: &str) -> Option<&'static str> {
    let words: Vec<_> = comment
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let sentence = format!(" {} ", words.join(" "));

    FORBIDDEN
        .iter()
        .find(|word| sentence.contains(&format!(" {word} ")))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_of_clean_directories_are_checked() {
        let text = "// It tells whom.\nlet told = 1; // told\n/// A teller.\n";

        let found = forbidden("xtask/src/a.rs", text);

        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("xtask/src/a.rs:1: a comment says `tells`"));
        assert_eq!(forbidden("control/a.rs", text), [""; 0]);
    }

    #[test]
    fn a_phrase_is_found_across_punctuation_and_case() {
        assert_eq!(find("Not at all."), Some("at all"));
        assert_eq!(find("In VAIN, it"), Some("in vain"));
        assert_eq!(find("that allows"), None);
    }
}
