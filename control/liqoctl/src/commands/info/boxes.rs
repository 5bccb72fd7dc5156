//! Draws upstream's boxes of text. PURE.

/// Width within a box, in columns.
const WIDTH: usize = 82;
/// Columns before the text of the outermost level.
const MARGIN: usize = 2;
/// Further columns before the text of each inner level.
const INDENT: usize = 4;

/// An item of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A name and its value.
    Entry(String, String),
    /// A line of text.
    Line(String),
    /// A heading, and the items of the section.
    Section(String, Vec<Item>),
}

impl Item {
    /// Returns an entry.
    pub(crate) fn entry(key: &str, value: impl Into<String>) -> Self {
        Self::Entry(key.to_owned(), value.into())
    }

    /// Returns a section.
    pub(crate) fn section(title: impl Into<String>, items: Vec<Item>) -> Self {
        Self::Section(title.into(), items)
    }
}

/// Returns a box that ends with a line feed.
pub(crate) fn draw(title: &str, items: &[Item]) -> String {
    let mut lines = Vec::new();
    write(items, MARGIN, &mut lines);
    if lines.is_empty() {
        lines.push(String::new());
    }
    let longest = lines.iter().map(|line| columns(line) + MARGIN).max();
    let width = longest.unwrap_or_default().max(WIDTH);
    let heading = format!("─ {title} ");
    let mut text = format!("┌{heading}{}┐\n", "─".repeat(width - columns(&heading)));
    for line in lines {
        let rest = " ".repeat(width - columns(&line));
        text += &format!("|{line}{rest}|\n");
    }
    text += &format!("└{}┘\n", "─".repeat(width));
    text
}

fn write(items: &[Item], indent: usize, lines: &mut Vec<String>) {
    let keys = items.iter().filter_map(|item| match item {
        Item::Entry(key, _) => Some(columns(key)),
        Item::Line(_) | Item::Section(..) => None,
    });
    // The colon is aligned with the key.
    let wide = keys.max().unwrap_or_default() + 1;
    let margin = " ".repeat(indent);
    for item in items {
        match item {
            Item::Entry(key, value) => {
                let line = format!("{margin}{:<wide$} {value}", format!("{key}:"));
                lines.push(line.trim_end().to_owned());
            }
            Item::Line(text) => lines.push(format!("{margin}{text}")),
            Item::Section(title, items) => {
                lines.push(format!("{margin}{title}"));
                write(items, indent + INDENT, lines);
            }
        }
    }
}

/// Returns the width of a text. Each character that is used takes one column.
fn columns(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_level_are_aligned() {
        let items = [
            Item::entry("Cluster ID", "rome"),
            Item::section("Cluster labels", vec![Item::entry("region", "A")]),
            Item::entry("K8s API server", "https://a"),
        ];

        let text = draw("Local", &items);

        let lines: Vec<&str> = text
            .lines()
            .map(|line| line.trim_end_matches(['|', ' ']))
            .collect();
        assert_eq!(lines[1], "|  Cluster ID:     rome");
        assert_eq!(lines[3], "|      region: A");
        assert_eq!(lines[4], "|  K8s API server: https://a");
    }

    #[test]
    fn all_lines_have_one_width() {
        for items in [vec![], vec![Item::Line("x".repeat(200))]] {
            let text = draw("Title", &items);
            let widths: Vec<usize> = text.lines().map(columns).collect();
            assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        }
    }
}
