//! Writes YAML as kubectl does: lists are not indented, and strings are quoted only if a parser
//! would read another type. The library's writer does neither.

use serde_json::Value;

/// Words that YAML 1.1 reads as a boolean, null or number.
const RESERVED: [&str; 12] = [
    "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "nan", "inf",
];

/// Returns a value as a document that ends with a line feed.
pub(super) fn write(value: &Value) -> String {
    if !has_lines(value) {
        return inline(value) + "\n";
    }
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Returns whether a value is written in block style, on separate lines.
fn has_lines(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| !fields.is_empty())
        || value.as_array().is_some_and(|items| !items.is_empty())
}

/// Writes a map or list whose lines are indented by `depth` columns.
fn block(value: &Value, depth: usize, text: &mut String) {
    let margin = " ".repeat(depth);
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                *text += &format!("{margin}{}:", scalar(key));
                below(field, depth, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut lines = String::new();
                if has_lines(item) {
                    block(item, depth + 2, &mut lines);
                } else {
                    lines = format!("{margin}  {}\n", inline(item));
                }
                // The first line of an item follows its dash.
                *text += &format!("{margin}- {}", &lines[depth + 2..]);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes the value of a key, on the same line or on the lines below.
fn below(field: &Value, depth: usize, text: &mut String) {
    if !has_lines(field) {
        *text += &format!(" {}\n", inline(field));
        return;
    }
    // Only maps are indented.
    let depth = if field.is_array() { depth } else { depth + 2 };
    *text += "\n";
    block(field, depth, text);
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns a plain scalar, or a string in the quotes of JSON, which are valid YAML.
fn scalar(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

/// Returns whether a parser reads the unquoted text as the same string.
fn is_plain(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_./-+=,()@".contains(c);
    let mut inner = text.chars().zip(text.chars().skip(1).chain([' ']));
    let is_safe = |(c, next): (char, char)| {
        is_word(c) || (c == ' ' && next != '#') || (c == ':' && next != ' ')
    };
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '_');
    starts_well
        && inner.all(is_safe)
        && !text.ends_with(' ')
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str())
        && !is_number_or_date(text)
}

/// Returns whether YAML 1.1 may read a text as a number, a time of day or a date.
fn is_number_or_date(text: &str) -> bool {
    let digits = text
        .chars()
        .all(|c| c.is_ascii_digit() || "_:+-".contains(c));
    let number = text.replace('_', "").parse::<f64>().is_ok();
    let radix = ["0x", "0o", "0b"]
        .iter()
        .any(|prefix| text.starts_with(prefix));
    let bytes = text.as_bytes();
    let date = bytes.len() >= 10
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[7] == b'-';
    digits || number || radix || date
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn output_equals_that_of_kubectl() {
        let value = json!({
            "a": {"list": ["10.244.0.0/16", {"b": 1, "c": []}, [true]], "none": {}},
            "time": "2026-11-21T08:15:18Z",
            "yes": "true",
        });

        let expected = "\
a:
  list:
  - 10.244.0.0/16
  - b: 1
    c: []
  - - true
  none: {}
time: \"2026-11-21T08:15:18Z\"
\"yes\": \"true\"
";
        assert_eq!(write(&value), expected);
    }

    #[test]
    fn each_string_survives_writing_and_reading() {
        for text in [
            "",
            " ",
            "1.2.3.4",
            "1",
            "0x1",
            "1:30",
            "-",
            "- a",
            "a: b",
            "a #b",
            "a\nb",
            "é",
            "'",
            "\"",
            "{}",
            "*a",
            "&a",
            "!a",
            "a:",
            "null",
            "No",
            "1e3",
            "a b",
            "https://a:6443",
            "@a",
            "=",
        ] {
            let value = json!({"key": text, "list": [text, {text: text}]});

            let read: Value = serde_saphyr::from_str(&write(&value)).unwrap();

            assert_eq!(read, value, "{text:?}");
        }
    }
}
