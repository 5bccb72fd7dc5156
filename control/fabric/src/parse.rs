//! Parses the objects of a file.

use super::error::{Error, Errors, Place, Position, Problem, ordered};
use super::objects::{Document, Object, Objects};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parses the objects of a multi-document YAML file.
///
/// # Errors
///
/// Returns all errors of syntax, kinds, fields and types.
pub fn parse(text: &str) -> Result<Objects, Errors> {
    let mut objects = Objects::default();
    let mut errors = Vec::new();
    let mut document = 0;
    for chunk in chunks(text) {
        let value = match serde_saphyr::from_str::<Value>(chunk.text) {
            Ok(Value::Null) => continue,
            Ok(value) => Ok(value),
            Err(_) => Err(syntax(&chunk)),
        };
        document += 1;
        let position = Position {
            document,
            line: chunk.line,
        };
        match value
            .map_err(|problem| (String::new(), vec![(String::new(), problem)]))
            .and_then(object)
        {
            Ok(object) => objects.documents.push(Document {
                position: Some(position),
                object: Arc::new(object),
                is_last_good: false,
            }),
            Err((object, problems)) => {
                errors.extend(problems.into_iter().map(|(field, problem)| Error {
                    place: Place {
                        position: Some(position),
                        object: object.clone(),
                        field,
                    },
                    problem,
                }));
            }
        }
    }

    errors.extend(duplicates(&objects));
    if document == 0 {
        errors.push(Error {
            place: Place::default(),
            problem: Problem::Empty,
        });
    }
    ordered(errors).map_or(Ok(objects), Err)
}

/// The text of one document.
struct Chunk<'a> {
    /// Number of the first line that is not a comment.
    line: usize,
    text: &'a str,
    /// Number of the first line of `text`.
    start: usize,
}

/// Splits a file at the lines that start with `---` or `...`, which always are document markers in YAML.
///
/// Each document is parsed separately, so that an error in one does not hide those in others.
fn chunks(text: &str) -> Vec<Chunk<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut chunks = Vec::new();
    let (mut start_offset, mut start_line) = (0, 1);
    let (mut offset, mut line) = (0, 1);
    for piece in text.split_inclusive('\n') {
        let is_marker = ["---", "..."].into_iter().any(|marker| {
            piece
                .strip_prefix(marker)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
        });
        if is_marker {
            chunks.push((start_line, &text[start_offset..offset]));
            let is_end = piece.starts_with('.');
            start_offset = if is_end { offset + piece.len() } else { offset };
            start_line = if is_end { line + 1 } else { line };
        }
        offset += piece.len();
        line += 1;
    }
    chunks.push((start_line, &text[start_offset..]));

    chunks
        .into_iter()
        .filter_map(|(start, text)| {
            let content = text.lines().position(is_content)?;
            Some(Chunk {
                line: start + content,
                text,
                start,
            })
        })
        .collect()
}

/// Returns whether a line contains more than a comment, a directive or a document marker.
fn is_content(line: &str) -> bool {
    let line = line.strip_prefix("---").unwrap_or(line).trim();

    !line.is_empty() && !line.starts_with(['#', '%'])
}

/// Parses an invalid document again behind empty lines, so that the message has line numbers of the file.
fn syntax(chunk: &Chunk<'_>) -> Problem {
    let padded = "\n".repeat(chunk.start - 1) + chunk.text;
    let message = match serde_saphyr::from_str::<Value>(&padded) {
        Ok(_) => "it is ambiguous".to_owned(),
        Err(error) => error.without_snippet().to_string(),
    };

    Problem::Syntax { message }
}

/// Kind and name of the object as far as the document has them, and the problem of each invalid field.
type Refusal = (String, Vec<(String, Problem)>);

fn object(value: Value) -> Result<Object, Refusal> {
    let Value::Object(fields) = &value else {
        return Err((String::new(), vec![(String::new(), Problem::NotAnObject)]));
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = |key| {
        text(
            fields
                .get("metadata")
                .and_then(|metadata| metadata.get(key)),
        )
    };
    let (api_version, kind) = (text(fields.get("apiVersion")), text(fields.get("kind")));
    let (namespace, name) = (metadata("namespace"), metadata("name"));
    let label = match namespace.as_str() {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    };

    let mut problems = Vec::new();
    for (field, value) in [
        ("apiVersion", &api_version),
        ("kind", &kind),
        ("metadata.name", &name),
    ] {
        if value.is_empty() {
            problems.push((field.to_owned(), Problem::MissingField));
        }
    }
    if api_version.is_empty() || kind.is_empty() {
        return Err((label.trim().to_owned(), problems));
    }

    match Object::decode(&api_version, &kind, value) {
        Ok(object) if problems.is_empty() => Ok(object),
        Ok(_) => Err((label, problems)),
        Err(more) => Err((label, [problems, more].concat())),
    }
}

fn duplicates(objects: &Objects) -> Vec<Error> {
    let mut errors = Vec::new();
    let mut seen = BTreeMap::new();
    for (index, object) in objects.iter().enumerate() {
        if let Some(first) = seen.insert(object.label(), index) {
            errors.push(Error {
                place: objects.place(index, ""),
                problem: Problem::DuplicateObject {
                    other: Box::new(objects.place(first, "")),
                },
            });
        }
    }

    errors
}

impl std::str::FromStr for Objects {
    type Err = Errors;

    fn from_str(text: &str) -> Result<Self, Errors> {
        parse(text)
    }
}

#[cfg(test)]
mod tests;
