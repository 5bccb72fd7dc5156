//! Checks that the code does not use words of this project's former private vocabulary.
//!
//! Comments, messages and names use the terms of Kubernetes, Linux and WireGuard, and sentences
//! name their actor. The forbidden words are typical for sentences without an actor.

/// The folders whose comments are checked.
const COMMENTS: &[&str] = &[
    "bench/",
    "charts/",
    "ebpf/",
    "fuzz/",
    "gateway/src/",
    "ipam/",
    "telemetry/",
    "xtask/",
];

/// The folders whose comments, strings and names are checked, also with [`FURTHER`] and
/// [`NOUNS`].
const EVERYTHING: &[&str] = &["control/"];

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

/// Further words and phrases that are forbidden in [`EVERYTHING`].
const FURTHER: &[&str] = &[
    "all is well",
    "all the same",
    "as it says",
    "by itself",
    "come to rest",
    "comes to rest",
    "cure",
    "cures",
    "eldest",
    "end point",
    "end points",
    "fares",
    "looked after",
    "looks after",
    "makes it so",
    "of its own accord",
    "on its way out",
    "praise",
    "put right",
    "puts right",
    "so many",
    "takes back",
    "that counts",
    "the other way round",
    "tried again",
    "wherever",
];

/// Words that, at the start of a comment, stand for a noun that is not named.
const NOUNS: &[&str] = &["That which", "Those", "What", "Who", "Whom", "Whose"];

/// Returns one line for each line of a file that contains a forbidden word.
pub(super) fn forbidden(path: &str, text: &str) -> Vec<String> {
    let is_in = |folders: &[&str]| folders.iter().any(|it| path.starts_with(it));
    let find = if is_in(EVERYTHING) {
        find_anywhere
    } else if is_in(COMMENTS) && path != file!() {
        // This file must contain the forbidden words in its lists.
        find_in_comment
    } else {
        return Vec::new();
    };

    text.lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let word = find(line)?;
            Some(format!(
                "{path}:{}: a line says `{word}`: name the actor, and use the field's term",
                index + 1
            ))
        })
        .collect()
}

fn find_in_comment(line: &str) -> Option<&'static str> {
    find(line.trim_start().strip_prefix("//")?, FORBIDDEN)
}

fn find_anywhere(line: &str) -> Option<&'static str> {
    let comment = line.trim_start().strip_prefix("//");
    let sentence = comment.map(|it| it.trim_start_matches(['/', '!', ' ']));
    let starts_with = |noun: &str| {
        let rest = sentence.and_then(|sentence| sentence.strip_prefix(noun));
        rest.is_some_and(|rest| rest.starts_with(' '))
    };
    let noun = NOUNS.iter().find(|noun| starts_with(noun)).copied();

    noun.or_else(|| find(line, FORBIDDEN))
        .or_else(|| find(line, FURTHER))
}

/// Returns the first of the words or phrases that a text contains. Case and punctuation do not
/// matter, so names in snake case are texts, too.
fn find(text: &str, forbidden: &[&'static str]) -> Option<&'static str> {
    let words: Vec<_> = text
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let sentence = format!(" {} ", words.join(" "));

    forbidden
        .iter()
        .find(|word| sentence.contains(&format!(" {word} ")))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_comments_of_most_folders_are_checked() {
        let text = "// It tells whom.\nlet told = 1; // told\n/// A teller.\n";

        let found = forbidden("xtask/src/a.rs", text);

        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("xtask/src/a.rs:1: a line says `tells`"));
        assert_eq!(forbidden("tests/a.rs", text), [""; 0]);
    }

    #[test]
    fn messages_and_names_of_the_control_plane_are_checked() {
        let text = "fn the_peer_is_told() {\n\"no cure\"\nlet teller = 1;\n";

        let found = forbidden("control/a.rs", text);

        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("control/a.rs:1: a line says `told`"));
        assert!(found[1].starts_with("control/a.rs:2: a line says `cure`"));
    }

    #[test]
    fn a_comment_does_not_start_with_a_relative_clause_as_a_noun() {
        assert_eq!(find_anywhere("/// What it is."), Some("What"));
        assert_eq!(find_anywhere("    // Those that stay."), Some("Those"));
        assert_eq!(find_anywhere("//! Whatever."), None);
        assert_eq!(find_anywhere("let text = \"What is it?\";"), None);
    }

    #[test]
    fn a_phrase_is_found_across_punctuation_and_case() {
        assert_eq!(find("Not at all.", FORBIDDEN), Some("at all"));
        assert_eq!(find("In VAIN, it", FORBIDDEN), Some("in vain"));
        assert_eq!(find("that allows", FORBIDDEN), None);
    }
}
