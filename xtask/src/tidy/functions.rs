//! Checks the length of functions.

/// Maximum number of lines of a function, from `fn` to its closing brace.
const LINES_MAX: usize = 70;

/// The folders whose functions are checked.
const FOLDERS: &[&str] = &["control/", "ipam/", "telemetry/", "xtask/"];

/// Returns one line for each function of a file that is too long.
pub(super) fn too_long(path: &str, text: &str) -> Vec<String> {
    if !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Vec::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let functions = lines
        .iter()
        .enumerate()
        .filter_map(|(start, line)| Some((start, name(line)?, length(&lines[start..])?)));

    functions
        .filter(|(_, _, length)| *length > LINES_MAX)
        .map(|(start, name, length)| {
            format!(
                "{path}:{}: the function {name} has {length} lines, more than {LINES_MAX}",
                start + 1
            )
        })
        .collect()
}

/// Returns the name of the function that a line declares.
fn name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let is_declaration = words
        .by_ref()
        .take_while(|word| *word != "fn")
        .all(is_qualifier);
    let name = words.next()?.split(['(', '<']).next()?;

    is_declaration.then_some(name)
}

fn is_qualifier(word: &str) -> bool {
    let is_visibility = word.starts_with("pub") || word.ends_with(')');
    is_visibility || ["async", "const", "extern", "in", "unsafe", "\"C\""].contains(&word)
}

/// Returns the number of lines of the function that starts in the first line; none for a
/// declaration without a body. The closing brace has the indentation of the first line, because
/// the code is formatted.
fn length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    let indentation = &first[..first.len() - first.trim_start().len()];
    let end = lines.iter().position(|line| {
        line.strip_prefix(indentation)
            .is_some_and(|rest| rest.starts_with('}') || rest.ends_with([';', '}']))
            && !line[indentation.len()..].starts_with(' ')
    })?;

    lines[end].ends_with('}').then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(signature: &str, lines: usize) -> String {
        format!("{signature} {{\n{}}}\n", "    work();\n".repeat(lines))
    }

    #[test]
    fn a_long_function_is_refused_with_its_length() {
        let long = function("pub(crate) async fn run<T>(it: T)", LINES_MAX - 1);
        let longest = function("fn run()", LINES_MAX - 2);

        assert_eq!(
            too_long("control/a.rs", &format!("\n{long}")),
            ["control/a.rs:2: the function run has 71 lines, more than 70"]
        );
        assert_eq!(too_long("control/a.rs", &longest), [""; 0]);
        assert_eq!(too_long("tests/a.rs", &long), [""; 0]);
    }

    #[test]
    fn declarations_without_a_body_and_one_line_functions_end_at_once() {
        let filler = "// a comment\n".repeat(LINES_MAX);
        let text = format!("fn declared();\n{filler}fn short() {{}}\n{filler}");

        assert_eq!(too_long("control/a.rs", &text), [""; 0]);
    }

    #[test]
    fn a_function_of_an_implementation_ends_at_its_own_brace() {
        let inner = function("fn run()", LINES_MAX).replace('\n', "\n    ");

        let found = too_long("control/a.rs", &format!("impl A {{\n    {inner}\n}}\n"));

        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("control/a.rs:2: the function run has 72 lines"));
    }
}
