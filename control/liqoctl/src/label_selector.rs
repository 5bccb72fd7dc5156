//! Label selectors in the format of kubectl, as terms of a node selector. PURE.

use serde_json::{Value, json};
use std::iter::Peekable;
use std::str::Chars;

/// Kubernetes' limit of the name in a key, and of a value.
const NAME_MAX: usize = 63;
/// Kubernetes' limit of the domain in a key.
const DOMAIN_MAX: usize = 253;

/// A label selector: requirements that must all be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    /// The selector as the user wrote it.
    text: String,
    /// Sorted by key.
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Sorted and unique; empty for [`Operator::Exists`] and [`Operator::DoesNotExist`].
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// Parses `key=value`, `key==value`, `key!=value`, `key in (a,b)`, `key notin (a,b)`, `key` and `!key`, separated by
    /// commas.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid part.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Tokens(text.chars().peekable());
        let mut requirements = Vec::new();
        loop {
            requirements.push(tokens.requirement()?);
            match tokens.next().as_str() {
                "" => break,
                "," => {}
                other => {
                    return Err(format!("{} follows a requirement: write ','", show(other)));
                }
            }
        }
        requirements.sort();
        let text = text.to_owned();
        Ok(Self { text, requirements })
    }

    /// Returns the selector as the user wrote it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the term of a node selector that selects the same nodes.
    pub(crate) fn term(&self) -> Value {
        let expressions: Vec<Value> = self.requirements.iter().map(Requirement::value).collect();
        json!({"matchExpressions": expressions})
    }
}

impl Requirement {
    fn value(&self) -> Value {
        let mut value = json!({"key": self.key, "operator": format!("{:?}", self.operator)});
        if !self.values.is_empty() {
            value["values"] = json!(self.values);
        }
        value
    }
}

/// The rest of a selector, of which tokens are taken: words, the signs `= != ! < > ( ) ,`, and an empty text at the end.
struct Tokens<'a>(Peekable<Chars<'a>>);

impl Tokens<'_> {
    fn requirement(&mut self) -> Result<Requirement, String> {
        let first = self.next();
        let is_negated = first == "!";
        let key = if is_negated { self.next() } else { first };
        if !is_word(&key) {
            return Err(format!("{} stands in place of a key", show(&key)));
        }
        check_key(&key)?;
        let following = self.peek();
        let (operator, values) = match following.as_str() {
            _ if is_negated => (Operator::DoesNotExist, Vec::new()),
            "," | "" => (Operator::Exists, Vec::new()),
            "=" => (Operator::In, self.after_operator()?),
            "!=" => (Operator::NotIn, self.after_operator()?),
            "in" => (Operator::In, self.list_after_operator()?),
            "notin" => (Operator::NotIn, self.list_after_operator()?),
            other => {
                let other = show(other);
                return Err(format!(
                    "{other} follows key {key}: write one of =, ==, !=, in, notin"
                ));
            }
        };
        Ok(Requirement {
            key,
            operator,
            values,
        })
    }

    fn after_operator(&mut self) -> Result<Vec<String>, String> {
        self.next();
        Ok(vec![self.value()?])
    }

    /// Returns the values in parentheses.
    fn list_after_operator(&mut self) -> Result<Vec<String>, String> {
        self.next();
        let opening = self.next();
        if opening != "(" {
            let opening = show(&opening);
            return Err(format!(
                "{opening} stands in place of '(': write key in (a,b)"
            ));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            match self.next().as_str() {
                "," => {}
                ")" => break,
                other => return Err(format!("{} stands in place of ')'", show(other))),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }

    /// Returns a value, which may be empty.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek().as_str(), "," | ")" | "") {
            return Ok(String::new());
        }
        let value = self.next();
        if !is_word(&value) {
            return Err(format!("{} stands in place of a value", show(&value)));
        }
        if value.len() > NAME_MAX || !is_name(&value) {
            return Err(format!(
                "{value:?} is no value of a label: use at most {NAME_MAX} letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
            ));
        }
        Ok(value)
    }

    fn peek(&self) -> String {
        Tokens(self.0.clone()).next()
    }

    fn next(&mut self) -> String {
        while self.0.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = self.0.next() else {
            return String::new();
        };
        let mut token = first.to_string();
        match first {
            // `==` is equal to `=`.
            '=' => {
                self.0.next_if_eq(&'=');
            }
            '!' => token.extend(self.0.next_if_eq(&'=')),
            first if ends_word(first) => {}
            _ => {
                while let Some(next) = self.0.next_if(|c| !ends_word(*c)) {
                    token.push(next);
                }
            }
        }
        token
    }
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|c| !ends_word(c))
}

/// Returns a token as messages contain it.
fn show(token: &str) -> String {
    match token {
        "" => "the end".to_owned(),
        word if is_word(word) => format!("{word:?}"),
        sign => format!("'{sign}'"),
    }
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || "=!<>(),".contains(c)
}

fn check_key(key: &str) -> Result<(), String> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_domain = |domain: &str| {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = |label: &str| {
            let is_bounded = !label.starts_with('-') && !label.ends_with('-');
            !label.is_empty() && label.chars().all(is_inner) && is_bounded
        };
        domain.len() <= DOMAIN_MAX && domain.split('.').all(is_label)
    };
    if name.len() <= NAME_MAX && is_name(name) && domain.is_none_or(is_domain) {
        return Ok(());
    }
    Err(format!(
        "{key:?} is no key of a label: write it as name or domain/name"
    ))
}

fn is_name(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    is_end(text.chars().next()) && is_end(text.chars().next_back()) && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(text: &str) -> Value {
        LabelSelector::parse(text).unwrap().term()["matchExpressions"].clone()
    }

    #[test]
    fn requirements_of_one_selector_are_one_term_sorted_by_key() {
        assert_eq!(
            term("region in (us-west, europe,europe), !staging"),
            json!([
                {"key": "region", "operator": "In", "values": ["europe", "us-west"]},
                {"key": "staging", "operator": "DoesNotExist"},
            ])
        );
        assert_eq!(
            term("zone,liqo.io/remote-cluster-id==milan,a notin(b),c != d"),
            json!([
                {"key": "a", "operator": "NotIn", "values": ["b"]},
                {"key": "c", "operator": "NotIn", "values": ["d"]},
                {"key": "liqo.io/remote-cluster-id", "operator": "In", "values": ["milan"]},
                {"key": "zone", "operator": "Exists"},
            ])
        );
    }

    #[test]
    fn the_words_in_and_notin_are_also_keys_and_values() {
        assert_eq!(
            term("in,notin=in"),
            json!([
                {"key": "in", "operator": "Exists"},
                {"key": "notin", "operator": "In", "values": ["in"]},
            ])
        );
    }

    #[test]
    fn values_may_be_empty() {
        assert_eq!(
            term("a=,b in (,x)"),
            json!([
                {"key": "a", "operator": "In", "values": [""]},
                {"key": "b", "operator": "In", "values": ["", "x"]},
            ])
        );
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, part) in [
            ("", "the end stands in place of a key"),
            ("a,", "the end stands in place of a key"),
            ("a=b c", "\"c\" follows a requirement"),
            ("a b", "\"b\" follows key a"),
            ("a > 1", "'>' follows key a"),
            ("a in b", "\"b\" stands in place of '('"),
            ("a in (b", "the end stands in place of ')'"),
            ("a=b=c", "'=' follows a requirement"),
            ("-a", "\"-a\" is no key"),
            ("a/b/c", "\"a/b/c\" is no key"),
            ("A.b/c", "\"A.b/c\" is no key"),
            ("/a", "\"/a\" is no key"),
            ("a=ü", "\"ü\" is no value"),
            ("!a=b", "'=' follows a requirement"),
        ] {
            let error = LabelSelector::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let long = "a".repeat(64);
        assert!(LabelSelector::parse(&long).is_err());
        assert!(LabelSelector::parse(&format!("a={long}")).is_err());
    }
}
