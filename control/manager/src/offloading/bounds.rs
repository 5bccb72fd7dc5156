//! Limits of what this cluster takes from the status of a ResourceSlice, and from a VkOptionsTemplate.
//!
//! The provider writes the status, and it may be hostile: labels of reserved domains would steer controllers and
//! schedulers of the consumer, and large maps would fill its API server. Invalid and surplus parts are left out, and an
//! Event names them.

use control_api::classes::{IngressClass, LoadBalancerClass, StorageClass};
use control_api::labels;
use control_api::quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Most entries that are taken of a map or a list. A cluster has a few classes, labels and resources.
pub(super) const ENTRIES_MAX: usize = 64;

/// Longest name of a class, and longest domain of a key (DNS subdomain, RFC 1123).
const DOMAIN_LEN_MAX: usize = 253;

/// Longest name of a key without its domain, and longest value of a label.
pub(super) const NAME_LEN_MAX: usize = 63;

/// The reserved domain whose labels only describe a cluster.
const TOPOLOGY_DOMAIN: &str = "topology.liqo.io";

/// Parts that an Event names. A note has 1024 bytes at most.
const NAMED_MAX: usize = 6;

/// Longest name of a part in an Event, in characters.
const SHOWN_MAX: usize = 80;

/// Why a part is left out.
pub(super) type Reason = &'static str;

/// Takes the valid parts of a status, and notes the others.
#[derive(Debug)]
pub(super) struct Bounds<'a> {
    /// Reserved keys of node labels that a provider may set.
    allowed: &'a [String],
    /// The object or the part of it that is checked.
    source: &'static str,
    named: Vec<String>,
    count: usize,
}

impl<'a> Bounds<'a> {
    pub(super) fn new(allowed: &'a [String]) -> Self {
        Self::of("the status", allowed)
    }

    /// Creates the bounds of another source than the status of a slice.
    pub(super) fn of(source: &'static str, allowed: &'a [String]) -> Self {
        Self {
            allowed,
            source,
            named: Vec::new(),
            count: 0,
        }
    }

    /// Returns the labels that the provider may set on the Node.
    pub(super) fn node_labels(
        &mut self,
        labels: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let allowed = self.allowed;
        self.map("nodeLabels", labels, |key, value| {
            check_label(key, value)?;
            let is_allowed = labels::domain(key) == Some(TOPOLOGY_DOMAIN)
                || allowed.iter().any(|allowed| allowed == key);
            if labels::is_reserved(key) && !is_allowed {
                return Err("reserved key");
            }
            Ok(())
        })
    }

    /// Returns the labels by which the provider selects its own nodes, with any keys.
    pub(super) fn node_selector(
        &mut self,
        labels: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        self.map("nodeSelector", labels, |key, value| check_label(key, value))
    }

    /// Returns the resources with valid names and quantities.
    pub(super) fn resources(
        &mut self,
        resources: &BTreeMap<String, Quantity>,
    ) -> BTreeMap<String, Quantity> {
        self.map("resources", resources, |key, quantity| {
            check_key(key)?;
            quantity::check(&quantity.0)
        })
    }

    pub(super) fn storage_classes(&mut self, classes: &[StorageClass]) -> Vec<StorageClass> {
        let named = classes
            .iter()
            .map(|it| (it.storage_class_name.as_str(), it));
        let taken = self.take("storageClasses", named, |name, _| check_domain(name));
        taken.into_iter().cloned().collect()
    }

    pub(super) fn ingress_classes(&mut self, classes: &[IngressClass]) -> Vec<IngressClass> {
        let named = classes
            .iter()
            .map(|it| (it.ingress_class_name.as_str(), it));
        let taken = self.take("ingressClasses", named, |name, _| check_domain(name));
        taken.into_iter().cloned().collect()
    }

    pub(super) fn load_balancer_classes(
        &mut self,
        classes: &[LoadBalancerClass],
    ) -> Vec<LoadBalancerClass> {
        let named = classes
            .iter()
            .map(|it| (it.load_balancer_class_name.as_str(), it));
        let taken = self.take("loadBalancerClasses", named, |name, _| check_key(name));
        taken.into_iter().cloned().collect()
    }

    /// Returns the message about the parts that were left out; `None` if there are none.
    pub(super) fn into_message(self) -> Option<String> {
        let named = self.named.join(", ");
        let more = match self.count - self.named.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };

        (self.count > 0).then(|| format!("left out of {}: {named}{more}", self.source))
    }

    /// Returns the first valid entries of a map.
    pub(super) fn map<V: Clone>(
        &mut self,
        field: &str,
        map: &BTreeMap<String, V>,
        check: impl Fn(&str, &V) -> Result<(), Reason>,
    ) -> BTreeMap<String, V> {
        let named = map.iter().map(|entry| (entry.0.as_str(), entry));
        let taken = self.take(field, named, |key, (_, value)| check(key, value));
        let taken = taken.into_iter();
        taken
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// Returns the first valid items of a field, by their names.
    pub(super) fn take<'i, T>(
        &mut self,
        field: &str,
        items: impl Iterator<Item = (&'i str, T)>,
        check: impl Fn(&str, &T) -> Result<(), Reason>,
    ) -> Vec<T> {
        let mut taken = Vec::new();
        for (name, item) in items {
            let verdict = check(name, &item);
            match verdict {
                Ok(()) if taken.len() < ENTRIES_MAX => taken.push(item),
                Ok(()) => self.leave_out(field, name, "too many"),
                Err(reason) => self.leave_out(field, name, reason),
            }
        }

        taken
    }

    /// Notes a part that is left out.
    pub(super) fn leave_out(&mut self, field: &str, name: &str, reason: Reason) {
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            let shown: String = name.escape_debug().take(SHOWN_MAX).collect();
            self.named.push(format!("{field}[{shown}] ({reason})"));
        }
    }
}

/// Parses the key of a label.
///
/// # Errors
///
/// Returns a message with the remedy.
pub(crate) fn label_key(text: &str) -> Result<String, String> {
    check_key(text).map_err(|_| {
        format!("`{text}` is no key of a label: use one like topology.kubernetes.io/zone")
    })?;

    Ok(text.to_owned())
}

/// Checks key and value of a label.
pub(crate) fn check_label(key: &str, value: &str) -> Result<(), Reason> {
    check_key(key)?;
    if !value.is_empty() && !is_name(value) {
        return Err("invalid value");
    }

    Ok(())
}

/// Checks a key: a name, which may follow a domain and a slash.
pub(super) fn check_key(key: &str) -> Result<(), Reason> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_valid = is_name(name) && domain.is_none_or(is_domain);

    if is_valid {
        Ok(())
    } else {
        Err("invalid name")
    }
}

pub(super) fn check_domain(name: &str) -> Result<(), Reason> {
    if is_domain(name) {
        Ok(())
    } else {
        Err("invalid name")
    }
}

/// Returns whether a text is a name of Kubernetes' labels: letters, digits, and `-`, `_` and `.` between them.
pub(crate) fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());

    text.len() <= NAME_LEN_MAX
        && text.bytes().all(is_inner)
        && is_outer(text.bytes().next())
        && is_outer(text.bytes().next_back())
}

/// Returns whether a text is a DNS subdomain: lower-case DNS labels with dots between them.
fn is_domain(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };

    text.len() <= DOMAIN_LEN_MAX && text.split('.').all(is_label)
}
