//! Limits of what a provider may write into the status of a pod.

use super::context::Context;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Conditions of a pod. Kubernetes has ten types, and readiness gates add some.
pub(super) const CONDITIONS_MAX: usize = 32;

/// Supplemental groups of a container.
pub(super) const GROUPS_MAX: usize = 64;

/// Bytes of a message; that of a kubelet's termination message.
const MESSAGE_MAX: usize = 4096;
/// Bytes of the messages of all containers of a pod in one of their states, so that the pod fits into an object.
const MESSAGES_MAX: usize = 64 * 1024;
/// Bytes of a reason, which is one word.
const REASON_MAX: usize = 256;
/// Bytes of an image or an ID of a container; a reference has 255 bytes and a digest.
const ID_MAX: usize = 512;
/// Bytes of a qualified name: a domain of 253 bytes, a slash and 63 bytes.
const QUALIFIED_NAME_MAX: usize = 253 + 1 + 63;
/// Resources of a container.
const RESOURCES_MAX: usize = 64;
/// Bytes of an amount.
const QUANTITY_MAX: usize = 32;

/// Returns a message of the pod or one of its conditions.
pub(super) fn message(text: Option<&str>) -> Option<String> {
    text.map(|it| cut(it, MESSAGE_MAX))
}

/// Returns the bytes of a message of one of the pod's containers.
pub(super) fn container_message_max(pod: &Pod) -> usize {
    let count = pod.spec.as_ref().map_or(0, |spec| {
        let init = spec.init_containers.as_ref().map_or(0, Vec::len);
        let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
        spec.containers.len() + init + ephemeral
    });
    (MESSAGES_MAX / count.max(1)).min(MESSAGE_MAX)
}

/// Returns the reason of a state.
pub(super) fn reason(text: Option<&str>) -> Option<String> {
    text.map(|it| cut(it, REASON_MAX))
}

/// Returns an image or an ID of a container.
pub(super) fn id(text: &str) -> String {
    cut(text, ID_MAX)
}

/// Returns the beginning of a text, without the control characters that a terminal would interpret.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let text = &text[..text.floor_char_boundary(max)];
    let printable = |it: char| {
        if it.is_control() && it != '\n' && it != '\t' {
            ' '
        } else {
            it
        }
    };
    text.chars().map(printable).collect()
}

/// Returns a phase that Kubernetes knows.
pub(super) fn phase(phase: &str) -> String {
    let known = ["Pending", "Running", "Succeeded", "Failed"];
    let phase = known.into_iter().find(|it| *it == phase);
    phase.unwrap_or("Unknown").to_owned()
}

/// Returns a status that a condition may have.
pub(super) fn condition_status(status: &str) -> String {
    let known = ["True", "False"];
    let status = known.into_iter().find(|it| *it == status);
    status.unwrap_or("Unknown").to_owned()
}

/// Returns whether a text is a qualified name, as the API server requires of types of conditions and names of resources.
pub(super) fn is_qualified_name(type_: &str) -> bool {
    let is_edge = |it: char| it.is_ascii_alphanumeric();
    let is_inner = |it: char| is_edge(it) || matches!(it, '-' | '_' | '.');
    let is_part = |part: &str| {
        part.starts_with(is_edge) && part.ends_with(is_edge) && part.chars().all(is_inner)
    };
    let is_domain = |part: &str| {
        let is_lower = |it: char| !it.is_ascii_uppercase() && it != '_';
        part.len() <= 253 && part.chars().all(is_lower) && part.split('.').all(is_part)
    };
    let (domain, name) = match type_.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, type_),
    };

    type_.len() <= QUALIFIED_NAME_MAX
        && domain.is_none_or(is_domain)
        && name.len() <= 63
        && is_part(name)
}

/// Returns the generation of the pod that the provider has observed. The remote pod counts its own generations.
pub(super) fn generation(observed: i64, context: &Context<'_>) -> i64 {
    let generation = context.pod.metadata.generation.unwrap_or(0).max(0);
    if context.generation.is_some_and(|remote| observed >= remote) {
        return generation;
    }
    let status = context.pod.status.as_ref();
    let before = status.and_then(|it| it.observed_generation);

    before.unwrap_or(observed).clamp(0, generation)
}

/// Returns the amounts that the API server can parse.
pub(super) fn amounts(amounts: &BTreeMap<String, Quantity>) -> BTreeMap<String, Quantity> {
    let are_valid = |(name, amount): &(&String, &Quantity)| {
        is_qualified_name(name) && amount.0.len() <= QUANTITY_MAX && is_quantity(&amount.0)
    };
    let amounts = amounts.iter().filter(are_valid).take(RESOURCES_MAX);
    amounts
        .map(|(name, amount)| (name.clone(), amount.clone()))
        .collect()
}

/// Returns whether a text is an amount: a decimal number, and a suffix or an exponent.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let exponent = suffix.strip_prefix(['e', 'E']);
    let is_exponent = exponent.is_some_and(|digits| digits.parse::<i8>().is_ok());

    number.parse::<f64>().is_ok() && (SUFFIXES.contains(&suffix) || is_exponent)
}
