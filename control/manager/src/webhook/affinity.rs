//! Combines the required node affinity of a pod with that of its namespace.

use control_api::node_affinity::{LISTS, entries, is_empty};
use serde_json::{Value, json};

/// Maximum number of combined terms. A scheduler evaluates them for each node.
const TERMS_MAX: usize = 1000;

/// Maximum length of the combined terms as JSON, in bytes. The API server stores objects up to 1.5 MiB.
const LEN_MAX: usize = 1 << 20;

/// The terms of a pod and those of its namespace have too many combinations.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{count} combinations of {len} bytes exceed the limits of {TERMS_MAX} and {LEN_MAX} bytes: use fewer terms"
)]
pub(super) struct TooMany {
    count: usize,
    len: usize,
}

/// Returns terms of which a node matches one if it matches one of `present` and one of `imposed`.
///
/// A term of `present` that includes one of `imposed` stays as it is, so the result does not change if it is combined
/// again.
///
/// # Errors
///
/// Returns [`TooMany`] if the result exceeds the limits.
pub(super) fn both(present: Option<&[Value]>, imposed: &[Value]) -> Result<Vec<Value>, TooMany> {
    let imposed: Vec<_> = imposed.iter().filter(|term| !is_empty(term)).collect();
    if imposed.is_empty() {
        // An empty term matches no node, as the ones of `imposed`.
        return Ok(vec![json!({})]);
    }
    let Some(present) = present else {
        return Ok(imposed.into_iter().cloned().collect());
    };
    let is_final = |term: &Value| is_empty(term) || imposed.iter().any(|it| includes(term, it));
    check(present.iter().filter(|it| !is_final(it)), &imposed)?;

    let combined = present.iter().flat_map(|term| match is_final(term) {
        true => vec![term.clone()],
        false => imposed.iter().map(|it| joined(term, it)).collect(),
    });
    Ok(combined.collect())
}

/// Checks the limits before the combinations take memory.
fn check<'a>(present: impl Iterator<Item = &'a Value>, imposed: &[&Value]) -> Result<(), TooMany> {
    let len = |term: &Value| term.to_string().len();
    let imposed_len: usize = imposed.iter().map(|term| len(term)).sum();
    let (mut count, mut total) = (0, 0_usize);
    for term in present {
        count += imposed.len();
        total = total.saturating_add(len(term).saturating_mul(imposed.len()) + imposed_len);
    }
    if count > TERMS_MAX || total > LEN_MAX {
        return Err(TooMany { count, len: total });
    }

    Ok(())
}

/// Returns a term with the entries of both.
fn joined(term: &Value, imposed: &Value) -> Value {
    let mut joined = term.clone();
    for list in LISTS {
        let added = entries(imposed, list);
        if !added.is_empty() {
            joined[list] = [entries(term, list), added].concat().into();
        }
    }
    joined
}

/// Returns whether a term has all entries of another one.
fn includes(term: &Value, other: &Value) -> bool {
    LISTS.iter().all(|list| {
        let present = entries(term, list);
        entries(other, list).iter().all(|it| present.contains(it))
    })
}
