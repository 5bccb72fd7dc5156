use super::*;
use proptest::prelude::*;

fn sample(text: &str) -> Sample<'_> {
    match Line::parse(text) {
        Ok(Line::Sample(sample)) => sample,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn the_labels_of_a_sample_are_found_whatever_their_order_and_blanks() {
    for text in [
        "m{namespace=\"a\",pod=\"b\"} 1 17",
        "  m { pod = \"b\" , x = \"\" , namespace = \"a\" , }\t1\t17 ",
        "m{x=\"pod=\\\"c\\\",namespace=\\\"c\\\"}\",pod=\"b\",namespace=\"a\"}1 17",
        "m{x=\"\u{fc}\\\\\",namespace=\"a\",y=\"\\n\",pod=\"b\"} 1 17",
    ] {
        let sample = sample(text);
        assert_eq!(sample.name, "m");
        assert_eq!(
            (sample.namespace(), sample.pod()),
            (Some("a"), Some("b")),
            "{text}"
        );
        assert_eq!((sample.value, sample.timestamp), (1.0, Some(17)));
    }
}

#[test]
fn lines_that_are_not_of_the_format_are_malformed() {
    for text in [
        "m",
        "m{}",
        "m 1 2 3",
        "m one",
        "m 1 2.5",
        "1m 2",
        "m{a} 1",
        "m{a=b} 1",
        "m{a=\"b} 1",
        "m{a=\"b\"",
        "m{a=\"b\"c=\"d\"} 1",
        "m{,} 1",
        "m{a=\"\\x\"} 1",
        "m{a=\"\\",
        "m{a:b=\"c\"} 1",
        "m{namespace=\"a\",namespace=\"a\"} 1",
        "m{pod=\"a\",namespace=\"a\",pod=\"b\"} 1",
        "{\"m\"} 1",
        "m{\"quoted\"=\"a\"} 1",
        "m 1\r",
        "# TYPE m evil",
        "# TYPE m",
        "# TYPE m{} gauge",
        "# HELP m\u{e9} text",
        "# HELP",
    ] {
        assert_eq!(Line::parse(text), Err(Malformed), "{text:?}");
    }
}

#[test]
fn descriptions_and_comments_are_distinguished() {
    let (family, kind) = ("m", "counter");
    assert_eq!(
        Line::parse("# TYPE m counter"),
        Ok(Line::Type { family, kind })
    );
    let text = "a text, \\n \\\\";
    assert_eq!(
        Line::parse("#\tHELP m a text, \\n \\\\"),
        Ok(Line::Help { family, text })
    );
    for text in ["", " \t", "#", "# EOF", "# any comment", "#TYPES m counter"] {
        assert_eq!(Line::parse(text), Ok(Line::Ignored), "{text:?}");
    }
}

#[test]
fn values_of_the_format_are_numbers() {
    for text in ["1", "-1.5e-3", "+Inf", "-Inf", "NaN", "0x"] {
        let line = format!("m {text}");
        assert_eq!(Line::parse(&line).is_ok(), text != "0x", "{text}");
    }
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_not() {
    let long = "x".repeat(LINE_LEN_MAX + 1);
    let fits = "y".repeat(LINE_LEN_MAX);
    let text = format!("{long}\n{fits}\nlast");
    for length in [1, 7, 1000, text.len()] {
        let mut lines = Vec::new();
        let mut reader = LineReader::default();
        for piece in text.as_bytes().chunks(length) {
            reader.push(piece, |line| lines.push(line.to_vec()));
        }
        let too_long = reader.finish(|line| lines.push(line.to_vec()));

        assert_eq!(too_long, 1, "{length}");
        assert_eq!(lines, [fits.as_bytes(), b"last"], "{length}");
    }
}

proptest! {
    #[test]
    fn pieces_of_any_length_give_the_same_lines(
        lines in prop::collection::vec("[ab]{0,9}", 0..9),
        lengths in prop::collection::vec(1_usize..9, 1..20),
    ) {
        let text = lines.join("\n");
        let mut rest = text.as_bytes();
        let mut found = Vec::new();
        let mut reader = LineReader::default();
        for length in lengths.iter().cycle() {
            let (piece, after) = rest.split_at((*length).min(rest.len()));
            reader.push(piece, |line| found.push(String::from_utf8(line.to_vec()).unwrap()));
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        reader.finish(|line| found.push(String::from_utf8(line.to_vec()).unwrap()));
        // Empty lines have no meaning.
        let expected: Vec<_> = lines.iter().filter(|line| !line.is_empty()).collect();
        let found: Vec<_> = found.iter().filter(|line| !line.is_empty()).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_written_sample_is_parsed_again_with_the_other_namespace(
        name in "[a-zA-Z_:][a-zA-Z0-9_:]{0,5}",
        before in "(x=\"([^\"\\\\\n]|\\\\\\\\|\\\\\"|\\\\n){0,9}\",)?",
        namespace in "[a-z-]{0,9}",
        pod in "[a-z-]{1,9}",
        value in any::<i32>(),
    ) {
        let text = format!("{name}{{{before}namespace=\"{namespace}\",pod=\"{pod}\"}} {value} 7");
        let mut written = String::new();
        sample(&text).write_with_namespace("other", &mut written);

        prop_assert_eq!(written.pop(), Some('\n'));
        let sample = sample(&written);
        prop_assert_eq!(sample.name, name);
        prop_assert_eq!((sample.namespace(), sample.pod()), (Some("other"), Some(pod.as_str())));
        prop_assert_eq!((sample.value, sample.timestamp), (f64::from(value), Some(7)));
    }

    #[test]
    fn no_text_panics(text in "[a-z{}\"\\\\=,# 0-9\u{e9}]{0,40}") {
        // Each result is right here.
        let _ = Line::parse(&text);
    }
}
