//! Lines of the Prometheus text format (version 0.0.4), as kubelets send them.

use std::ops::Range;

/// Maximum length of a line, in bytes. The longest labels of cAdvisor are paths and names of images, below 4 KiB.
pub(crate) const LINE_LEN_MAX: usize = 16 * 1024;

/// Splits the text of a kubelet into lines, in pieces of any length.
#[derive(Debug, Default)]
pub(crate) struct LineReader {
    /// Start of a line whose end is in a later piece.
    partial: Vec<u8>,
    /// Whether the rest of a line that is too long is skipped.
    is_skipping: bool,
    /// Number of lines that were too long.
    too_long: u64,
}

/// A line of the text.
#[derive(Debug, PartialEq)]
pub(crate) enum Line<'a> {
    /// `# HELP family text`.
    Help {
        /// Name of the family.
        family: &'a str,
        /// Description, with its escapes.
        text: &'a str,
    },
    /// `# TYPE family kind`.
    Type {
        /// Name of the family.
        family: &'a str,
        /// One of [`KINDS`].
        kind: &'static str,
    },
    /// A sample.
    Sample(Sample<'a>),
    /// An empty line or another comment.
    Ignored,
}

/// A sample, with the positions of the labels that the filter reads.
#[derive(Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The whole line.
    pub(crate) text: &'a str,
    /// Name of the metric.
    pub(crate) name: &'a str,
    /// Position of the value of the label `namespace` in the line, without quotes.
    pub(crate) namespace: Option<Range<usize>>,
    /// Position of the value of the label `pod`.
    pub(crate) pod: Option<Range<usize>>,
    /// Whether there is any label.
    pub(crate) has_labels: bool,
    /// Value.
    pub(crate) value: f64,
    /// Milliseconds since 1970.
    pub(crate) timestamp: Option<i64>,
}

/// A line that is not of the text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Kinds of metrics.
pub(crate) const KINDS: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

impl LineReader {
    /// Adds the next bytes, and calls `handle` with each line that they complete.
    pub(crate) fn push(&mut self, mut piece: &[u8], mut handle: impl FnMut(&[u8])) {
        while let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            piece = rest;
            if self.partial.is_empty() && !self.is_skipping && line.len() <= LINE_LEN_MAX {
                handle(line);
                continue;
            }
            self.extend(line);
            self.end(&mut handle);
        }
        self.extend(piece);
    }

    /// Ends the text, and returns the number of lines that were too long.
    pub(crate) fn finish(mut self, mut handle: impl FnMut(&[u8])) -> u64 {
        self.end(&mut handle);
        self.too_long
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.is_skipping {
            return;
        }
        if self.partial.len() + bytes.len() > LINE_LEN_MAX {
            self.is_skipping = true;
            self.partial.clear();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn end(&mut self, handle: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.is_skipping) {
            self.too_long += 1;
        } else if !self.partial.is_empty() {
            handle(&self.partial);
        }
        self.partial.clear();
    }
}

impl<'a> Line<'a> {
    /// Parses a line without its end.
    ///
    /// # Errors
    ///
    /// Returns [`Malformed`] if it is no line of the format.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Malformed> {
        match text.trim_start_matches(is_blank).strip_prefix('#') {
            Some(comment) => comment_of(comment),
            None if text.trim_matches(is_blank).is_empty() => Ok(Self::Ignored),
            None => Sample::parse(text).map(Self::Sample),
        }
    }
}

impl<'a> Sample<'a> {
    /// Returns the value of the label `namespace`, with its escapes.
    pub(crate) fn namespace(&self) -> Option<&'a str> {
        self.text.get(self.namespace.clone()?)
    }

    /// Returns the value of the label `pod`, with its escapes.
    pub(crate) fn pod(&self) -> Option<&'a str> {
        self.text.get(self.pod.clone()?)
    }

    /// Appends the line with another namespace to `output`. The namespace must contain no character that needs an
    /// escape, as all names of namespaces.
    pub(crate) fn write_with_namespace(&self, namespace: &str, output: &mut String) {
        let Some(Range { start, end }) = self.namespace.clone() else {
            return;
        };
        output.push_str(&self.text[..start]);
        output.push_str(namespace);
        output.push_str(&self.text[end..]);
        output.push('\n');
    }

    fn parse(text: &'a str) -> Result<Self, Malformed> {
        let mut cursor = Cursor { text, at: 0 };
        cursor.skip_blanks();
        let name = cursor.name(true)?;
        let mut sample = Self {
            text,
            name,
            namespace: None,
            pod: None,
            has_labels: false,
            value: 0.0,
            timestamp: None,
        };
        cursor.skip_blanks();
        if cursor.eat(b'{') {
            sample.labels(&mut cursor)?;
        }
        let mut words = text[cursor.at..]
            .split(is_blank)
            .filter(|it| !it.is_empty());
        let value = words.next().and_then(|it| it.parse().ok());
        sample.value = value.ok_or(Malformed)?;
        if let Some(word) = words.next() {
            sample.timestamp = Some(word.parse().map_err(|_| Malformed)?);
        }
        match words.next() {
            Some(_) => Err(Malformed),
            None => Ok(sample),
        }
    }

    fn labels(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Malformed> {
        loop {
            cursor.skip_blanks();
            if cursor.eat(b'}') {
                return Ok(());
            }
            let name = cursor.name(false)?;
            cursor.skip_blanks();
            cursor.expect(b'=')?;
            cursor.skip_blanks();
            let value = cursor.quoted()?;
            self.has_labels = true;
            let slot = match name {
                "namespace" => Some(&mut self.namespace),
                "pod" => Some(&mut self.pod),
                _ => None,
            };
            // Of two labels of one name, readers may prefer either.
            if slot.is_some_and(|slot| slot.replace(value).is_some()) {
                return Err(Malformed);
            }
            cursor.skip_blanks();
            if !cursor.eat(b',') {
                cursor.expect(b'}')?;
                return Ok(());
            }
        }
    }
}

/// A position in a line, always between two characters.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.eat(byte) {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    /// Reads the name of a metric or of a label. Only those of metrics contain colons.
    fn name(&mut self, has_colons: bool) -> Result<&'a str, Malformed> {
        let start = self.at;
        while let Some(byte) = self.peek() {
            let is_first = self.at == start;
            let is_name = byte.is_ascii_alphabetic()
                || byte == b'_'
                || (has_colons && byte == b':')
                || (!is_first && byte.is_ascii_digit());
            if !is_name {
                break;
            }
            self.at += 1;
        }
        let name = &self.text[start..self.at];
        if name.is_empty() {
            Err(Malformed)
        } else {
            Ok(name)
        }
    }

    /// Reads a quoted value, and returns its position without the quotes.
    fn quoted(&mut self) -> Result<Range<usize>, Malformed> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            match self.peek().ok_or(Malformed)? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek() {
                        Some(b'\\' | b'"' | b'n') => self.at += 1,
                        Some(_) | None => return Err(Malformed),
                    }
                }
                // Bytes of longer characters are neither quotes nor backslashes.
                _ => self.at += 1,
            }
        }
        let end = self.at;
        self.at += 1;
        Ok(start..end)
    }
}

/// Parses what follows the number sign.
fn comment_of(comment: &str) -> Result<Line<'_>, Malformed> {
    let comment = comment.trim_start_matches(is_blank);
    let (keyword, rest) = comment.split_once(is_blank).unwrap_or((comment, ""));
    let rest = rest.trim_start_matches(is_blank);
    let (family, text) = rest.split_once(is_blank).unwrap_or((rest, ""));
    if !matches!(keyword, "HELP" | "TYPE") {
        return Ok(Line::Ignored);
    }
    let mut cursor = Cursor {
        text: family,
        at: 0,
    };
    if cursor.name(true)? != family {
        return Err(Malformed);
    }
    if keyword == "HELP" {
        return Ok(Line::Help { family, text });
    }
    let text = text.trim_matches(is_blank);
    let kind = KINDS.iter().find(|kind| **kind == text).ok_or(Malformed)?;

    Ok(Line::Type { family, kind })
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t')
}

#[cfg(test)]
mod tests;
