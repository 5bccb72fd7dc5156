//! Parses the subset of PromQL that the chart's expressions use. Other PromQL is an error.
//!
//! ```text
//! expression  operand (operator [bool] [(on | ignoring) labels] [(group_left | group_right) [labels]] operand)*
//! operand     [-] (number | "(" expression ")" | function | aggregation | selector) ["[" duration "]"] [offset duration]
//! aggregation name [(by | without) labels] arguments [(by | without) labels]
//! ```
//!
//! No crate with a complete PromQL parser is used, because it would add twenty dependencies. One of
//! these dependencies is not maintained any more.

use std::collections::BTreeSet;

const AGGREGATIONS: [&str; 12] = [
    "avg",
    "bottomk",
    "count",
    "count_values",
    "group",
    "max",
    "min",
    "quantile",
    "stddev",
    "stdvar",
    "sum",
    "topk",
];

const FUNCTIONS: [&str; 18] = [
    "abs",
    "absent",
    "absent_over_time",
    "avg_over_time",
    "ceil",
    "changes",
    "clamp_min",
    "delta",
    "deriv",
    "floor",
    "histogram_quantile",
    "increase",
    "label_replace",
    "max_over_time",
    "rate",
    "time",
    "vector",
    "irate",
];

const OPERATORS: [&str; 15] = [
    "+", "-", "*", "/", "%", "^", "==", "!=", ">=", "<=", ">", "<", "and", "or", "unless",
];

/// Returns the names of the metrics that an expression selects.
///
/// # Errors
///
/// Returns a message with the first token that does not match the grammar.
pub(crate) fn metrics(text: &str) -> Result<BTreeSet<String>, String> {
    let mut reader = Reader {
        tokens: tokens(text)?,
        at: 0,
        metrics: BTreeSet::new(),
    };
    reader.expression()?;
    match reader.peek() {
        "" => Ok(reader.metrics),
        rest => Err(format!("`{rest}` is unexpected")),
    }
}

struct Reader {
    tokens: Vec<String>,
    at: usize,
    metrics: BTreeSet<String>,
}

impl Reader {
    fn expression(&mut self) -> Result<(), String> {
        self.operand()?;
        while OPERATORS.contains(&self.peek()) {
            self.at += 1;
            self.take("bool");
            if self.take("on") || self.take("ignoring") {
                self.labels()?;
                if (self.take("group_left") || self.take("group_right")) && self.peek() == "(" {
                    self.labels()?;
                }
            }
            self.operand()?;
        }

        Ok(())
    }

    fn operand(&mut self) -> Result<(), String> {
        self.take("-");
        let token = self.next();
        let is_call = self.peek() == "(";
        if token == "(" {
            self.expression()?;
            self.expect(")")?;
        } else if AGGREGATIONS.contains(&&*token) {
            let is_grouped = self.grouping()?;
            self.arguments()?;
            if !is_grouped {
                self.grouping()?;
            }
        } else if FUNCTIONS.contains(&&*token) && is_call {
            self.arguments()?;
        } else if is_name(&token) && !is_call && !OPERATORS.contains(&&*token) {
            self.metrics.insert(token);
            self.matchers()?;
        } else if token.parse::<f64>().is_err() {
            return Err(format!("`{token}` is not an operand"));
        }
        if self.take("[") {
            self.duration()?;
            self.expect("]")?;
        }
        if self.take("offset") {
            self.duration()?;
        }

        Ok(())
    }

    fn arguments(&mut self) -> Result<(), String> {
        self.expect("(")?;
        while !self.take(")") {
            if self.peek().starts_with('"') {
                self.at += 1;
            } else {
                self.expression()?;
            }
            if self.peek() != ")" {
                self.expect(",")?;
            }
        }

        Ok(())
    }

    fn grouping(&mut self) -> Result<bool, String> {
        let is_grouped = self.take("by") || self.take("without");
        if is_grouped {
            self.labels()?;
        }

        Ok(is_grouped)
    }

    fn labels(&mut self) -> Result<(), String> {
        self.expect("(")?;
        while !self.take(")") {
            let label = self.next();
            if !is_name(&label) {
                return Err(format!("`{label}` is not a label"));
            }
            if self.peek() != ")" {
                self.expect(",")?;
            }
        }

        Ok(())
    }

    fn matchers(&mut self) -> Result<(), String> {
        if !self.take("{") {
            return Ok(());
        }
        while !self.take("}") {
            let (label, operator, value) = (self.next(), self.next(), self.next());
            let is_operator = ["=", "!=", "=~", "!~"].contains(&&*operator);
            if !is_name(&label) || !is_operator || !value.starts_with('"') {
                return Err(format!("`{label} {operator} {value}` is not a matcher"));
            }
            if self.peek() != "}" {
                self.expect(",")?;
            }
        }

        Ok(())
    }

    fn duration(&mut self) -> Result<(), String> {
        let token = self.next();
        let number = token.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = &token[number.len()..];
        let is_right = number.parse::<u32>().is_ok() && ["ms", "s", "m", "h", "d"].contains(&unit);

        is_right
            .then_some(())
            .ok_or(format!("`{token}` is not a duration"))
    }

    /// Returns the next token, or an empty string at the end of the expression.
    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.peek() == token;
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        let is_next = self.take(token);
        is_next
            .then_some(())
            .ok_or_else(|| format!("`{token}` is missing before `{}`", self.peek()))
    }
}

fn is_name(token: &str) -> bool {
    let mut chars = token.chars();
    let first = chars.next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || "_:.".contains(c);
        let length = if first == '"' {
            rest[1..].find('"').ok_or("a string does not end")? + 2
        } else if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else {
            let two = rest.get(..2).unwrap_or_default();
            let is_two = ["==", "!=", ">=", "<=", "=~", "!~"].contains(&two);
            if is_two { 2 } else { first.len_utf8() }
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }

    Ok(tokens)
}
